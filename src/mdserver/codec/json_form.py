"""The JSON form of the protocol: one object, or an array of objects, in each text message.

Correct messages are decoded in one pass. Only if that fails are the objects of an array read one by
one, so that each mistake is answered by itself and the other commands are carried out.
"""

from collections.abc import Sequence

import msgspec

from mdserver.codec.encoding import message_event
from mdserver.codec.reading import (
    NOT_WELL_FORMED,
    CommandReader,
    EventReader,
    Sender,
    Unknown,
    ill_formed,
)
from mdserver.core.commands import AnyCommand, Ping, Publish, WireCommand
from mdserver.core.events import Delivery, MessageEvent, WireEvent
from mdserver.errors import RemoteProtocolError

_FORM = "JSON"
_encode = msgspec.json.Encoder().encode
_objects = msgspec.json.Decoder(list[msgspec.Raw])


class JsonCodec:
    """The server's side; `JSON` is the one instance that is needed."""

    text = True

    def __init__(self) -> None:
        self._fast = msgspec.json.Decoder(WireCommand | list[WireCommand])

    def commands(self, data: bytes, sender: Sender | None = None) -> Sequence[AnyCommand]:
        """Decode one message (section "JSON" of docs/protocol.md).

        Raises RemoteProtocolError (4100) for text that is not JSON, and for a top-level scalar.
        """
        try:
            decoded = self._fast.decode(data)
            commands: list[WireCommand] = decoded if type(decoded) is list else [decoded]
            for command in commands:
                if type(command) is Publish:
                    if (command.content is None) is (command.content_base64 is None):
                        return self._one_by_one(data, sender or Unknown())
                elif type(command) is Ping:
                    _echoable(command)
            return commands
        except msgspec.ValidationError:
            return self._one_by_one(data, sender or Unknown())
        except NOT_WELL_FORMED as error:
            raise ill_formed(error, _FORM) from None

    def lines(self, data: bytes) -> list[AnyCommand]:
        """Decode a body with an object or an array in each line; empty lines are skipped."""
        commands: list[AnyCommand] = []
        sender = Unknown()
        for line in data.split(b"\n"):
            if line and not line.isspace():
                commands += self.commands(line, sender)
        return commands

    def _one_by_one(self, data: bytes, sender: Sender) -> Sequence[AnyCommand]:
        start = data.lstrip(b" \t\r\n")[:1]
        if start not in (b"{", b"["):
            raise RemoteProtocolError("A message is an object or an array of objects.")
        try:
            parts = _objects.decode(data) if start == b"[" else [data]
            return _reader.read_all(parts, sender)
        except NOT_WELL_FORMED as error:
            raise ill_formed(error, _FORM) from None

    def event(self, event: WireEvent) -> bytes:
        """Return an event as one JSON object."""
        return _encode(event)

    def delivery(self, delivery: Delivery) -> bytes:
        """Return a message as one JSON object, which is made once for each delivery."""
        frame = delivery.json
        if frame is None:
            frame = delivery.json = _encode(message_event(delivery))
        return frame

    def join(self, frames: Sequence[bytes]) -> bytes:
        """Return one object as it is, several as an array."""
        return _join(frames)


class JsonClient:
    """A client's side. JSON keeps no state of a connection: subjects are always spelled."""

    text = True

    def __init__(self) -> None:
        self._fast = msgspec.json.Decoder(WireEvent | MessageEvent | list[WireEvent | MessageEvent])
        self._reader = EventReader(msgspec.json.Decoder, WireEvent | MessageEvent)

    def command(self, command: WireCommand) -> bytes:
        """Return a command as one JSON object."""
        return _encode(command)

    def join(self, frames: Sequence[bytes]) -> bytes:
        """Return one object as it is, several as an array."""
        return _join(frames)

    def events(self, data: bytes) -> list[WireEvent | MessageEvent]:
        """Decode one message; events of an unknown `op`, from a later version, are left out.

        Raises RemoteProtocolError for anything else that is no event.
        """
        try:
            decoded = self._fast.decode(data)
        except msgspec.ValidationError:
            decoded = self._one_by_one(data)
        except NOT_WELL_FORMED as error:
            raise ill_formed(error, _FORM) from None
        events = decoded if type(decoded) is list else [decoded]
        for event in events:
            if type(event) is MessageEvent and (
                event.content is None and event.content_base64 is None
            ):
                raise RemoteProtocolError(f"A message of {event.subject} came without content.")
        return events

    def _one_by_one(self, data: bytes) -> list[WireEvent | MessageEvent]:
        try:
            parts = _objects.decode(data) if data.lstrip(b" \t\r\n")[:1] == b"[" else [data]
            return [event for part in parts for event in self._reader.read(part)]
        except NOT_WELL_FORMED as error:
            raise ill_formed(error, _FORM) from None


def _echoable(command: Ping) -> Ping:
    """Return a ping whose `t` can be sent back as it came. Raises UnicodeDecodeError.

    msgspec does not check the strings within raw values.
    """
    bytes(command.t).decode()
    return command


def _join(frames: Sequence[bytes]) -> bytes:
    if len(frames) == 1:
        return frames[0]
    return b"[" + b",".join(frames) + b"]"


_reader = CommandReader(msgspec.json.Decoder, _echoable)
JSON = JsonCodec()
