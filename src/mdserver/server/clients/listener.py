"""Accepts clients at one listening socket, and refuses them politely beyond the limits.

    accepted --within the limits--> served (`serve_connection`)
        |
        '--beyond them--> lingering: `/health` is answered, anything else gets 503 --> closed

A connection beyond the limits gets an answer instead of a reset: 503 with the time to come back, or
the answer of `/health`, because what watches over a full server has to find it alive. The answer
costs a TLS handshake where there is one, so these connections are few and short
(`Listener._place`). Their descriptors are among those that the limit of connections keeps back.

A connection of a proxy counts for the proxy's client. Who that is, is known only after the PROXY
header or the first request, so its limits are checked there (`mdserver.server.clients.proxies`).
"""

import socket
from contextlib import suppress

import trio

from mdserver import limits
from mdserver.codec.http import HttpConnection, RequestRefusedError
from mdserver.codec.proxy import ProxyHeaderError
from mdserver.codec.streaming import PartedAnswer, StreamAnswer
from mdserver.core.entitlement import within
from mdserver.limits import NS_PER_S
from mdserver.server.clients import refusals
from mdserver.server.clients.admission import Admission
from mdserver.server.clients.connection import Connection
from mdserver.server.clients.context import ServerContext
from mdserver.server.clients.exchange import Exchange
from mdserver.server.clients.proxies import Proxied, read_header
from mdserver.server.clients.requests import CLOSE_AFTERWARDS
from mdserver.server.clients.serve import serve_connection
from mdserver.server.encrypted import EncryptedSocket
from mdserver.server.sockets import READ_BLOCKED, accept_each
from mdserver.server.tls import ListenerCertificate

TASK = "connection"
COMPLAIN_EVERY_NS = 60 * NS_PER_S
RETRY_AFTER_S = 5


async def _received(sock: socket.socket | EncryptedSocket, bytes_max: int) -> bytes:
    """Wait for bytes and return up to `bytes_max` of them, empty at the end of the stream."""
    while True:
        # What was decrypted with the handshake, or with more than was asked for, is there already.
        if not (isinstance(sock, EncryptedSocket) and sock.pending()):
            await trio.lowlevel.wait_readable(sock)
        try:
            return sock.recv(bytes_max)
        except READ_BLOCKED:
            continue


class Listener:
    """One listening socket and the connections that came through it.

    With an identity the connections are encrypted. `_lingering` has the cancel scopes of the
    connections beyond the limit, oldest first. `_complained` maps each event of the log to the time
    (ns) when it was written last.
    """

    def __init__(
        self,
        sock: socket.socket,
        context: ServerContext,
        admission: Admission,
        identity: ListenerCertificate | None = None,
    ) -> None:
        self._sock = sock
        self._context = context
        self._admission = admission
        self._identity = identity
        self._complained: dict[str, int] = {}
        self._lingering: dict[trio.CancelScope, None] = {}

    async def run(self, nursery: trio.Nursery) -> None:
        """Accept until cancelled. The connections run in `nursery` and outlive this call."""

        def accepted(sock: socket.socket, address: str) -> None:
            # A proxy's connections count for their clients, once it is known who those are.
            proxies = self._context.settings.proxies
            through = bool(proxies) and within(address, proxies)
            refusal = self._admission.enter(None if through else address)
            if refusal is None:
                # Who is refused takes nothing of the rate: it is not to keep others out.
                self._admission.pace(self._context.clock())
                if through:
                    nursery.start_soon(self._serve_proxied, sock, address)
                else:
                    connection = Connection(sock, address, self._context)
                    # With a name given, each task does not make and keep a text of its own.
                    nursery.start_soon(
                        serve_connection, connection, self._identity, self._admission, name=TASK
                    )
                return
            refusals.tell(address, 503, refusal)
            self._context.sessions.measures.refuse("too many connections")
            announced = through and self._context.settings.proxy_protocol
            place = self._place()
            nursery.start_soon(self._refuse, sock, address, refusal, place, announced)

        def delay_s() -> float:
            return self._admission.delay_s(self._context.clock())

        await accept_each(self._sock, accepted, self._exhausted, delay_s)

    async def _serve_proxied(self, sock: socket.socket, address: str) -> None:
        """Serve a connection of the proxy at `address`, counted for the proxy's client."""
        context = self._context
        proxied = Proxied(self._admission, context.settings.proxies, address)
        try:
            if context.settings.proxy_protocol:
                client = await self._announced(sock, address)
                if client is None:
                    sock.close()
                    return
                refusal = proxied.announced(client)
                if refusal is not None:
                    refusals.tell(client, 503, refusal)
                    context.sessions.measures.refuse("too many connections")
                    await self._refuse(sock, client, refusal, self._place())
                    return
                address = client
            connection = Connection(sock, address, context, proxied)
            await serve_connection(connection, self._identity)
        finally:
            self._admission.leave(proxied.counted)

    async def _announced(self, sock: socket.socket, address: str) -> str | None:
        """Read the PROXY header; return the client's address, None if the header is missing or bad.

        A header without a client is that of the proxy's own connection, such as a health check.
        """
        reason = "Its PROXY header did not come in time."
        try:
            with trio.move_on_after(self._context.settings.handshake_timeout / NS_PER_S):
                return await read_header(sock) or address
        except ProxyHeaderError as error:
            reason = str(error)
        except (EOFError, OSError):
            return None  # a port scan or a check that only connects: not worth a line in the log
        except BaseException:
            sock.close()
            raise
        self._complain("connection of a proxy refused", reason=reason, address=address)
        return None

    def _place(self) -> trio.CancelScope:
        """Return a place among the `REFUSED_LINGERING_MAX` connections beyond the limit.

        If all places are taken, the oldest connection loses its place. A probe of `/health` is done
        within a moment, so strangers that hold places for longer cannot keep it out.
        """
        if len(self._lingering) >= limits.REFUSED_LINGERING_MAX:
            oldest = next(iter(self._lingering))
            del self._lingering[oldest]
            oldest.cancel()
        scope = trio.CancelScope()
        self._lingering[scope] = None
        return scope

    async def _refuse(
        self,
        sock: socket.socket,
        address: str,
        reason: str,
        scope: trio.CancelScope,
        announced: bool = False,
    ) -> None:
        """Answer a request for `/health`, anything else with 503, and linger for a moment.

        With `announced` a PROXY header comes first. Closes `sock`. Raises only Cancelled: this
        is the isolation boundary of a connection that `serve_connection` never sees.
        """
        try:
            with suppress(OSError, EOFError, ProxyHeaderError), scope:
                with trio.move_on_after(limits.LINGER_MS / 1000) as opening:
                    opened = await self._opened(sock, announced=announced)
                if not opening.cancelled_caught:
                    await self._say(opened, address, reason)
        except Exception:
            self._context.log.exception("connection failed", address=address)
        finally:
            sock.close()
            self._lingering.pop(scope, None)

    async def _opened(
        self, sock: socket.socket, *, announced: bool
    ) -> socket.socket | EncryptedSocket:
        """Return the socket for HTTP, after the PROXY header and the TLS handshake, if any."""
        if announced:
            await read_header(sock)
        if self._identity is None:
            return sock
        return await self._identity.encrypt(sock)

    async def _say(self, sock: socket.socket | EncryptedSocket, address: str, reason: str) -> None:
        """Send the answer, then read on for a moment.

        A close with unread bytes would make the kernel reset the connection, and the client might
        lose the answer.
        """
        wait = (b"retry-after", str(RETRY_AFTER_S).encode())
        http = HttpConnection(clock=self._context.clock)
        answer = None
        with trio.move_on_after(limits.LINGER_MS / 1000):
            answer = await self._health(sock, address, http)
        sock.send(
            http.refuse(RequestRefusedError(503, reason, [wait])) if answer is None else answer
        )
        if isinstance(sock, EncryptedSocket):
            sock.say_goodbye()
        sock.shutdown(socket.SHUT_WR)
        with trio.move_on_after(limits.LINGER_MS / 1000):
            left = limits.REFUSED_BYTES_MAX
            while left > 0 and (received := await _received(sock, left)):
                left -= len(received)

    async def _health(
        self, sock: socket.socket | EncryptedSocket, address: str, http: HttpConnection
    ) -> bytes | None:
        """Return the answer to a request for `/health`, None if the client requests anything else.

        Reads at most `REFUSED_BYTES_MAX` bytes.
        """
        left = limits.REFUSED_BYTES_MAX
        request = None
        try:
            while request is None:
                received = await _received(sock, left)
                left -= len(received)
                if not received:
                    return None
                request = http.receive(received)
            if request.method not in ("GET", "HEAD") or not request.path.startswith("/health/"):
                return None
            self._context.web.check_host(request)
            secure = self._identity is not None
            exchange = Exchange(self._context.sessions, address, secure=secure)
            answer = await self._context.handler(request, exchange)
        except RequestRefusedError:
            return None
        if isinstance(answer, PartedAnswer | StreamAnswer):
            return None
        return http.respond(answer.status, [*answer.headers, CLOSE_AFTERWARDS], answer.body)

    def _exhausted(self, error: OSError) -> None:
        self._complain("cannot accept connections", reason=error.strerror)

    def _complain(self, event: str, **values: object) -> None:
        """Write a warning, but each event only once in `COMPLAIN_EVERY_NS`."""
        now = self._context.clock()
        if now - self._complained.get(event, 0) >= COMPLAIN_EVERY_NS:
            self._complained[event] = now
            self._context.log.warning(event, **values)
