"""A message as an application sees it, and compressed content."""

import zlib
from collections.abc import Mapping

from attrs import Factory, frozen

from mdserver.core.events import MessageEvent
from mdserver.core.message import MessageType, Position, Qos
from mdserver.limits import CLIENT_INFLATED_BYTES_MAX


@frozen
class Message:
    """A message that a subscription received.

    `content` is text if it was published as text, otherwise bytes; compressed content is
    decompressed. `fields`: names and texts. `type`: SNAPSHOT, UPDATE, RECOVERED or HISTORICAL.
    `position`: epoch and seq; None for STANDARD messages. `closure`: a text of the publisher.
    `reply_subject`: where the publisher waits for a reply. `match`: the pattern that the message
    came through; None if the subject itself is subscribed.
    """

    subject: str
    content: str | bytes
    fields: Mapping[str, str] = Factory(dict)
    type: MessageType = MessageType.UPDATE
    position: Position | None = None
    qos: Qos = Qos.GUARANTEED
    retained: bool = True
    closure: str | None = None
    reply_subject: str | None = None
    compressed: bool = False
    match: str | None = None


def message_of(event: MessageEvent) -> Message:
    """Return the message of an event."""
    content: str | bytes
    if event.content is not None:
        content = event.content
    else:
        content = event.content_base64 or b""
        if event.compressed:
            content = inflated(content)
    return Message(
        event.subject,
        content,
        event.fields or {},
        event.type,
        Position(event.epoch, event.seq) if event.seq else None,
        event.qos,
        event.retained,
        event.closure,
        event.reply_subject,
        event.compressed,
        event.match,
    )


def deflated(content: str | bytes) -> bytes:
    """Return content as it is published with `compressed`: in the zlib format (RFC 1950)."""
    return zlib.compress(content.encode() if isinstance(content, str) else content)


def inflated(content: bytes) -> str | bytes:
    """Return compressed content as it was before: as text if it is UTF-8.

    Content that is not in the zlib format, or grows beyond `CLIENT_INFLATED_BYTES_MAX`, is returned
    unchanged: another client may compress in its own way.
    """
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(content, CLIENT_INFLATED_BYTES_MAX)
    except zlib.error:
        return content
    if not inflater.eof:
        return content
    try:
        return plain.decode()
    except UnicodeDecodeError:
        return plain
