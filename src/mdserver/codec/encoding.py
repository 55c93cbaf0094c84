"""The interface of the two encodings, for the rest of the server and for clients.

`mdserver.codec.json_form` and `mdserver.codec.binary_form` implement both protocols below.
"""

from collections.abc import Sequence
from typing import Protocol

from mdserver.codec.reading import Sender
from mdserver.core.commands import AnyCommand, WireCommand
from mdserver.core.events import Delivery, MessageEvent, WireEvent


class ServerCodec(Protocol):
    """The server's side of one encoding; it keeps no state of a connection."""

    text: bool
    """Whether its WebSocket messages are text messages."""

    def commands(self, data: bytes, sender: Sender | None = None) -> Sequence[AnyCommand]:
        """Decode one WebSocket message, and count the mistakes of its sender.

        A command that cannot be understood becomes a `Malformed` in its place. Raises
        RemoteProtocolError if the whole message cannot be understood, or for too many mistakes.
        """

    def event(self, event: WireEvent) -> bytes:
        """Encode one event as one frame."""

    def delivery(self, delivery: Delivery) -> bytes:
        """Encode a message as one frame, once: the frame is kept in the delivery."""

    def join(self, frames: Sequence[bytes]) -> bytes:
        """Put several frames into the payload of one WebSocket message."""


class ClientCodec(Protocol):
    """A client's side of one encoding, with the state of one connection (subject aliases)."""

    text: bool

    def command(self, command: WireCommand) -> bytes:
        """Encode one command as one frame."""

    def join(self, frames: Sequence[bytes]) -> bytes:
        """Put several frames into the payload of one WebSocket message."""

    def events(self, data: bytes) -> list[WireEvent | MessageEvent]:
        """Decode one WebSocket message. Raises RemoteProtocolError if it is malformed."""


def message_event(delivery: Delivery) -> MessageEvent:
    """Return the `message` event of a delivery, with the keys of docs/protocol.md."""
    entry = delivery.entry
    publication = entry.publication
    text = publication.text
    # By position: names take half as long again, and this is for each delivery.
    return MessageEvent(
        publication.subject,
        delivery.type,
        entry.epoch,
        entry.seq,
        publication.content.decode() if text else None,
        None if text else publication.content,
        publication.fields,
        publication.qos,
        publication.retained,
        publication.closure,
        publication.reply_subject,
        publication.compressed,
        delivery.match,
        delivery.prev,
    )
