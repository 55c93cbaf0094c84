"""The binary form of the protocol: frames of commands and events in MessagePack, and messages.

docs/protocol.md, "Binary", is the description for other implementations. The keys of commands and
events are those of the JSON form. A message is by far the most frequent event, so it has payloads
of its own: UPDATE_TEXT and UPDATE_BYTES for a plain one, MESSAGE for one with any other property.
None of them depends on the connection: every subscriber gets the same bytes.
"""

from collections.abc import Sequence

import msgspec

from mdserver import limits
from mdserver.codec.aliases import Alias, AliasTable, read_alias
from mdserver.codec.frames import Frame, FrameReader, frame, read_frames, read_varint, varint
from mdserver.codec.message_payload import message_payload, read_message_payload, text_content
from mdserver.codec.reading import (
    NOT_WELL_FORMED,
    CommandReader,
    EventReader,
    Sender,
    Unknown,
    ill_formed,
)
from mdserver.core.commands import AnyCommand, Ping, WireCommand
from mdserver.core.events import Delivery, MessageEvent, WireEvent
from mdserver.core.message import MessageType, Qos
from mdserver.errors import RemoteProtocolError

COMMAND = 0x01
EVENT = 0x02
ALIAS = 0x03
UPDATE_TEXT = 0x04
UPDATE_BYTES = 0x05
MESSAGE = 0x06
FROM_CLIENTS = frozenset((COMMAND,))
FROM_SERVERS = frozenset((EVENT, ALIAS, UPDATE_TEXT, UPDATE_BYTES, MESSAGE))

# Looking up a member of an enum takes CPython 3.11 as long as a call.
_UPDATE, _GUARANTEED = MessageType.UPDATE, Qos.GUARANTEED
_FORM = "MessagePack"
_NIL = msgspec.Raw(b"\xc0")
_encode = msgspec.msgpack.Encoder().encode


class BinaryCodec:
    """The server's side, with the aliases of one server; a process needs only `BINARY`.

    `delivery` sets `delivery.alias`. If that is not 0, `alias_frame(delivery.alias)` has to go to
    each connection before the first frame that uses it. Call `delivery` for each sending and do not
    keep frames: an old one may use an alias number that stands for another subject by now.
    """

    text = False

    def __init__(self, aliases_max: int = limits.SUBJECTS_MAX) -> None:
        self._aliases = AliasTable(aliases_max)
        self._reader = CommandReader(msgspec.msgpack.Decoder, _echoable)

    def commands(self, data: bytes, sender: Sender | None = None) -> Sequence[AnyCommand]:
        """Decode the frames of one message. Raises RemoteProtocolError if they are malformed."""
        return self._read([payload for _, payload in read_frames(data, FROM_CLIENTS)], sender)

    def frames(self, frames: Sequence[Frame], sender: Sender | None = None) -> Sequence[AnyCommand]:
        """Decode frames that a `FrameReader(FROM_CLIENTS)` took from a stream."""
        return self._read([payload for _, payload in frames], sender)

    def _read(self, parts: Sequence[bytes], sender: Sender | None) -> Sequence[AnyCommand]:
        try:
            return self._reader.read_all(parts, sender or Unknown())
        except NOT_WELL_FORMED as error:
            raise ill_formed(error, _FORM) from None

    def event(self, event: WireEvent) -> bytes:
        """Return an event as one frame."""
        return frame(EVENT, _encode(event))

    def alias_frame(self, alias: int) -> bytes:
        """Return the frame that tells a client what `delivery.alias` stands for.

        Like a frame of `delivery` it is not to be kept.
        """
        return frame(ALIAS, self._aliases.payload(alias))

    def delivery(self, delivery: Delivery) -> bytes:
        """Return a message as one frame, made once for each delivery, or again for a new alias."""
        encoded = delivery.binary
        if encoded is not None and (not delivery.alias or self._aliases.holds(delivery.alias)):
            return encoded
        encoded = delivery.binary = self._message(delivery)
        return encoded

    def _message(self, delivery: Delivery) -> bytes:
        entry = delivery.entry
        publication = entry.publication
        # Only live messages make or change aliases. Others have old positions, and one of an old
        # epoch would have the alias of everybody agreed anew.
        if delivery.type is not _UPDATE:
            agreed = self._aliases.find(publication.subject, delivery.match)
        else:
            agreed = self._aliases.agree(
                publication.subject, delivery.match, entry.epoch, entry.seq
            )
            if entry.seq >= agreed.base and entry.epoch == agreed.epoch and _is_plain(delivery):
                kind = UPDATE_TEXT if publication.text else UPDATE_BYTES
                ahead = varint(entry.seq - agreed.base)
                delivery.alias = agreed.key
                return frame(kind, agreed.wire + ahead + publication.content)
        delivery.alias = 0 if agreed is None else agreed.key
        return frame(MESSAGE, message_payload(delivery, None if agreed is None else agreed.wire))

    def join(self, frames: Sequence[bytes]) -> bytes:
        """Return the frames one after the other: each says where it ends."""
        return b"".join(frames)


class BinaryClient:
    """A client's side, with the aliases that were agreed on one connection."""

    text = False

    def __init__(self) -> None:
        self._aliases: dict[int, Alias] = {}
        self._reader = EventReader(msgspec.msgpack.Decoder, WireEvent)
        self._stream = FrameReader(FROM_SERVERS, limits.CLIENT_PAYLOAD_BYTES_MAX)

    def command(self, command: WireCommand) -> bytes:
        """Return a command as one frame."""
        return frame(COMMAND, _encode(command))

    def join(self, frames: Sequence[bytes]) -> bytes:
        """Return the frames one after the other: each says where it ends."""
        return b"".join(frames)

    def events(self, data: bytes) -> list[WireEvent | MessageEvent]:
        """Decode the frames of one message. Raises RemoteProtocolError if they are malformed."""
        return self._events(read_frames(data, FROM_SERVERS))

    def stream(self, data: bytes) -> list[WireEvent | MessageEvent]:
        """Decode the complete frames of an HTTP stream, which comes in any pieces."""
        return self._events(self._stream.feed(data))

    def _events(self, frames: Sequence[Frame]) -> list[WireEvent | MessageEvent]:
        events: list[WireEvent | MessageEvent] = []
        try:
            for kind, payload in frames:
                if kind in (UPDATE_TEXT, UPDATE_BYTES):
                    events.append(self._update(kind, payload))
                elif kind == MESSAGE:
                    events.append(read_message_payload(payload, self._alias))
                elif kind == ALIAS:
                    number, alias = read_alias(payload)
                    self._aliases[number] = alias
                else:
                    events += self._reader.read(payload)
        except NOT_WELL_FORMED as error:
            raise ill_formed(error, _FORM) from None
        return events

    def _update(self, kind: int, payload: bytes) -> MessageEvent:
        number, at = read_varint(payload, 0)
        ahead, at = read_varint(payload, at)
        alias = self._alias(number)
        content = payload[at:]
        text = kind == UPDATE_TEXT
        return MessageEvent(
            subject=alias.subject,
            type=MessageType.UPDATE,
            epoch=alias.epoch,
            seq=alias.base + ahead,
            content=text_content(content) if text else None,
            content_base64=None if text else content,
            match=alias.match,
        )

    def _alias(self, number: int) -> Alias:
        alias = self._aliases.get(number)
        if alias is None:
            raise RemoteProtocolError(f"A message names alias {number}, which was never agreed.")
        return alias


def _is_plain(delivery: Delivery) -> bool:
    """Return whether content and position are all that a message has to express."""
    publication = delivery.entry.publication
    return (
        publication.qos is _GUARANTEED
        and publication.retained
        and publication.fields is None
        and publication.closure is None
        and not publication.compressed
        and publication.reply_subject is None
        and delivery.prev is None
    )


def _echoable(command: Ping) -> Ping:
    """Return a ping whose `t` is MessagePack: the default in the command table is JSON's null."""
    if bytes(command.t) == b"null":
        return Ping(t=_NIL, id=command.id)
    return command


BINARY = BinaryCodec()
