"""The WebSocket transport of the Python client: wsproto over a stream of anyio.

Section numbers are those of RFC 6455. Two tasks use a transport. One receives; it also answers
pings and close frames, so both tasks may send, and a lock keeps their frames apart. The other one
sends messages and begins the closing handshake (section 7.1.2), whose answer the first one reads.
"""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import RemoteProtocolError

from mdserver.client.errors import TransportError
from mdserver.client.transport import (
    CLOSED_WITHOUT_HANDSHAKE,
    READ_BYTES,
    REASON_BYTES,
    Target,
    Transport,
    drop,
    failure,
    open_stream,
    unopened,
)
from mdserver.limits import (
    CLIENT_CLOSE_TIMEOUT_S,
    CLIENT_FAREWELL_S,
    CLIENT_PAYLOAD_BYTES_MAX,
    CLOSE_TOO_BIG,
    SUBPROTOCOL_BINARY,
    SUBPROTOCOL_JSON,
)

# BusyResourceError: under TLS receiving may require a send, while the other task sends as well.
_LOST = (
    anyio.BrokenResourceError,
    anyio.BusyResourceError,
    anyio.ClosedResourceError,
    OSError,
)


class WebSocketTransport:
    """One WebSocket connection; one task receives, and another one sends and closes.

    `_ended` is why the connection has ended, None while it has not; `_end` is set at that moment.
    """

    def __init__(self, stream: anyio.abc.ByteStream, target: Target) -> None:
        self._stream = stream
        self._target = target
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._sending = anyio.Lock()  # pongs are sent by the task that receives
        self._payloads: deque[bytes] = deque()
        self._fragments: list[bytes] = []
        self._fragments_bytes = 0
        self._ended: TransportError | None = None
        self._end = anyio.Event()

    async def upgrade(self) -> None:
        """Perform the opening handshake; raises TransportError."""
        subprotocol = SUBPROTOCOL_JSON if self._target.text else SUBPROTOCOL_BINARY
        request = Request(self._target.authority, "/ws", subprotocols=[subprotocol])
        try:
            await self._stream.send(self._protocol.send(request))
            answer = await self._answer()
        except (*_LOST, RemoteProtocolError) as error:
            raise unopened(f"no answer to the upgrade: {failure(error)}") from None
        if answer.subprotocol != subprotocol:
            raise unopened(f"the server does not speak {subprotocol}")
        await self._take_events()

    async def _answer(self) -> AcceptConnection:
        """Return the acceptance of the upgrade; raises TransportError for anything else."""
        refusal: RejectConnection | None = None
        body = b""
        while True:
            received = await _received(self._stream)
            if not received and refusal is None:
                raise unopened("no answer to the upgrade: the server closed the connection")
            if received:
                self._protocol.receive_data(received)
            ended = not received
            # Return at the acceptance: the events after it are messages of the session, and stay
            # in `_protocol` for `_take_events`.
            for event in self._protocol.events():
                match event:
                    case AcceptConnection():
                        return event
                    case RejectConnection():
                        refusal = event
                        ended = ended or not event.has_body
                    case RejectData():
                        body += event.data
                        ended = ended or event.body_finished
            if refusal is not None and (ended or len(body) >= REASON_BYTES):
                said = body[:REASON_BYTES].decode(errors="replace").strip()
                status = f"the server answered HTTP {refusal.status_code}"
                raise unopened(status + (f": {said}" if said else ""))

    async def receive(self) -> bytes:
        """Return the next WebSocket message."""
        while not self._payloads:
            if self._ended is not None:
                raise self._ended
            try:
                received = await _received(self._stream)
            except _LOST as error:
                raise self._note_end(failure(error)) from None
            if not received:
                raise self._note_end("the connection was lost")
            self._target.heard()
            self._protocol.receive_data(received)
            await self._take_events()
        return self._payloads.popleft()

    async def _take_events(self) -> None:
        """Handle what has arrived. Messages before a close frame are still received."""
        for event in self._protocol.events():
            match event:
                case TextMessage() | BytesMessage():
                    self._take_message(event)
                case Ping():
                    await self._send(event.response())
                case CloseConnection():
                    await self._send(event.response())
                    self._note_end(event.reason or "the connection was lost", int(event.code))
            if self._ended is not None:
                return

    def _take_message(self, event: TextMessage | BytesMessage) -> None:
        """Assemble a message from its fragments, up to `CLIENT_PAYLOAD_BYTES_MAX`.

        wsproto bounds neither the number nor the total size of fragments.
        """
        part = event.data.encode() if isinstance(event.data, str) else bytes(event.data)
        self._fragments_bytes += len(part)
        if self._fragments_bytes > CLIENT_PAYLOAD_BYTES_MAX:
            self._note_end("the server sent a message that is too long", CLOSE_TOO_BIG)
            return
        self._fragments.append(part)
        if event.message_finished:
            self._payloads.append(b"".join(self._fragments))
            self._fragments, self._fragments_bytes = [], 0

    async def send(self, payload: bytes) -> None:
        """Send one WebSocket message: text for JSON, otherwise binary."""
        if self._ended is not None:
            raise self._ended
        message: Event = (
            TextMessage(payload.decode()) if self._target.text else BytesMessage(payload)
        )
        await self._send(message)

    async def close(self, code: int, reason: str) -> None:
        """Send the close frame, and wait for the answer, which the receiving task reads."""
        with anyio.move_on_after(CLIENT_CLOSE_TIMEOUT_S):
            await self._send(CloseConnection(code, reason))
            await self._end.wait()

    async def say_farewell(self) -> None:
        """Send a close frame if none was sent, even in a cancelled scope; its answer is not read.

        It tells the server at once that the client has left on purpose.
        """
        if self._protocol.state is not ConnectionState.OPEN or self._ended is not None:
            return
        with anyio.move_on_after(CLIENT_FAREWELL_S, shield=True):
            try:
                await self._send(CloseConnection(1000))
            except TransportError:
                return  # the server has gone already

    async def _send(self, event: Event) -> None:
        """Send a frame; raises TransportError.

        Once a close frame was sent or received, nothing is sent except the answer to the close
        frame of the server (section 5.5.1).
        """
        async with self._sending:
            answer = isinstance(event, CloseConnection)
            state = self._protocol.state
            if state is not ConnectionState.OPEN and not (
                answer and state is ConnectionState.REMOTE_CLOSING
            ):
                return
            try:
                await self._stream.send(self._protocol.send(event))
            except _LOST as error:
                raise self._note_end(failure(error)) from None

    def _note_end(self, reason: str, code: int = CLOSED_WITHOUT_HANDSHAKE) -> TransportError:
        """Note why the connection has ended, and return the error; the first reason counts."""
        if self._ended is None:
            self._ended = TransportError(code, reason)
            self._end.set()
        return self._ended


@asynccontextmanager
async def open_websocket(target: Target) -> AsyncIterator[Transport]:
    """Connect and upgrade. Raises TransportError if that is not possible."""
    stream = await open_stream(target)
    try:
        transport = WebSocketTransport(stream, target)
        await transport.upgrade()
        try:
            yield transport
        finally:
            await transport.say_farewell()
    finally:
        await drop(stream)


async def _received(stream: anyio.abc.ByteStream) -> bytes:
    """Wait for bytes and return them; empty at the end of the stream."""
    try:
        return await stream.receive(READ_BYTES)
    except anyio.EndOfStream:
        return b""
