"""HTTP on a client's connection: reads requests and answers them, one after the other.

    READING --request--> ANSWERING --answered, connection stays--> READING
       |                     |
       |                     +--answered, connection ends--> CLOSING
       +--refused--> CLOSING

A request for an upgrade, or one whose answer has no end, takes over the connection: `serve` returns
the session, and nothing of HTTP stays in memory. The phase tells what an expired timer means. A
request that has begun to arrive and is not complete is answered with 408 (RFC 9110, section
15.5.9); in any other case the connection ends without an answer.
"""

import enum
from contextlib import suppress
from http import HTTPStatus

import attrs

from mdserver import limits
from mdserver.codec import proxy
from mdserver.codec.cors import PREFLIGHT, is_preflight
from mdserver.codec.http import CONTINUE, Headers, HttpConnection, Request, RequestRefusedError
from mdserver.codec.streaming import PartedAnswer, StreamAnswer
from mdserver.codec.websocket import WebSocket, accept_upgrade
from mdserver.limits import NS_PER_S
from mdserver.server.clients import refusals
from mdserver.server.clients.connection import CROWDED, Connection
from mdserver.server.clients.exchange import Exchange
from mdserver.server.clients.stream_session import StreamSession
from mdserver.server.clients.websocket_session import WebSocketSession

REASON_BYTES_MAX = 200  # of an answer, in the server log
RETRY_AFTER = (b"retry-after", b"5")
CLOSE_AFTERWARDS = (b"connection", b"close")


class ConnectionPhase(enum.Enum):
    """The phase of a connection; it decides what an expired timer means."""

    READING = "reading a request"
    ANSWERING = "answering a request"
    CLOSING = "closing"


class HttpRequests:
    """Serves the requests of one connection."""

    __slots__ = ("_connection", "_context", "_http", "_phase")

    def __init__(self, connection: Connection) -> None:
        settings = connection.context.settings
        secure = connection.secure
        self._connection = connection
        self._context = connection.context
        self._http = HttpConnection(
            body_bytes_max=settings.http_body_bytes_max,
            transport_security_s=settings.transport_security // NS_PER_S if secure else 0,
            clock=connection.context.clock,
        )
        self._phase = ConnectionPhase.READING

    def timer_due(self, now: int) -> None:  # noqa: ARG002 - one signature for all protocols
        """End the connection; a request that has begun to arrive is refused with 408 first."""
        if self._phase is ConnectionPhase.READING and self._http.begun:
            refusal = RequestRefusedError(408, "The request took too long to arrive.")
            with suppress(OSError):  # the client is gone or does not read
                self._connection.sock.send(self._http.refuse(refusal))
        self._connection.abort()

    def connection_ended(self) -> None:
        """Do nothing: the connection releases all that a request holds."""

    def end_idle(self) -> None:
        """End the connection, unless a part of a request has arrived."""
        if not self._http.begun:
            self._connection.abort()

    async def serve(self) -> WebSocketSession | StreamSession | None:
        """Answer requests until one begins a session, and return it; None at the end.

        Raises OSError if the client is gone.
        """
        context, connection = self._context, self._connection
        received = b""
        try:
            while True:
                request = await self._read(received)
                if request is None:
                    return None
                if connection.proxied is not None:
                    connection.comes_from(connection.proxied.client_of(request))
                context.web.check_host(request)
                cors = context.web.check_origin(request)
                if request.wants_websocket and request.path in context.upgrade_paths:
                    return await self._upgrade(request)
                self._phase = ConnectionPhase.ANSWERING
                stream = await self._answer(request, cors)
                if stream is not None:
                    return StreamSession(connection, stream)
                if not self._http.keeps_open or context.draining.is_set():
                    break
                if connection.meter is not None:
                    connection.meter.take(1)
                    await connection.meter.wait(connection.excuse_silence)
                self._phase = ConnectionPhase.READING
                received = b""
                if context.sessions.turn.over:
                    await context.sessions.turn.pause()
        except RequestRefusedError as error:
            refusals.tell(connection.address, error.status, error.reason)
            context.sessions.measures.refuse(f"HTTP {error.status}")
            self._phase = ConnectionPhase.CLOSING
            refusal = self._http.refuse(error)
            connection.unfinished.hold(0)
            await connection.send_all(refusal)
        self._phase = ConnectionPhase.CLOSING
        await connection.linger(context.settings.close_timeout)
        return None

    async def _read(self, received: bytes) -> Request | None:
        """Read the next request; return None at the end of the stream.

        `received` are bytes that were read already; even if there are none, a pipelined request may
        be complete. Raises RequestRefusedError.
        """
        context, connection, http = self._context, self._connection, self._http
        connection.give_time(context.settings.handshake_timeout)
        continued = False
        context.awaiting[self] = None
        try:
            while (request := http.receive(received)) is None:
                if not connection.unfinished.hold(http.unfinished_bytes):
                    raise RequestRefusedError(503, CROWDED, [RETRY_AFTER])
                if http.wants_continue and not continued:
                    continued = True
                    await connection.send_all(CONTINUE)
                received = await connection.receive()
                if not received:
                    return None
                if not http.begun and proxy.begins_header(received):
                    raise RequestRefusedError(400, proxy.NOT_TAKEN)
        finally:
            del context.awaiting[self]
        connection.unfinished.hold(len(request.body))
        return request

    async def _answer(self, request: Request, cors: Headers) -> StreamAnswer | None:
        """Answer the request; return the answer if it is the beginning of a session, else None.

        Raises RequestRefusedError.
        """
        context, connection, http = self._context, self._connection, self._http
        connection.give_time(context.settings.write_timeout)
        if is_preflight(request):
            await connection.send_all(http.respond(204, [*cors, *PREFLIGHT]))
            return None
        exchange = Exchange(context.sessions, connection.address, secure=connection.secure)
        try:
            answer = await context.handler(request, exchange)
        except RequestRefusedError:
            raise
        except Exception:
            context.log.exception("request failed", method=request.method, path=request.path)
            raise RequestRefusedError(500, "The server failed to answer.") from None
        headers = [*answer.headers, *cors]
        if isinstance(answer, StreamAnswer):
            await connection.send_all(http.start_stream(200, [*headers, CLOSE_AFTERWARDS]))
            return answer
        if isinstance(answer, PartedAnswer):
            await self._send_parts(request, attrs.evolve(answer, headers=headers))
            return None
        if answer.status >= HTTPStatus.BAD_REQUEST and not exchange.answered:
            reason = answer.body[:REASON_BYTES_MAX].decode(errors="replace").strip()
            refusals.tell(connection.address, answer.status, reason)
            context.sessions.measures.refuse(f"HTTP {answer.status}")
        await connection.send_all(http.respond(answer.status, headers, answer.body))
        return None

    async def _send_parts(self, request: Request, answer: PartedAnswer) -> None:
        """Send a long answer part by part, as fast as the client takes it.

        What it holds in memory counts against the budget for answers until the last part is sent.
        """
        context, connection, http = self._context, self._connection, self._http
        if not context.answers.take(answer.held_bytes, stranger=True):
            raise RequestRefusedError(503, CROWDED, [RETRY_AFTER])
        try:
            await connection.send_all(http.start_stream(answer.status, answer.headers))
            if request.method != "HEAD":
                for part in answer.parts:
                    connection.give_time(context.settings.write_timeout)
                    await connection.send_all(http.chunk(part))
                    if context.sessions.turn.over:
                        await context.sessions.turn.pause()
            await connection.send_all(http.end_stream())
        finally:
            context.answers.give_back(answer.held_bytes, stranger=True)

    async def _upgrade(self, request: Request) -> WebSocketSession:
        """Accept an upgrade (RFC 6455, section 4.2.2). Raises RequestRefusedError."""
        context, connection = self._context, self._connection
        accepted = accept_upgrade(request)
        await connection.send_all(accepted.answer)
        connection.unfinished.hold(0)
        # A stranger's first message contains a token and little else, so it may be small.
        first_bytes_max = limits.FIRST_BYTES_MAX if context.settings.tokens_decide else None
        websocket = WebSocket(context.settings.websocket_bytes_max, first_bytes_max)
        form = context.session_handler.form(accepted.subprotocol)
        return WebSocketSession(connection, websocket, form, self._http.leftover)
