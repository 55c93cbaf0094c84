"""The payload of a MESSAGE frame: a message with anything that a compact one cannot express.

It has flags, the subject (an alias, or spelled), epoch and seq unless it is STANDARD, then each
part that the flags announce, in the order of the flags, and then the content up to the end
(docs/protocol.md, "MESSAGE").
"""

from mdserver import limits
from mdserver.codec.aliases import Lookup
from mdserver.codec.frames import read_varint, varint
from mdserver.core.events import Delivery, MessageEvent
from mdserver.core.message import MessageType, Position, Qos
from mdserver.errors import RemoteProtocolError

_TYPES = (MessageType.UPDATE, MessageType.SNAPSHOT, MessageType.RECOVERED, MessageType.HISTORICAL)
_TYPE_NUMBERS = {kind: number for number, kind in enumerate(_TYPES)}

TEXT = 1 << 2
STANDARD = 1 << 3
NOT_RETAINED = 1 << 4
COMPRESSED = 1 << 5
ALIASED = 1 << 6
MATCH = 1 << 7
FIELDS = 1 << 8
CLOSURE = 1 << 9
REPLY_SUBJECT = 1 << 10
PREV = 1 << 11
_ALL_FLAGS = (1 << 12) - 1


def message_payload(delivery: Delivery, alias: bytes | None) -> bytes:
    """Encode a delivery; `alias`, as a varint, stands for both its subject and its match."""
    entry = delivery.entry
    publication = entry.publication
    flags = _TYPE_NUMBERS[delivery.type]
    flags |= TEXT if publication.text else 0
    flags |= 0 if publication.retained else NOT_RETAINED
    flags |= COMPRESSED if publication.compressed else 0
    parts = [b"", alias if alias is not None else _text(publication.subject)]
    if alias is not None:
        flags |= ALIASED
    if publication.qos is Qos.STANDARD:
        flags |= STANDARD
    else:
        parts += varint(entry.epoch), varint(entry.seq)
    if alias is None and delivery.match is not None:
        flags |= MATCH
        parts.append(_text(delivery.match))
    if publication.fields is not None:
        flags |= FIELDS
        parts.append(varint(len(publication.fields)))
        for name, value in publication.fields.items():
            parts += _text(name), _text(value)
    if publication.closure is not None:
        flags |= CLOSURE
        parts.append(_text(publication.closure))
    if publication.reply_subject is not None:
        flags |= REPLY_SUBJECT
        parts.append(_text(publication.reply_subject))
    if delivery.prev is not None:
        flags |= PREV
        parts += varint(delivery.prev.epoch), varint(delivery.prev.seq)
    parts[0] = varint(flags)
    parts.append(publication.content)
    return b"".join(parts)


def read_message_payload(payload: bytes, lookup: Lookup) -> MessageEvent:
    """Decode a MESSAGE payload. Raises RemoteProtocolError if it is malformed."""
    read = _Reader(payload)
    flags = read.number()
    if flags > _ALL_FLAGS:
        raise RemoteProtocolError(f"A message has flags {flags:#x}; version 1 has none of these.")
    match = None
    if flags & ALIASED:
        alias = lookup(read.number())
        subject, match = alias.subject, alias.match
    else:
        subject = read.text()
    standard = bool(flags & STANDARD)
    epoch, seq = (0, 0) if standard else (read.number(), read.number())
    if flags & MATCH:
        match = read.text()
    fields = read.fields() if flags & FIELDS else None
    closure = read.text() if flags & CLOSURE else None
    reply_subject = read.text() if flags & REPLY_SUBJECT else None
    prev = Position(read.number(), read.number()) if flags & PREV else None
    content = read.rest()
    return MessageEvent(
        subject=subject,
        type=_TYPES[flags & 3],
        epoch=epoch,
        seq=seq,
        content=text_content(content) if flags & TEXT else None,
        content_base64=None if flags & TEXT else content,
        fields=fields,
        qos=Qos.STANDARD if standard else Qos.GUARANTEED,
        retained=not flags & NOT_RETAINED,
        closure=closure,
        reply_subject=reply_subject,
        compressed=bool(flags & COMPRESSED),
        match=match,
        prev=prev,
    )


def text_content(content: bytes) -> str:
    """Return content that is marked as text. Raises RemoteProtocolError if it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("A message's text content is not valid UTF-8.") from None


def _text(text: str) -> bytes:
    encoded = text.encode()
    return varint(len(encoded)) + encoded


class _Reader:
    """Reads one part after the other, and checks each length against the bytes that are there."""

    __slots__ = ("_at", "_payload")

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    def number(self) -> int:
        value, self._at = read_varint(self._payload, self._at)
        return value

    def text(self) -> str:
        length = self.number()
        at = self._at
        if length > len(self._payload) - at:
            raise RemoteProtocolError(f"A string at byte {at} of a message is cut off.")
        self._at = at + length
        try:
            return self._payload[at : at + length].decode()
        except UnicodeDecodeError:
            raise RemoteProtocolError(
                f"A string at byte {at} of a message is not valid UTF-8."
            ) from None

    def fields(self) -> dict[str, str]:
        count = self.number()
        if count > limits.FIELDS_MAX:
            raise RemoteProtocolError(
                f"A message says it has {count} fields; at most {limits.FIELDS_MAX} are allowed."
            )
        return {self.text(): self.text() for _ in range(count)}

    def rest(self) -> bytes:
        return self._payload[self._at :]
