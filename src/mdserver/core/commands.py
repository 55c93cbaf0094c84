"""What clients send: one class a command, the table of both encodings (docs/protocol.md).

msgspec decodes these straight from JSON and from MessagePack; the class attributes are the keys of
the wire. `Malformed` stands in for a command that could not be understood, so that its error comes
in order.
"""

import msgspec

from mdserver.core.message import MessageType, Position, Qos

CommandId = str | int | None


class Command(msgspec.Struct, frozen=True, tag_field="op", kw_only=True):
    """Base of all commands. `id` comes back with errors and results about the command."""

    id: CommandId = None


class Connect(Command, frozen=True, tag="connect"):
    """First command, if sent at all."""

    token: str | None = None
    client: str | None = None
    publisher: str | None = None
    keepalive_ms: int | None = None


class PositionAfter(msgspec.Struct, frozen=True):
    """Recover what came after this position of that history id."""

    history: str
    epoch: int
    seq: int


class Subscribe(Command, frozen=True, tag="subscribe"):
    """Subscribe to subjects and patterns."""

    subjects: list[str]
    history: int = 0
    conflation_ms: int = 0
    positions: dict[str, PositionAfter] | None = None


class Unsubscribe(Command, frozen=True, tag="unsubscribe"):
    """End subscriptions."""

    subjects: list[str]


class Publish(Command, frozen=True, tag="publish"):
    """Publish one message; exactly one of `content` and `content_base64` is given."""

    subject: str
    content: str | None = None
    content_base64: bytes | None = None
    fields: dict[str, str] | None = None
    closure: str | None = None
    retained: bool = True
    qos: Qos = Qos.GUARANTEED
    compressed: bool = False
    reply_subject: str | None = None
    number: int | None = None


class RenewToken(Command, frozen=True, tag="token"):
    """Renew the entitlement token in band."""

    token: str


class Ping(Command, frozen=True, tag="ping"):
    """Answered by `Pong` with the same `t`."""

    t: msgspec.Raw = msgspec.Raw(b"null")


class Malformed(msgspec.Struct, frozen=True):
    """Something that was sent in place of a command. Never on the wire: made by the codec."""

    code: str
    reason: str
    id: CommandId = None


class Fetch(msgspec.Struct, frozen=True, kw_only=True):
    """Read a subject once. Never on the wire of a session: made by the HTTP paths.

    With `history` the last n cached messages, with `after` those after a position, with neither
    the snapshot. Answered by `events.Fetched`.
    """

    subject: str
    history: int | None = None
    after: Position | None = None


WireCommand = Connect | Subscribe | Unsubscribe | Publish | RenewToken | Ping
AnyCommand = WireCommand | Malformed | Fetch

__all__ = [
    "AnyCommand", "Command", "CommandId", "Connect", "Fetch", "Malformed", "MessageType", "Ping",
    "PositionAfter", "Publish", "RenewToken", "Subscribe", "Unsubscribe", "WireCommand",
]  # fmt: skip
