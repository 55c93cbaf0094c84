"""Answers that do not end: server-sent events and HTTP streams, as forms of a session's frames.

Every part is one chunk of HTTP/1.1 (RFC 9112, section 7.1) that holds whole events. A stream of
JSON has one event a line; a stream of frames needs nothing between them; server-sent events are
those of the HTML standard (section 9.2), whose `id` says how far the client got.
"""

import base64
import binascii
from collections.abc import Sequence

import msgspec
from attrs import frozen

from mdserver.codec.binary_form import BINARY
from mdserver.codec.encoding import ServerCodec
from mdserver.codec.frames import SKIPPABLE, frame
from mdserver.codec.http import Headers, RequestRefusedError
from mdserver.codec.json_form import JSON
from mdserver.core.commands import AnyCommand, PositionAfter
from mdserver.core.events import Closed, Connected, Delivery, Reset, WireEvent
from mdserver.errors import LocalProtocolError
from mdserver.limits import SSE_POSITIONS_MAX

NDJSON_TYPE = "application/x-ndjson"
FRAMES_TYPE = "application/vnd.mdserver.v1"
SSE_TYPE = "text/event-stream"
STREAM_PATH = "/stream"


def stream_headers(media_type: str) -> Headers:
    """The head of an answer without end: nothing on the way may keep or hold it back."""
    return (
        (b"content-type", media_type.encode()),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
    )


END = b"0\r\n\r\n"
_NOTHING = frame(SKIPPABLE | 0x7F, b"")


def chunk(part: bytes) -> bytes:
    """A part of the answer as one chunk; the empty one would end it."""
    return b"%x\r\n%b\r\n" % (len(part), part)


class StreamForm:
    """An HTTP stream: the frames of a codec, in chunks. `path` is what `connected` tells."""

    answers = False

    def __init__(self, media_type: str, path: str) -> None:
        codec: ServerCodec = BINARY if media_type == FRAMES_TYPE else JSON
        self._codec = codec
        self.delivery = codec.delivery
        self.aliased = not codec.text
        self.name = "stream json" if codec.text else "stream binary"
        self._path = path
        self._after = b"\n" if codec.text else b""

    def event(self, event: WireEvent) -> bytes:
        """An event as one frame."""
        if isinstance(event, Connected):
            event = msgspec.structs.replace(event, path=self._path)
        return self._codec.event(event)

    def alias_frame(self, alias: int) -> bytes:
        """Only frames have aliases."""
        return BINARY.alias_frame(alias)

    def wire(self, frames: Sequence[bytes]) -> bytes:
        """All frames in one chunk."""
        after = self._after
        return chunk(after.join(frames) + after)

    def alive(self) -> bytes:
        """Something that every client skips: an empty line, or a frame of a type unknown to all."""
        return chunk(self._after or _NOTHING)

    def goodbye(self, code: int, reason: str) -> bytes:
        """The event `closed`, and the end of the answer."""
        return self.wire([self.event(Closed(code=code, reason=reason))]) + END


class SseForm:
    """Server-sent events of one session: it remembers how far the client got.

    The `id` of an event names the last position of each of the newest SSE_POSITIONS_MAX subjects,
    so that a client that comes back to any member gets what it missed of all of them.
    """

    name = "sse"
    answers = False
    aliased = False

    def __init__(self) -> None:
        self._history = ""
        self._positions: dict[str, tuple[int, int]] = {}

    def delivery(self, delivery: Delivery) -> bytes:
        """A message, with the id that recovers from it."""
        entry = delivery.entry
        lines = b"event: message\ndata: " + JSON.delivery(delivery) + b"\n"
        if not entry.seq:
            return lines + b"\n"
        positions = self._positions
        subject = entry.publication.subject
        positions.pop(subject, None)
        positions[subject] = (entry.epoch, entry.seq)
        if len(positions) > SSE_POSITIONS_MAX:
            del positions[next(iter(positions))]
        return lines + b"id: " + event_id(self._history, positions) + b"\n\n"

    def event(self, event: WireEvent) -> bytes:
        """Any other event; its name is its `op`."""
        if isinstance(event, Connected | Reset):
            self._history = event.history
            self._positions.clear()
        name = str(event.__struct_config__.tag).encode()
        return b"event: " + name + b"\ndata: " + JSON.event(event) + b"\n\n"

    def alias_frame(self, alias: int) -> bytes:
        """There are none in JSON."""
        raise LocalProtocolError(f"alias {alias} of a form without aliases")

    def wire(self, frames: Sequence[bytes]) -> bytes:
        """All events in one chunk."""
        return chunk(b"".join(frames))

    def alive(self) -> bytes:
        """A comment."""
        return chunk(b":\n\n")

    def goodbye(self, code: int, reason: str) -> bytes:
        """The event `closed`, and the end of the answer: a browser then comes back by itself."""
        return chunk(self.event(Closed(code=code, reason=reason))) + END


class _EventId(msgspec.Struct, frozen=True, array_like=True):
    history: str
    positions: dict[str, tuple[int, int]]


_ids = msgspec.msgpack.Decoder(_EventId)


def event_id(history: str, positions: dict[str, tuple[int, int]]) -> bytes:
    """Opaque to clients, which give it back as `Last-Event-ID`."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(_EventId(history, positions)))


def read_event_id(text: str) -> dict[str, PositionAfter]:
    """The positions of an id; RequestRefusedError (400) where this server gave no such id."""
    try:
        known = _ids.decode(base64.b64decode(text, b"-_", validate=True))
    except (msgspec.MsgspecError, binascii.Error, UnicodeError, ValueError):
        raise RequestRefusedError(400, "Last-Event-ID is not an id that a server gave.") from None
    return {
        subject: PositionAfter(known.history, epoch, seq)
        for subject, (epoch, seq) in known.positions.items()
    }


@frozen
class StreamAnswer:
    """An answer that is a session: `commands` are its first ones.

    `secret`: further commands that are posted to this part of a path belong to the session.
    """

    headers: Headers
    form: StreamForm | SseForm
    transport: str
    commands: Sequence[AnyCommand]
    secret: str | None = None
