"""The HTTP transport of the Python client, for networks that WebSocket cannot pass.

The answer to one request brings the events and does not end (docs/protocol.md, "HTTP streaming").
Further requests carry commands to the path that `connected` names, one after the other on a second
connection.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import anyio
import h11

from mdserver.client.errors import TransportError
from mdserver.client.transport import (
    CLOSED_WITHOUT_HANDSHAKE,
    READ_BYTES,
    REASON_BYTES,
    Stream,
    Target,
    Transport,
    drop,
    failure,
    open_stream,
    unopened,
)
from mdserver.codec.binary_form import BinaryClient
from mdserver.codec.encoding import ClientCodec
from mdserver.codec.frames import FrameReader, frame
from mdserver.codec.json_form import JsonClient
from mdserver.core.events import Connected
from mdserver.errors import RemoteProtocolError
from mdserver.limits import (
    CLIENT_PAYLOAD_BYTES_MAX,
    CLIENT_PONG_S,
    CLIENT_SILENCE_S,
    CLIENT_UPLOAD_BYTES_PER_S,
    CLOSE_TOO_BIG,
    HTTP_HEAD_BYTES_MAX,
)

PATH = "/stream"
_IDLE_REUSE_S = 2  # a connection idle for longer may just be closed by the server
_EVERY_TYPE = frozenset(range(256))


class StreamRequests:
    """Requests on one HTTP connection, one at a time; its methods raise TransportError.

    `last_used` is when the last part of an answer came, in seconds of the event loop's clock.
    """

    def __init__(self, target: Target, stream: Stream) -> None:
        self._target = target
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HTTP_HEAD_BYTES_MAX)
        self.last_used = anyio.current_time()

    @property
    def reusable(self) -> bool:
        """Whether another request may follow: the last answer has ended, and no side closes."""
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def post(self, path: str, body: bytes) -> int:
        """Send a request; return the status of its answer, whose body is still to be read."""
        if self.reusable:
            self._http.start_next_cycle()
        kind = "application/json" if self._target.text else "application/vnd.mdserver.v1"
        accept = "application/x-ndjson" if self._target.text else kind
        headers = [
            ("host", self._target.authority),
            ("content-type", kind),
            ("accept", accept),
            ("content-length", str(len(body))),
        ]
        try:
            request = h11.Request(method="POST", target=path, headers=headers)
            head = self._http.send(request) or b""
            content = self._http.send(h11.Data(data=body)) or b""
            end = self._http.send(h11.EndOfMessage()) or b""
        except h11.LocalProtocolError as error:
            raise TransportError(CLOSED_WITHOUT_HANDSHAKE, f"no HTTP: {error}") from None
        with _lost_unless_alive():
            await self._stream.send(head + content + end)
        while not isinstance(answer := await self._event(), h11.Response):
            pass  # informational responses (1xx) precede the final one
        return answer.status_code

    async def part(self) -> bytes | None:
        """Return the next part of the answer's body; None at its end."""
        event = await self._event()
        self.last_used = anyio.current_time()
        return bytes(event.data) if isinstance(event, h11.Data) else None

    async def reason(self) -> str:
        """Return the beginning of an answer that is a sentence."""
        text = b""
        while len(text) < REASON_BYTES and (part := await self.part()) is not None:
            text += part
        return text[:REASON_BYTES].decode(errors="replace").strip()

    async def close(self) -> None:
        """Close the connection."""
        await drop(self._stream)

    async def _event(self) -> h11.Event:
        """Wait for the next event of h11 and return it.

        A stream that ends where HTTP does not allow it is a lost connection. h11 reports it as an
        error of the server, like malformed HTTP, so the last bytes received tell the two apart.
        """
        received = b"not yet anything"
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                with _lost_unless_alive():
                    received = b""
                    with suppress(anyio.EndOfStream):
                        received = await self._stream.receive(READ_BYTES)
                self._http.receive_data(received)
        except h11.RemoteProtocolError as error:
            reason = f"no HTTP: {error}" if received else "the connection was lost"
            raise TransportError(CLOSED_WITHOUT_HANDSHAKE, reason) from None
        if isinstance(event, h11.ConnectionClosed):
            raise TransportError(CLOSED_WITHOUT_HANDSHAKE, "the connection was lost")
        assert isinstance(event, h11.Event)
        return event


class Lines:
    """Assembles the JSON lines of a stream; returns whole lines as one array."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, part: bytes) -> bytes:
        """Return the payload of all lines that are complete; empty if there is none.

        Raises TransportError if a line is too long.
        """
        *lines, self._rest = (self._rest + part).split(b"\n")
        if len(self._rest) > CLIENT_PAYLOAD_BYTES_MAX:
            raise TransportError(CLOSE_TOO_BIG, "a line of the stream is too long")
        lines = [line for line in lines if line.strip()]
        return b"[" + b",".join(lines) + b"]" if lines else b""


class Frames:
    """Assembles the frames of a stream; returns whole frames."""

    def __init__(self) -> None:
        self._reader = FrameReader(_EVERY_TYPE, CLIENT_PAYLOAD_BYTES_MAX)

    def feed(self, part: bytes) -> bytes:
        """Return all frames that are complete; empty if there is none.

        Raises TransportError if a frame breaks the protocol.
        """
        try:
            return b"".join(frame(kind, payload) for kind, payload in self._reader.feed(part))
        except RemoteProtocolError as error:
            raise TransportError(error.code, error.reason) from None


class StreamTransport:
    """One HTTP stream.

    The first payload that is sent opens the stream, so nothing is received before.
    """

    def __init__(self, target: Target, down: StreamRequests) -> None:
        self._target = target
        self._down = down
        self._up: StreamRequests | None = None
        self._parts: Lines | Frames = Lines() if target.text else Frames()
        self._open = anyio.Event()
        self._path: str | None = None

    async def receive(self) -> bytes:
        """Return the events that arrived together, as one payload."""
        await self._open.wait()
        while (part := await self._down.part()) is not None:
            self._target.heard()
            payload = self._parts.feed(part)
            if payload and self._path is None:
                self._path = self._find_path(payload)
            if payload:
                return payload
        raise TransportError(CLOSED_WITHOUT_HANDSHAKE, "the stream ended without `closed`")

    async def send(self, payload: bytes) -> None:
        """Send commands, and wait until the server has taken them."""
        if not self._open.is_set():
            status = await self._down.post(PATH, payload)
            if status != 200:
                raise unopened(f"the server answered HTTP {status}: {await self._down.reason()}")
            self._open.set()
            return
        assert self._path is not None, "nothing but `connect` is sent before `connected`"
        limit_s = CLIENT_SILENCE_S + CLIENT_PONG_S + len(payload) // CLIENT_UPLOAD_BYTES_PER_S
        # As long as events come, nothing else notices that commands do not get through.
        with anyio.move_on_after(limit_s):
            await self._give(self._path, payload)
            return
        failed = f"the server did not answer commands in {limit_s} s"
        raise TransportError(CLOSED_WITHOUT_HANDSHAKE, failed)

    async def _give(self, path: str, payload: bytes) -> None:
        """Post commands, and wait until the server has taken them."""
        up = await self._upward()
        status = await up.post(path, payload)
        reason = await up.reason()
        if status != 202:
            failed = f"the server answered HTTP {status} to commands: {reason}"
            raise TransportError(CLOSED_WITHOUT_HANDSHAKE, failed)

    async def close(self, *_: object) -> None:
        """Close both connections.

        HTTP has no closing handshake; the server notices that the connections have ended.
        """
        await self._down.close()
        if self._up is not None:
            await self._up.close()

    async def _upward(self) -> StreamRequests:
        """Return the connection for commands, a new one unless the last one can be used again."""
        if self._up is not None:
            idle_s = anyio.current_time() - self._up.last_used
            if idle_s > _IDLE_REUSE_S or not self._up.reusable:
                await self._up.close()
                self._up = None
        if self._up is None:
            self._up = StreamRequests(self._target, await open_stream(self._target))
        return self._up

    def _find_path(self, payload: bytes) -> str | None:
        """Return the path for commands from the event `connected`, or None if there is none."""
        codec: ClientCodec = JsonClient() if self._target.text else BinaryClient()
        try:
            first, *_ = codec.events(payload)
        except (RemoteProtocolError, ValueError):
            return None  # the core decodes the same payload, and reports the error
        return first.path if isinstance(first, Connected) else None


@asynccontextmanager
async def open_http_stream(target: Target) -> AsyncIterator[Transport]:
    """Connect; the first payload that is sent opens the stream itself.

    Raises TransportError.
    """
    transport = StreamTransport(target, StreamRequests(target, await open_stream(target)))
    try:
        yield transport
    finally:
        await transport.close()


@contextmanager
def _lost_unless_alive() -> Iterator[None]:
    """Raise errors of the stream as TransportError."""
    try:
        yield
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
        raise TransportError(CLOSED_WITHOUT_HANDSHAKE, failure(error)) from None
