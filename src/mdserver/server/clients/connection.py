"""One connection of a client: HTTP first, then perhaps WebSocket. One task, one nursery.

The task is blocked in `wait_readable` nearly all the time; a second one runs only while the outbox
is parked. Time-outs are one entry of the timer wheel.
"""

import enum
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Protocol

import attrs
import trio
from attrs import field, frozen

from mdserver import limits
from mdserver.codec import proxy
from mdserver.codec.cors import PREFLIGHT, WebRule, is_preflight
from mdserver.codec.http import CONTINUE, Headers, HttpConnection, Request, RequestRefusedError
from mdserver.codec.streaming import PartedAnswer, StreamAnswer
from mdserver.codec.websocket import (
    Ended,
    Message,
    Pinged,
    WebSocket,
    WebSocketEvent,
    accept_upgrade,
)
from mdserver.core.inputs import Opened
from mdserver.core.session import session_name
from mdserver.errors import RemoteProtocolError
from mdserver.limits import NS_PER_MS, NS_PER_S
from mdserver.server.clients import refusals
from mdserver.server.clients.budget import Budget, Share
from mdserver.server.clients.exchange import Exchange, Handler, give_commands
from mdserver.server.clients.forms import Form
from mdserver.server.clients.outbox import WRITE_BLOCKED, Outbox, SessionView
from mdserver.server.clients.proxies import Proxied
from mdserver.server.clients.rates import Meter, Rates
from mdserver.server.clients.session import Behaviour
from mdserver.server.engine import INTERNAL_ERROR, Engine
from mdserver.server.settings import ServerSettings
from mdserver.server.tls import Identity, say_goodbye, shake_hands

READ_BYTES = 64 * 1024
READ_BLOCKED = (BlockingIOError, ssl.SSLWantReadError)
REASON_BYTES_MAX = 200  # of an answer, in the server log
DISCARD_BYTES_MAX = 1024 * 1024
UPGRADE_PATHS = ("/ws", "/")
CLOSE_TRY_LATER = 1013  # IANA's registry of close codes
CROWDED = "The server has too much that is not complete: try again later."
RETRY_AFTER = (b"retry-after", b"5")
CLOSE_AFTERWARDS = (b"connection", b"close")


class Logger(Protocol):
    """Where the network side says what an operator should know."""

    def warning(self, event: str, **values: object) -> object:
        """Something is not as it should be."""

    def exception(self, event: str, **values: object) -> object:
        """A bug: with the traceback of the exception that is being handled."""


@frozen(eq=False)
class Shared:
    """What all connections of a server have in common.

    `awaiting` are the connections that wait for a request, `draining` is set while the server ends.
    Only at `upgrade_paths` is there WebSocket; `web` says for which pages the server is there.
    """

    settings: ServerSettings
    engine: Engine
    behaviour: Behaviour
    handler: Handler
    log: Logger
    rates: Rates = field(init=False)
    buffer: bytearray = field(factory=lambda: bytearray(READ_BYTES))
    unfinished: Budget = field()
    answers: Budget = field()
    upgrade_paths: tuple[str, ...] = UPGRADE_PATHS
    web: WebRule = field(factory=WebRule)
    awaiting: dict["Connection", None] = field(factory=dict)
    draining: trio.Event = field(factory=trio.Event)

    @unfinished.default
    def _unfinished(self) -> Budget:
        return Budget(self.settings.unfinished_bytes_max)

    @answers.default
    def _answers(self) -> Budget:
        return Budget(self.settings.answers_bytes_max)

    @rates.default
    def _rates(self) -> Rates:
        return Rates(self.settings.rates, self.engine.clock)


class Phase(enum.Enum):
    """What a connection is doing, so what it means when its time is up."""

    READING = "reading a request"
    ANSWERING = "answering a request"
    OPEN = "open"
    CLOSING = "closing"


class Connection:
    """Owns its socket, and its outbox once there is a session."""

    __slots__ = (
        "_flushed",
        "_http",
        "_keepalive",
        "_kept_bytes",
        "_meter",
        "_nursery",
        "_proxied",
        "_readable",
        "_shared",
        "_sock",
        "_unfinished",
        "_websocket",
        "address",
        "admitted",
        "heard",
        "outbox",
        "phase",
    )

    def __init__(
        self, sock: socket.socket, address: str, shared: Shared, proxied: Proxied | None = None
    ) -> None:
        self._sock = sock
        self._proxied = proxied
        self._shared = shared
        self._nursery: trio.Nursery | None = None
        self._readable: trio.Event | None = None
        self._flushed: trio.Event | None = None
        self._meter: Meter | None = shared.rates.of(address)
        self._kept_bytes = 0  # received while the node waits for a verdict
        self._unfinished = Share(shared.unfinished, limits.UNFINISHED_FREE_BYTES, stranger=True)
        self._http: HttpConnection | None = None
        self._websocket: WebSocket | None = None
        self._keepalive = shared.settings.keepalive
        self.address = address
        self.heard = 0
        self.outbox: Outbox | None = None
        self.phase = Phase.READING
        self.admitted = False

    async def run(self, identity: Identity | None = None) -> None:
        """Serve the connection until it ends, encrypted if there is an identity for it.

        Raises nothing but Cancelled.
        """
        shared = self._shared
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                if identity is not None:
                    self._give_time(shared.settings.handshake_timeout)
                    try:
                        self._sock = await shake_hands(self._sock, identity.context)
                    except OSError as error:
                        refusals.tell(self.address, "no TLS connection", error)
                        shared.engine.measures.refuse("no TLS connection")
                        raise
                received = await self._serve_http()
                if received is not None:
                    await self._serve_websocket(received)
        except* (OSError, ssl.SSLError):
            pass  # the client has gone; `finally` says so to the node
        except* Exception:
            shared.log.exception("connection failed", address=self.address)
        finally:
            if isinstance(self._sock, ssl.SSLSocket):
                say_goodbye(self._sock)
            self._sock.close()
            self._unfinished.hold(0)
            shared.engine.timers.cancel(self)
            if self.outbox is not None:
                shared.behaviour.closed(self.outbox, "the connection ended")

    @property
    def secure(self) -> bool:
        """Whether it is encrypted."""
        return isinstance(self._sock, ssl.SSLSocket)

    def view(self, now: int) -> SessionView:
        """How its session is doing."""
        outbox = self.outbox
        assert outbox is not None
        return SessionView(
            session=session_name(self._shared.settings.node_name, outbox.session),
            address=self.address,
            transport=outbox.form.name,
            secure=self.secure,
            outbox_bytes=outbox.bytes_waiting,
            waiting_ms=(now - outbox.since) // NS_PER_MS if outbox.unsent else 0,
            silent_ms=(now - self.heard) // NS_PER_MS,
        )

    def timer_due(self, now: int) -> None:
        """The timer wheel's call; what it means depends on the phase."""
        if self.phase is Phase.OPEN:
            self._keep_alive(now)
            return
        http = self._http
        if self.phase is Phase.READING and http is not None and http.begun:
            refusal = RequestRefusedError(408, "The request took too long to arrive.")
            with suppress(OSError):  # nobody is there to be told, or nobody reads
                self._sock.send(http.refuse(refusal))
        self._abort()

    def _keep_alive(self, now: int) -> None:
        outbox = self.outbox
        assert outbox is not None
        if self._must_connect() and not self._shared.engine.asking(outbox.session):
            timeout_s = self._shared.settings.handshake_timeout // NS_PER_S
            reason = f"No `connect` came within {timeout_s} s."
            self.close(limits.CLOSE_CONNECT_DENIED, reason, drop=True)
            return
        due = self.heard + self._keepalive
        if not outbox.form.answers:
            # The client cannot answer: that it takes what is sent has to be enough.
            self.heard = now
        elif now >= due + self._keepalive:
            reason = f"Nothing was heard for {2 * self._keepalive // NS_PER_S} s."
            self.close(limits.CLOSE_KEEPALIVE_MISSED, reason, drop=True)
            return
        if now >= due:
            outbox.urge(outbox.form.alive())
            due += self._keepalive
        self._shared.engine.set_timer(self, due)

    # What an outbox asks of its owner.

    def agreed(self, keepalive: int) -> None:
        """The interval (ns) that the node agreed with the client, which it has admitted."""
        if not self.admitted:
            self.admitted = True
            self._unfinished.admit()
            if self._websocket is not None:
                self._websocket.admit()
        self._keepalive = keepalive
        self._give_time(keepalive)

    def parked(self) -> None:
        """Start the task that waits until the socket takes more."""
        assert self._nursery is not None
        assert self.outbox is not None
        if self._nursery.cancel_scope.cancel_called:
            return  # the connection is ending
        self.outbox.since = self._shared.engine.clock()
        self._nursery.start_soon(self._drain)
        self._shared.behaviour.writability(self.outbox, writable=False)

    def lost(self, reason: str) -> None:
        """The socket is broken."""
        assert self.outbox is not None
        self._shared.behaviour.closed(self.outbox, reason)
        self._abort()

    def overflowed(self) -> None:
        """A slow consumer: where the policy does not help, it recovers when it comes back."""
        assert self.outbox is not None
        if self.outbox.relieve(self._shared.settings.slow_consumers):
            self._shared.engine.measures.relieved += 1
            return
        self.close(
            limits.CLOSE_SLOW_CONSUMER,
            "This client reads too slowly. Reconnect and recover what was missed.",
            drop=True,
        )

    def overwhelmed(self) -> None:
        """What was asked for has no place: the client has to ask for less at a time."""
        self.close(
            limits.CLOSE_SLOW_CONSUMER,
            f"More than {limits.CATCH_UP_BYTES_MAX} bytes wait: ask for fewer subjects at a time.",
            drop=True,
        )

    def failed(self) -> None:
        """End the session with 1011 because of the exception that is being handled, a bug."""
        self._shared.log.exception("session failed", address=self.address)
        try:
            self.close(limits.CLOSE_INTERNAL_ERROR, INTERNAL_ERROR, drop=True)
        except Exception:
            self._shared.log.exception("session could not be closed", address=self.address)
            self._abort()

    def close(self, code: int, reason: str, *, drop: bool = False) -> None:
        """End the session: what waits (nothing of it with `drop`), then the code and reason."""
        outbox = self.outbox
        if self.phase is not Phase.OPEN or outbox is None:
            return
        self.phase = Phase.CLOSING
        refusals.tell(self.address, code, reason, session=outbox.session)
        self._shared.engine.measures.close(code)
        self._shared.behaviour.closed(outbox, reason)
        if self._websocket is not None:
            self._websocket.close(code, reason)
        self._give_time(self._shared.settings.close_timeout)
        outbox.finish(outbox.form.goodbye(code, reason), drop=drop)

    async def _drain(self) -> None:
        outbox = self.outbox
        assert outbox is not None
        timeout_s = self._shared.settings.write_timeout / NS_PER_S
        done = False
        while not done:
            with trio.move_on_after(timeout_s) as waiting:
                await trio.lowlevel.wait_writable(self._sock)
            if waiting.cancelled_caught:
                self.lost("the client took no byte in time")
                return
            done = outbox.drain()
            self._read_on()
            if done:
                self._shared.behaviour.writability(outbox, writable=True)
                if self._flushed is not None:
                    self._flushed.set()
            await trio.lowlevel.checkpoint()

    def _read_on(self) -> None:
        if self._readable is not None and not self._crowded():
            self._readable.set()
            self._readable = None

    def _crowded(self) -> bool:
        outbox = self.outbox
        if outbox is None or not outbox.unsent:
            return False  # nothing would wake the reader up: the flusher comes first
        return outbox.bytes_waiting > outbox.limit_least

    # Reading

    async def _receive(self) -> bytes:
        """What has come, empty at the end of the stream."""
        sock = self._sock
        shared = self._shared
        while True:
            if not (isinstance(sock, ssl.SSLSocket) and sock.pending()):
                await trio.lowlevel.wait_readable(sock)
            try:
                size = sock.recv_into(shared.buffer)
            except READ_BLOCKED:
                continue
            self.heard = shared.engine.clock()
            shared.engine.traffic.received += size
            if self._meter is not None:
                self._meter.take(bytes_=size)
            shared.engine.turn.begin()
            self._kept_bytes += size
            return bytes(memoryview(shared.buffer)[:size])

    async def _serve_http(self) -> bytes | None:
        """Answer requests until one opens a WebSocket: gives what came after that one.

        None where the connection is at its end. Nothing of HTTP is left behind in memory.
        """
        settings = self._shared.settings
        http = self._http = HttpConnection(
            body_bytes_max=settings.http_body_bytes_max,
            transport_security_s=settings.transport_security // NS_PER_S if self.secure else 0,
            clock=self._shared.engine.clock,
        )
        received = b""
        try:
            while True:
                request = await self._read_request(http, received)
                if request is None:
                    return None
                if self._proxied is not None:
                    self._comes_from(self._proxied.client_of(request))
                self._shared.web.check_host(request)
                cors = self._shared.web.check_origin(request)
                if request.wants_websocket and request.path in self._shared.upgrade_paths:
                    return await self._upgrade(http, request)
                self.phase = Phase.ANSWERING
                stream = await self._answer(http, request, cors)
                if stream is not None:
                    await self._serve_stream(stream)
                    return None
                if not http.keeps_open or self._shared.draining.is_set():
                    break
                if self._meter is not None:
                    self._meter.take(1)
                    await self._meter.wait(self._hear)
                self.phase = Phase.READING
                received = b""
                if self._shared.engine.turn.over:
                    await self._shared.engine.turn.pause()
        except RequestRefusedError as error:
            refusals.tell(self.address, error.status, error.reason)
            self._shared.engine.measures.refuse(f"HTTP {error.status}")
            self.phase = Phase.CLOSING
            await self._send_all(http.refuse(error))
        await self._linger(settings.close_timeout)
        return None

    async def _read_request(self, http: HttpConnection, received: bytes) -> Request | None:
        self._give_time(self._shared.settings.handshake_timeout)
        awaiting = self._shared.awaiting
        continued = False
        awaiting[self] = None
        try:
            while (request := http.receive(received)) is None:
                if not self._unfinished.hold(http.unfinished_bytes):
                    raise RequestRefusedError(503, CROWDED, [RETRY_AFTER])
                if http.wants_continue and not continued:
                    continued = True
                    await self._send_all(CONTINUE)
                received = await self._receive()
                if not received:
                    return None
                if not http.begun and proxy.begins_header(received):
                    raise RequestRefusedError(400, proxy.NOT_TAKEN)
        finally:
            del awaiting[self]
        self._unfinished.hold(len(request.body))
        return request

    def _comes_from(self, client: str) -> None:
        """What is asked from now on is this client's, as its proxy says."""
        if client != self.address:
            self.address = client
            self._meter = self._shared.rates.of(client)

    def end_idle(self) -> None:
        """End a connection that waits for a request, unless one has begun."""
        if self._http is None or not self._http.begun:
            self._abort()

    async def _answer(
        self, http: HttpConnection, request: Request, cors: Headers
    ) -> StreamAnswer | None:
        """Answer the request; an answer that goes on for as long as its session is given back."""
        shared = self._shared
        self._give_time(shared.settings.write_timeout)
        if is_preflight(request):
            await self._send_all(http.respond(204, [*cors, *PREFLIGHT]))
            return None
        exchange = Exchange(shared.engine, self.address, secure=self.secure)
        try:
            answer = await shared.handler(request, exchange)
        except RequestRefusedError:
            raise
        except Exception:
            shared.log.exception("request failed", method=request.method, path=request.path)
            raise RequestRefusedError(500, "The server failed to answer.") from None
        headers = [*answer.headers, *cors]
        if isinstance(answer, StreamAnswer):
            await self._send_all(http.start_stream(200, [*headers, CLOSE_AFTERWARDS]))
            self._http = None
            return answer
        if isinstance(answer, PartedAnswer):
            await self._send_parts(http, request, attrs.evolve(answer, headers=headers))
        else:
            if answer.status >= HTTPStatus.BAD_REQUEST and not exchange.answered:
                reason = answer.body[:REASON_BYTES_MAX].decode(errors="replace").strip()
                refusals.tell(self.address, answer.status, reason)
                shared.engine.measures.refuse(f"HTTP {answer.status}")
            await self._send_all(http.respond(answer.status, headers, answer.body))
        return None

    async def _send_parts(
        self, http: HttpConnection, request: Request, answer: PartedAnswer
    ) -> None:
        """Send a long answer as the client takes it; it counts until it is sent."""
        shared = self._shared
        if not shared.answers.take(answer.held_bytes, stranger=True):
            raise RequestRefusedError(503, CROWDED, [RETRY_AFTER])
        try:
            await self._send_all(http.start_stream(answer.status, answer.headers))
            if request.method != "HEAD":
                for part in answer.parts:
                    self._give_time(shared.settings.write_timeout)
                    await self._send_all(http.chunk(part))
                    if shared.engine.turn.over:
                        await shared.engine.turn.pause()
            await self._send_all(http.end_stream())
        finally:
            shared.answers.give_back(answer.held_bytes, stranger=True)

    async def _send_all(self, wire: bytes) -> None:
        """For what comes before there is an outbox; the timer of the phase bounds it."""
        rest = memoryview(wire)
        while rest:
            try:
                rest = rest[self._sock.send(rest) :]
            except WRITE_BLOCKED:
                await trio.lowlevel.wait_writable(self._sock)
        self._shared.engine.traffic.sent += len(wire)

    async def _linger(self, duration: int) -> None:
        """Let the client read what was sent last: closing on unread bytes would reset it away.

        This side has nothing more to send and says so; what the client still sends within
        `duration` (ns) is read and thrown away. Then the timer ends the connection.
        """
        self.phase = Phase.CLOSING
        self._give_time(duration)
        if isinstance(self._sock, ssl.SSLSocket):
            say_goodbye(self._sock)
        self._sock.shutdown(socket.SHUT_WR)
        await self._discard()

    async def _serve_stream(self, answer: StreamAnswer) -> None:
        """Be the session of an answer without end; nothing that its client still sends counts."""
        engine = self._shared.engine
        secret = answer.secret
        outbox = self._open(answer.form, answer.transport)
        if secret is not None:
            engine.streams[secret] = outbox.session
        try:
            await give_commands(engine, outbox.session, answer.commands)
            await self._discard()
        finally:
            if secret is not None:
                del engine.streams[secret]
        self._abort()

    # WebSocket

    async def _upgrade(self, http: HttpConnection, request: Request) -> bytes:
        shared = self._shared
        accepted = accept_upgrade(request)
        await self._send_all(accepted.answer)
        self._http = None
        self._unfinished.hold(0)
        first_bytes_max = limits.FIRST_BYTES_MAX if shared.settings.tokens_decide else None
        self._websocket = WebSocket(shared.settings.websocket_bytes_max, first_bytes_max)
        self._open(shared.behaviour.form(accepted.subprotocol), "websocket")
        return http.leftover

    async def _serve_websocket(self, received: bytes) -> None:
        websocket = self._websocket
        assert websocket is not None
        while True:
            if received and await self._take(websocket, received):
                return
            if self._crowded():
                self._readable = trio.Event()
                await self._readable.wait()
            if self._meter is not None:
                await self._meter.wait(self._hear)
            await self._catch_up()
            received = await self._receive()
            if not received:
                self._abort()
                return

    def _open(self, form: Form, transport: str) -> Outbox:
        shared = self._shared
        number = next(shared.engine.numbers)
        outbox = Outbox(
            number, form, self._sock, self, shared.settings.outbox_bytes_max, shared.engine.traffic
        )
        self.outbox = outbox
        self.phase = Phase.OPEN
        self._give_time(
            shared.settings.handshake_timeout if self._must_connect() else self._keepalive
        )
        shared.behaviour.opened(outbox, Opened(number, self.address, transport, self.secure))
        return outbox

    async def _take(self, websocket: WebSocket, received: bytes) -> bool:
        """Handle what came; whether the connection is at its end."""
        outbox = self.outbox
        assert outbox is not None
        turn = self._shared.engine.turn
        while True:
            ended = await self._take_some(websocket.feed(received), outbox)
            if ended is not None:
                return await self._ended(ended, outbox)
            if not websocket.more:
                if not self._unfinished.hold(websocket.unfinished_bytes):
                    self.close(CLOSE_TRY_LATER, CROWDED, drop=True)
                return False
            received = b""
            await self._catch_up()
            if turn.over:
                await turn.pause()

    async def _catch_up(self) -> None:
        """Read no further while the node waits for a verdict: not before the client is admitted,
        and not beyond what it may have the server keep.
        """
        engine, outbox = self._shared.engine, self.outbox
        assert outbox is not None
        if not engine.asking(outbox.session):
            self._kept_bytes = 0
        elif not self.admitted or self._kept_bytes >= self._shared.settings.receive_bytes_max:
            await engine.decided(outbox.session)
            self._kept_bytes = 0
            self._hear()

    async def _take_some(self, events: Sequence[WebSocketEvent], outbox: Outbox) -> Ended | None:
        """Handle some events; the one that ends the connection, if it is among them."""
        messages: list[Message] = []
        pong = b""
        ended: Ended | None = None
        for event in events:
            if isinstance(event, Message):
                messages.append(event)
            elif isinstance(event, Pinged):
                pong = event.answer  # the last one stands for all (RFC 6455, section 5.5.3)
            elif isinstance(event, Ended):
                ended = event
        if pong:
            outbox.urge(pong)
        if messages:
            try:
                commands = await self._shared.behaviour.messages(outbox, messages)
                if self._meter is not None:
                    self._meter.take(commands)
            except RemoteProtocolError as error:
                self.close(error.code, error.reason)
            except Exception:
                self.failed()
        return ended

    async def _ended(self, ended: Ended, outbox: Outbox) -> bool:
        self._shared.behaviour.closed(outbox, ended.reason or f"closed with {ended.code}")
        if self.phase is Phase.OPEN:
            self.phase = Phase.CLOSING
            self._give_time(self._shared.settings.close_timeout)
            outbox.finish(ended.answer)
        if outbox.unsent:
            self._flushed = trio.Event()
            await self._flushed.wait()
        # Nothing more is to be said by either side, so this side ends the connection itself
        # (RFC 6455, section 7.1.1) and does not wait for the client to do so.
        await self._linger(limits.LINGER_MS * NS_PER_MS)
        return True

    async def _discard(self) -> None:
        discarded = 0
        while discarded < DISCARD_BYTES_MAX and (received := await self._receive()):
            discarded += len(received)

    def _must_connect(self) -> bool:
        """Whether the client may be nobody: where tokens decide, and it has given none yet."""
        return self._shared.settings.tokens_decide and not self.admitted

    def _hear(self) -> None:
        """A client that the server does not read from is not silent."""
        self.heard = self._shared.engine.clock()

    def _give_time(self, duration: int) -> None:
        engine = self._shared.engine
        self.heard = engine.clock()
        engine.set_timer(self, self.heard + duration)

    def _abort(self) -> None:
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
