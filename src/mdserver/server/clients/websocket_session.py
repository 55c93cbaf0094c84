"""A session over WebSocket (RFC 6455): frames in, commands to the node, frames out.

The reader stops for three reasons, and TCP then slows the client down:

- More waits for the client than may (`_crowded`), so answers to further commands would pile up.
- The client sends faster than its rate allows (`mdserver.server.clients.rates`).
- The node waits for an authorization and holds the commands that follow (`_await_verdict`).
"""

from collections.abc import Sequence

import trio

from mdserver import limits
from mdserver.codec.websocket import Ended, Pinged, WebSocket, WebSocketEvent, WebSocketMessage
from mdserver.errors import RemoteProtocolError
from mdserver.limits import NS_PER_MS
from mdserver.server.clients.connection import CROWDED, Connection
from mdserver.server.clients.forms import Form
from mdserver.server.clients.live_session import LiveSession

CLOSE_TRY_LATER = 1013  # IANA's registry of close codes


class WebSocketSession(LiveSession):
    """The session of an upgraded connection.

    `leftover` has the bytes that came with the request for the upgrade, after its end.
    """

    __slots__ = ("_flushed", "_kept_bytes", "_leftover", "_readable", "_websocket")

    def __init__(
        self, connection: Connection, websocket: WebSocket, form: Form, leftover: bytes
    ) -> None:
        super().__init__(connection, form)
        self._websocket = websocket
        self._leftover = leftover
        self._kept_bytes = 0  # received while the node waits for a verdict
        self._readable: trio.Event | None = None
        self._flushed: trio.Event | None = None

    async def serve(self) -> None:
        """Handle what the client sends until the connection ends."""
        connection = self.connection
        self.begin("websocket")
        received, self._leftover = self._leftover, b""
        while True:
            if received and await self._take(received):
                return
            received = b""  # an idle connection keeps nothing of it
            if self.outbox.unsent and self._crowded():
                self._readable = trio.Event()
                await self._readable.wait()
            if connection.meter is not None:
                await connection.meter.wait(connection.excuse_silence)
            if self.outbox.session in connection.context.sessions.authorizations.pending:
                await self._await_verdict()
            else:
                self._kept_bytes = 0
            received = await connection.receive()
            self._kept_bytes += len(received)
            if not received:
                connection.abort()
                return

    def keepalive_agreed(self, keepalive: int) -> None:
        """Take the interval, and lift the bound on the size of a stranger's first message."""
        if not self.admitted:
            self._websocket.admit()
        super().keepalive_agreed(keepalive)

    def close(self, code: int, reason: str, *, drop: bool = False) -> None:
        """Close the session; data frames that still arrive are ignored."""
        if self._open:
            super().close(code, reason, drop=drop)
            self._websocket.close(code, reason)

    async def _take(self, received: bytes) -> bool:
        """Handle received bytes; return whether the connection is at its end."""
        websocket = self._websocket
        sessions = self.connection.context.sessions
        while True:
            ended = await self._take_some(websocket.feed(received))
            if ended is not None:
                await self._finish(ended)
                return True
            if not websocket.more:
                share, unfinished = self.connection.unfinished, websocket.unfinished_bytes
                if unfinished != share.size and not share.hold(unfinished):
                    self.close(CLOSE_TRY_LATER, CROWDED, drop=True)
                return False
            received = b""
            if self.outbox.session in sessions.authorizations.pending:
                await self._await_verdict()
            if sessions.turn.over:
                await sessions.turn.pause()

    async def _take_some(self, events: Sequence[WebSocketEvent]) -> Ended | None:
        """Handle some events; return the one that ends the connection, if it is among them."""
        messages: list[WebSocketMessage] = []
        pong = b""
        ended: Ended | None = None
        for event in events:
            if isinstance(event, WebSocketMessage):
                messages.append(event)
            elif isinstance(event, Pinged):
                pong = event.answer  # the last one stands for all (RFC 6455, section 5.5.3)
            elif isinstance(event, Ended):
                ended = event
        if pong:
            self.outbox.send_control(pong)
        if messages:
            connection = self.connection
            try:
                commands = await connection.context.session_handler.messages(self.outbox, messages)
                if connection.meter is not None:
                    connection.meter.take(commands)
            except RemoteProtocolError as error:
                self.close(error.code, error.reason)
            except Exception:
                self.failed()
        return ended

    async def _await_verdict(self) -> None:
        """Wait for the authorization if nothing more may be read before it is there.

        A stranger must be admitted first. Others may have the node hold `receive_bytes_max` bytes.
        """
        connection, context = self.connection, self.connection.context
        if not self.admitted or self._kept_bytes >= context.settings.receive_bytes_max:
            await context.sessions.authorizations.resolved(self.outbox.session)
            self._kept_bytes = 0
            connection.excuse_silence()

    async def _finish(self, ended: Ended) -> None:
        """Send what waits and the answer to a close frame, then end the connection."""
        connection, outbox = self.connection, self.outbox
        context = connection.context
        context.session_handler.closed(outbox, ended.reason or f"closed with {ended.code}")
        if self._open:
            self._open = False
            connection.give_time(context.settings.close_timeout)
            outbox.finish(ended.answer)
        if outbox.unsent:
            self._flushed = trio.Event()
            await self._flushed.wait()
        # Nothing more is to be said by either side, so this side ends the connection itself
        # (RFC 6455, section 7.1.1) and does not wait for the client to do so.
        await connection.linger(limits.LINGER_MS * NS_PER_MS)

    def _crowded(self) -> bool:
        """Return whether more waits for the client than may, so that nothing is read from it."""
        outbox = self.outbox
        if not outbox.unsent:
            # The outbox is not parked, so no task would wake the reader up. The flusher sends what
            # waits in any case.
            return False
        return outbox.bytes_waiting > outbox.limit_least

    def _drained(self) -> None:
        """Wake the reader when it may go on."""
        if self._readable is not None and not self._crowded():
            self._readable.set()
            self._readable = None
        if self._flushed is not None and not self.outbox.unsent:
            self._flushed.set()
