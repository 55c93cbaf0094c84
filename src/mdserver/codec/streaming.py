"""Answers without end: server-sent events and HTTP streams, as forms of a session's frames.

Every part is one chunk of HTTP/1.1 (RFC 9112, section 7.1) that holds whole events. A stream of
JSON has one event a line; a stream of frames needs nothing between them; server-sent events are
those of the HTML standard (section 9.2), whose `id` says how far the client got.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec
from attrs import frozen

from mdserver.codec.binary_form import BINARY
from mdserver.codec.encoding import ServerCodec
from mdserver.codec.frames import SKIPPABLE, frame
from mdserver.codec.http import Headers, RequestRefusedError
from mdserver.codec.json_form import JSON
from mdserver.core.commands import AnyCommand, Count, PositionAfter
from mdserver.core.events import (
    Connected,
    Delivery,
    Mark,
    Pong,
    Reset,
    StreamClosed,
    WireEvent,
)
from mdserver.core.message import Entry, MessageType
from mdserver.core.subjects import group_of
from mdserver.errors import LocalProtocolError
from mdserver.limits import SSE_PLACES_MAX, SSE_POSITIONS_BYTES_MAX, SSE_POSITIONS_MAX

NDJSON_TYPE = "application/x-ndjson"
FRAMES_TYPE = "application/vnd.mdserver.v1"
SSE_TYPE = "text/event-stream"
STREAM_PATH = "/stream"


def stream_headers(media_type: str) -> Headers:
    """Return the headers of an answer without end, which no proxy may store or buffer."""
    return (
        (b"content-type", media_type.encode()),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
    )


END = b"0\r\n\r\n"
_NOTHING = frame(SKIPPABLE | 0x7F, b"")


def chunk(part: bytes) -> bytes:
    """Return a part of the answer as one chunk; an empty part would end the answer."""
    return b"%x\r\n%b\r\n" % (len(part), part)


class StreamForm:
    """An HTTP stream: the frames of a codec, in chunks.

    `path` is where the client posts its commands, as `connected` tells it.
    """

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
        """Return an event as one frame."""
        if isinstance(event, Connected):
            event = msgspec.structs.replace(event, path=self._path)
        return self._codec.event(event)

    def alias_frame(self, alias: int) -> bytes:
        """Return the frame of an alias; only the binary form has any."""
        return BINARY.alias_frame(alias)

    def mark(self, mark: Mark) -> bytes:
        """Raise LocalProtocolError: only server-sent events name places."""
        raise LocalProtocolError(f"{mark} of a form without places")

    def conflated(self) -> None:
        """Do nothing: no frame depends on the order of places."""

    def wire(self, frames: Sequence[bytes]) -> bytes:
        """Return all frames in one chunk."""
        after = self._after
        return chunk(after.join(frames) + after)

    def alive(self) -> bytes:
        """Return bytes that every client skips: an empty line, or a frame of an unknown type."""
        return chunk(self._after or _NOTHING)

    def goodbye(self, code: int, reason: str) -> bytes:
        """Return the event `closed` and the end of the answer."""
        return self.wire([self.event(StreamClosed(code=code, reason=reason))]) + END


class EventStreamForm(StreamForm):
    """An HTTP stream as server-sent events, which some proxies pass on that keep others back.

    The data of an event is one JSON event, or in base64 whole binary frames.
    """

    def wire(self, frames: Sequence[bytes]) -> bytes:
        """Return all frames in one chunk."""
        parts = [base64.b64encode(b"".join(frames))] if self.aliased else frames
        return chunk(b"".join(b"data: %b\n\n" % part for part in parts))

    def alive(self) -> bytes:
        """Return a comment, which every client skips."""
        return chunk(b":\n\n")


class _Telling(bytes):
    """An event without its id, and what it adds to the knowledge of a client that received it.

    `entry` is that of a message with a position, and `live` whether it was delivered when it was
    published. `subscribed`: the catch-up of all subscriptions has been sent; `begun` is where those
    subjects stood that had nothing to bring. `history` is a new history id, `mark` a mark.
    """

    entry: Entry | None = None
    live: bool = False
    subscribed: bool = False
    begun: Mapping[str, tuple[int, int]] = {}
    history: str | None = None
    mark: Mark | None = None


class SseForm:
    """Server-sent events of one session, with ids that say how far the client got.

    A browser that lost its connection sends the last `id` that it received, and is to go on from
    there. So the `id` of an event is made when the event is sent, not before: it says what a client
    has that received this event, whatever still waits behind it.

    An id has the positions of the subjects that were subscribed to by name. For all subjects that
    come by patterns it has, instead of one position each, the place in the log of each subject
    group up to which the client has everything. While messages do not come in the order of these
    places (`core.marks`), it names the positions of subjects besides, of those SSE_POSITIONS_MAX
    that had a message last. Of any other the client receives again what came since the mark:
    nothing is lost, but some messages may come twice.

    `known` is the content of the id with which this client came. The answer to the ping that
    follows the subscription, and a mark, become an id without an event.
    """

    name = "sse"
    answers = False
    aliased = False

    def __init__(self, subjects: Sequence[str] = (), known: "EventId | None" = None) -> None:
        self._named = [subject for subject in subjects if "*" not in subject]
        self._history = "" if known is None else known.history
        self._positions: dict[str, tuple[int, int]] = {}
        self._others: dict[str, tuple[int, int]] = {}
        self._others_bytes = 0
        self._places = None if known is None or known.places is None else list(known.places)
        self._ordered = False
        for subject, position in () if known is None else known.positions.items():
            if subject in self._named:
                self._positions[subject] = position
            elif position[1]:
                self._name(subject, position)

    def delivery(self, delivery: Delivery) -> bytes:
        """Return a message, still without its id."""
        event = _Telling(b"event: message\ndata: " + JSON.delivery(delivery) + b"\n")
        if delivery.entry.seq:
            event.entry = delivery.entry
            event.live = delivery.type is MessageType.UPDATE
        return event

    def event(self, event: WireEvent) -> bytes:
        """Return any other event, named by its `op`, still without its id."""
        if isinstance(event, Pong):
            told = _Telling()
            told.subscribed = True
            told.begun = {s: (at.epoch, at.seq) for s, at in (event.positions or {}).items()}
            return told
        name = str(event.__struct_config__.tag).encode()
        told = _Telling(b"event: " + name + b"\ndata: " + JSON.event(event) + b"\n")
        if isinstance(event, Connected | Reset):
            told.history = event.history
        return told

    def mark(self, mark: Mark) -> bytes:
        """Return an id without an event."""
        told = _Telling()
        told.mark = mark
        return told

    def conflated(self) -> None:
        """Name positions in ids until the next mark: what waits is not in the order of places."""
        self._ordered = False

    def wire(self, frames: Sequence[bytes]) -> bytes:
        """Return all events in one chunk, with their ids; they are sent in this order."""
        return chunk(b"".join(self._with_id(frame) for frame in frames))

    def _with_id(self, event: bytes) -> bytes:
        """Note what the client knows with this event, and return the event with such an id."""
        assert isinstance(event, _Telling)
        if event.history is not None and event.history != self._history:
            self._history = event.history
            self._positions = dict.fromkeys(self._positions, _BEGINNING)
            self._forget_others()
            self._places = None
            self._ordered = False
        if event.entry is not None:
            self._move(event.entry, live=event.live)
        elif event.subscribed:
            begun = dict.fromkeys(self._named, _BEGINNING) | dict(event.begun)
            self._positions = begun | self._positions
        elif event.mark is not None:
            self._note(event.mark)
        else:
            return event + b"\n"
        positions = self._positions | self._others
        return event + b"id: " + event_id(self._history, positions, self._places) + b"\n\n"

    def _note(self, mark: Mark) -> None:
        self._ordered = mark.ordered
        if mark.places is not None and len(mark.places) <= SSE_PLACES_MAX:
            self._places = list(mark.places)
            self._forget_others()

    def _move(self, entry: Entry, *, live: bool) -> None:
        subject, position = entry.publication.subject, (entry.epoch, entry.seq)
        if subject in self._named:
            self._positions[subject] = position
        elif self._ordered and live and self._places is not None:
            self._places[group_of(subject, len(self._places))] = entry.place
        else:
            self._name(subject, position)

    def _name(self, subject: str, position: tuple[int, int]) -> None:
        """Name a subject's position, and drop those without a message for longest, if too many."""
        others = self._others
        if others.pop(subject, None) is None:
            self._others_bytes += len(subject.encode())
        others[subject] = position
        while len(others) > SSE_POSITIONS_MAX or self._others_bytes > SSE_POSITIONS_BYTES_MAX:
            oldest = next(iter(others))
            del others[oldest]
            self._others_bytes -= len(oldest.encode())

    def _forget_others(self) -> None:
        self._others.clear()
        self._others_bytes = 0

    def alias_frame(self, alias: int) -> bytes:
        """Raise LocalProtocolError: JSON has no aliases."""
        raise LocalProtocolError(f"alias {alias} of a form without aliases")

    def alive(self) -> bytes:
        """Return a comment, which every client skips."""
        return chunk(b":\n\n")

    def goodbye(self, code: int, reason: str) -> bytes:
        """Return the event `closed` and the end of the answer; a browser reconnects by itself."""
        return self.wire([self.event(StreamClosed(code=code, reason=reason))]) + END


class EventId(msgspec.Struct, frozen=True, array_like=True):
    """What a client has under a history id.

    `positions` are the last ones (epoch, seq) of subjects. `places` has, for each subject group,
    the place in its log up to which the client has everything that comes by its patterns.
    """

    history: str
    positions: dict[str, tuple[Count, Count]]
    places: Annotated[list[Count], msgspec.Meta(max_length=SSE_PLACES_MAX)] | None = None

    def after(self) -> dict[str, PositionAfter]:
        """Return the positions as a `subscribe` command takes them."""
        return {
            subject: PositionAfter(self.history, epoch, seq)
            for subject, (epoch, seq) in self.positions.items()
        }


_BEGINNING = (0, 0)
_ids = msgspec.msgpack.Decoder(EventId)


def event_id(
    history: str, positions: dict[str, tuple[int, int]], places: list[int] | None = None
) -> bytes:
    """Return the id of an event, opaque to clients, which send it as `Last-Event-ID`."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(EventId(history, positions, places)))


def read_event_id(text: str) -> EventId:
    """Return the content of an id. Raises RequestRefusedError (400) if it is not one."""
    try:
        return _ids.decode(base64.b64decode(text, b"-_", validate=True))
    except (msgspec.MsgspecError, binascii.Error, UnicodeError, ValueError):
        raise RequestRefusedError(400, "Last-Event-ID is not an id that a server gave.") from None


@frozen
class PartedAnswer:
    """A long answer, whose parts are made one by one as the client takes them.

    `held_bytes` is the memory that it keeps until it is sent.
    """

    status: int
    headers: Headers
    parts: Iterable[bytes]
    held_bytes: int


@frozen
class StreamAnswer:
    """An answer that is a session; `commands` are its first ones.

    `secret` is the part of a path to which the client posts further commands of the session.
    """

    headers: Headers
    form: StreamForm | SseForm
    transport: str
    commands: Sequence[AnyCommand]
    secret: str | None = None
