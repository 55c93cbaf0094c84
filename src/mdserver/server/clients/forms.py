"""The forms in which a session's frames go over the wire: an encoding and its envelope.

The forms of WebSocket have no state of a connection, so one object serves all sessions of its
encoding, and the bytes that it makes of the same frames are the same for all of them. That is what
makes a fan-out cheap: frames are encoded and joined once, and shared. A stream over HTTP has a form
of its own (`mdserver.codec.streaming`).
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from mdserver.codec.binary_form import BINARY
from mdserver.codec.encoding import ServerCodec
from mdserver.codec.json_form import JSON
from mdserver.codec.websocket import close_frame, frame_header, ping_frame
from mdserver.core.events import Delivery, Mark, WireEvent
from mdserver.errors import LocalProtocolError
from mdserver.limits import SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON, WEBSOCKET_MESSAGE_BYTES


class Form(Protocol):
    """The way in which the frames of an outbox travel."""

    name: str
    """Transport and encoding, for operators."""

    aliased: bool
    """Whether `alias_frame` has to go before a delivery's alias is used."""

    answers: bool
    """Whether a living client answers `alive`."""

    def delivery(self, delivery: Delivery) -> bytes:
        """Encode a message as one frame, which all sessions of the form share."""

    def event(self, event: WireEvent) -> bytes:
        """Encode an event as one frame."""

    def mark(self, mark: Mark) -> bytes:
        """Encode a mark as one frame; called only for forms that name places."""

    def conflated(self) -> None:
        """Note that waiting messages were conflated, which changes their order."""

    def alias_frame(self, alias: int) -> bytes:
        """Encode the introduction of an alias; called only if `aliased`."""

    def wire(self, frames: Sequence[bytes]) -> bytes:
        """Join frames under one header, as they go into a socket."""

    def alive(self) -> bytes:
        """Return bytes that a living client answers, or that at least keep its connection open."""

    def goodbye(self, code: int, reason: str) -> bytes:
        """Return the last bytes that a client is sent."""


class WebSocketForm:
    """WebSocket messages of one encoding (RFC 6455, section 5.2: servers do not mask)."""

    answers = True

    def __init__(self, codec: ServerCodec) -> None:
        self.codec = codec
        self.delivery = codec.delivery
        self.event = codec.event
        self._join = codec.join
        self._text = codec.text
        self.aliased = not codec.text
        self.name = "websocket json" if codec.text else "websocket binary"

    def mark(self, mark: Mark) -> bytes:
        """Raise LocalProtocolError: only server-sent events name places."""
        raise LocalProtocolError(f"{mark} of a form without places")

    def conflated(self) -> None:
        """Do nothing: no frame depends on the order."""

    def alias_frame(self, alias: int) -> bytes:
        """Encode an introduction in the binary form, the only one with aliases."""
        return BINARY.alias_frame(alias)

    def wire(self, frames: Sequence[bytes]) -> bytes:
        """Join frames in WebSocket messages, in one unless that would be long."""
        payload = frames[0] if len(frames) == 1 else self._join(frames)
        if len(payload) > WEBSOCKET_MESSAGE_BYTES and len(frames) > 1:
            return b"".join(map(self._message, portions(frames, WEBSOCKET_MESSAGE_BYTES)))
        return frame_header(len(payload), self._text) + payload

    def _message(self, frames: Sequence[bytes]) -> bytes:
        payload = frames[0] if len(frames) == 1 else self._join(frames)
        return frame_header(len(payload), self._text) + payload

    def alive(self) -> bytes:
        """Return a ping."""
        return ping_frame()

    def goodbye(self, code: int, reason: str) -> bytes:
        """Return a close frame."""
        return close_frame(code, reason)


def portions(frames: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    """Yield the frames in order, in runs of `size` bytes at most; a longer frame is alone.

    What joins n frames counts as well: n + 1 bytes as JSON, which is the most (`[a,b]`).
    """
    run: list[bytes] = []
    left = size - 1
    for frame in frames:
        if run and len(frame) + 1 > left:
            yield run
            run, left = [], size - 1
        run.append(frame)
        left -= len(frame) + 1
    yield run


WEBSOCKET_FORMS = {
    SUBPROTOCOL_JSON: WebSocketForm(JSON),
    SUBPROTOCOL_BINARY: WebSocketForm(BINARY),
}
