"""Listening sockets and the accept loop.

Trio's own accept helpers answer a lack of descriptors with a traceback every 0.1 s; here the loop
waits and says so once a period. Beyond the limits of connections a client is told 503 and when to
come back, unless it asks for `/health`: what watches over a full server has to find it alive. With
TLS each of those costs a hand-shake, as it would below the limit.
"""

import errno
import resource
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress

import trio

from mdserver import limits
from mdserver.codec.http import HttpConnection, RequestRefusedError
from mdserver.codec.proxy import ProxyHeaderError
from mdserver.codec.streaming import PartedAnswer, StreamAnswer
from mdserver.config.values import Address
from mdserver.core.entitlement import within
from mdserver.errors import StartError
from mdserver.limits import NS_PER_S
from mdserver.server.clients import refusals
from mdserver.server.clients.connection import CLOSE_AFTERWARDS, READ_BLOCKED, Connection, Shared
from mdserver.server.clients.exchange import Exchange
from mdserver.server.clients.proxies import Proxied, read_header
from mdserver.server.tls import Identity, say_goodbye, shake_hands

BACKLOG = 4096
ACCEPTS_PER_TURN = 32
BACK_OFF_S = 0.1
COMPLAIN_EVERY_NS = 60 * NS_PER_S
RETRY_AFTER_S = 5
DESCRIPTORS_KEPT_BACK = 128
NOT_SENT_BYTES = 16 * 1024
_NOT_NOW = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class Admission:
    """Counts the connections, in all and of each address."""

    def __init__(self, connections_max: int, connections_per_address_max: int) -> None:
        self._connections_max = connections_max
        self._per_address_max = connections_per_address_max
        self._of_address: dict[str, int] = {}
        self._empty: trio.Event | None = None
        self.total = 0
        self.entered = 0

    def enter(self, address: str | None) -> str | None:
        """Count a connection; the reason where there may be no more.

        Without an address it is that of a proxy, and counts for one with `move`.
        """
        if self.total >= self._connections_max:
            return f"There are {self.total} connections, which is all that is allowed."
        if address is not None and (refusal := self._take(address)) is not None:
            return refusal
        self.total += 1
        self.entered += 1
        return None

    def move(self, old: str | None, new: str) -> str | None:
        """Count a connection for another address; the reason if that one may have no more."""
        if old == new:
            return None
        refusal = self._take(new)
        if refusal is None and old is not None:
            self._give_back(old)
        return refusal

    def _take(self, address: str) -> str | None:
        here = self._of_address.get(address, 0)
        if here >= self._per_address_max:
            return f"There are {here} connections of your address, which is all that is allowed."
        self._of_address[address] = here + 1
        return None

    def _give_back(self, address: str) -> None:
        rest = self._of_address[address] - 1
        if rest:
            self._of_address[address] = rest
        else:
            del self._of_address[address]

    def leave(self, address: str | None) -> None:
        """A connection that had entered has ended."""
        self.total -= 1
        if address is not None:
            self._give_back(address)
        if not self.total and self._empty is not None:
            self._empty.set()

    async def emptied(self) -> None:
        """Wait until there is no connection."""
        if self.total:
            self._empty = trio.Event()
            await self._empty.wait()


def descriptors_for_connections() -> int:
    """How many connections the process can have: its limit of open files, raised as far as it may.

    Some descriptors are kept back for listeners, logs, files and the links to other members.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard not in (soft, resource.RLIM_INFINITY):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return max(soft - DESCRIPTORS_KEPT_BACK, 1)


def lowered(connections_max: int) -> int | None:
    """Return how many connections there can be if the limit of open files allows fewer."""
    possible = descriptors_for_connections()
    return possible if possible < connections_max else None


def listen(address: Address) -> list[socket.socket]:
    """Bind and listen; two sockets for `*`, one otherwise.

    Raises StartError with one line where that cannot be done.
    """
    try:
        if address.host != "*":
            return [_listen(address.host, address.port)]
        sixth = _listen("::", address.port)
        try:
            return [_listen("0.0.0.0", sixth.getsockname()[1]), sixth]  # noqa: S104 - as asked
        except OSError:
            sixth.close()
            raise
    except OSError as error:
        if address.host == "*" and error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            return listen(Address("0.0.0.0", address.port))  # noqa: S104 - a host without IPv6
        raise StartError(f"Cannot listen on {address}: {error.strerror or error}") from None


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, where = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Accepted sockets inherit both; see docs/design.md, "Fan-out", for what they are for.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sys.platform == "linux":
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, NOT_SENT_BYTES)
        sock.bind(where)
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def url_of(sock: socket.socket, *, secure: bool = False) -> str:
    """The URL of a listening socket."""
    host, port = sock.getsockname()[:2]
    return f"http{'s' if secure else ''}://{Address(host, port)}"


async def accept_each(
    listening: socket.socket,
    accepted: Callable[[socket.socket, str], None],
    complain: Callable[[OSError], None],
) -> None:
    """Accept until cancelled, then close: `accepted` gets each socket and where it comes from.

    `complain` is told where nothing can be accepted for now, for a lack of descriptors or memory.
    """
    with listening:
        while True:
            await trio.lowlevel.wait_readable(listening)
            try:
                for _ in range(ACCEPTS_PER_TURN):
                    sock, where = listening.accept()
                    sock.setblocking(False)
                    accepted(sock, where[0])
            except (BlockingIOError, ConnectionAbortedError):
                pass
            except OSError as error:
                if error.errno not in _NOT_NOW:
                    raise
                complain(error)
                await trio.sleep(BACK_OFF_S)


async def _received(sock: socket.socket, bytes_max: int) -> bytes:
    """Return what has come, nothing at the end of the stream or of `bytes_max`."""
    while True:
        # OpenSSL may hold bytes that it has read already: nothing more need come to the socket.
        if not (isinstance(sock, ssl.SSLSocket) and sock.pending()):
            await trio.lowlevel.wait_readable(sock)
        try:
            return sock.recv(bytes_max)
        except READ_BLOCKED:
            continue


class Listener:
    """One listening socket and the connections that came through it.

    With an identity they are encrypted.
    """

    def __init__(
        self,
        sock: socket.socket,
        shared: Shared,
        admission: Admission,
        identity: Identity | None = None,
    ) -> None:
        self._sock = sock
        self._shared = shared
        self._admission = admission
        self._identity = identity
        self._complained: dict[str, int] = {}
        self._lingering: dict[trio.CancelScope, None] = {}

    async def run(self, nursery: trio.Nursery) -> None:
        """Accept until cancelled; the connections run in `nursery`, and outlive that."""

        def accepted(sock: socket.socket, address: str) -> None:
            # A proxy's connections count for their clients, once it is known who those are.
            proxies = self._shared.settings.proxies
            through = bool(proxies) and within(address, proxies)
            refusal = self._admission.enter(None if through else address)
            if refusal is None:
                serve = self._serve_proxied if through else self._serve
                nursery.start_soon(serve, sock, address)
                return
            refusals.tell(address, 503, refusal)
            self._shared.engine.measures.refuse("too many connections")
            announced = through and self._shared.settings.proxy_protocol
            place = self._place()
            nursery.start_soon(self._refuse, sock, address, refusal, place, announced)

        await accept_each(self._sock, accepted, self._exhausted)

    async def _serve(self, sock: socket.socket, address: str) -> None:
        try:
            await Connection(sock, address, self._shared).run(self._identity)
        finally:
            self._admission.leave(address)

    async def _serve_proxied(self, sock: socket.socket, address: str) -> None:
        shared = self._shared
        proxied = Proxied(self._admission, shared.settings.proxies, address)
        try:
            if shared.settings.proxy_protocol:
                client = await self._announced(sock, address)
                if client is None:
                    sock.close()
                    return
                refusal = proxied.announced(client)
                if refusal is not None:
                    refusals.tell(client, 503, refusal)
                    shared.engine.measures.refuse("too many connections")
                    await self._refuse(sock, client, refusal, self._place())
                    return
                address = client
            await Connection(sock, address, shared, proxied).run(self._identity)
        finally:
            self._admission.leave(proxied.counted)

    async def _announced(self, sock: socket.socket, address: str) -> str | None:
        """Whose connection it is by its PROXY header; None where there is no good one."""
        reason = "Its PROXY header did not come in time."
        try:
            with trio.move_on_after(self._shared.settings.handshake_timeout / NS_PER_S):
                return await read_header(sock) or address
        except ProxyHeaderError as error:
            reason = str(error)
        except (EOFError, OSError):
            return None  # it has gone without a word, as those do that look who is there
        except BaseException:
            sock.close()
            raise
        self._complain("connection of a proxy refused", reason=reason, address=address)
        return None

    def _place(self) -> trio.CancelScope:
        """Return a place among the few connections beyond the limit.

        If there is none the one that is there for longest has to go: a probe of `/health` takes a
        moment only, so strangers that hold their places for longer keep it from nothing.
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
        """Answer a question for `/health`, anything else with 503, and linger for a moment.

        With `announced` a PROXY header comes first. What the client sends after the answer is read,
        so that the answer is not reset away.
        """
        try:
            with suppress(OSError, EOFError, ProxyHeaderError), scope:
                with trio.move_on_after(limits.LINGER_MS / 1000) as opening:
                    sock = await self._opened(sock, announced=announced)
                if not opening.cancelled_caught:
                    await self._say(sock, address, reason)
        finally:
            sock.close()
            self._lingering.pop(scope, None)

    async def _opened(self, sock: socket.socket, *, announced: bool) -> socket.socket:
        """Return the socket on which HTTP is spoken, after a PROXY header and a TLS hand-shake."""
        if announced:
            await read_header(sock)
        if self._identity is None:
            return sock
        return await shake_hands(sock, self._identity.context)

    async def _say(self, sock: socket.socket, address: str, reason: str) -> None:
        wait = (b"retry-after", str(RETRY_AFTER_S).encode())
        http = HttpConnection(clock=self._shared.engine.clock)
        answer = None
        with trio.move_on_after(limits.LINGER_MS / 1000):
            answer = await self._health(sock, address, http)
        sock.send(
            http.refuse(RequestRefusedError(503, reason, [wait])) if answer is None else answer
        )
        if isinstance(sock, ssl.SSLSocket):
            say_goodbye(sock)
        sock.shutdown(socket.SHUT_WR)
        with trio.move_on_after(limits.LINGER_MS / 1000):
            left = limits.REFUSED_BYTES_MAX
            while left > 0 and (received := await _received(sock, left)):
                left -= len(received)

    async def _health(
        self, sock: socket.socket, address: str, http: HttpConnection
    ) -> bytes | None:
        """Return the answer to a question for `/health`, None if the client asks anything else."""
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
            self._shared.web.check_host(request)
            secure = self._identity is not None
            exchange = Exchange(self._shared.engine, address, secure=secure)
            answer = await self._shared.handler(request, exchange)
        except RequestRefusedError:
            return None
        if isinstance(answer, PartedAnswer | StreamAnswer):
            return None
        return http.respond(answer.status, [*answer.headers, CLOSE_AFTERWARDS], answer.body)

    def _exhausted(self, error: OSError) -> None:
        self._complain("cannot accept connections", reason=error.strerror)

    def _complain(self, event: str, **values: object) -> None:
        now = self._shared.engine.clock()
        if now - self._complained.get(event, 0) >= COMPLAIN_EVERY_NS:
            self._complained[event] = now
            self._shared.log.warning(event, **values)
