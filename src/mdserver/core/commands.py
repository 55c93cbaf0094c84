"""The commands that clients send: a class for each, the table of both encodings.

docs/protocol.md describes them. msgspec decodes them straight from JSON and from MessagePack; the
class attributes are the keys on the wire. `Malformed` takes the place of a command that could not
be understood, so that its error is sent in order.
"""

from typing import Annotated

import msgspec

from mdserver import limits
from mdserver.core.message import MessageType, Position, Qos

# The constraints that decoders check. Integers stay within 64 bits, because MessagePack, which
# carries them between members, has no larger ones; lengths of strings count characters here.
INTEGER_MAX = 2**63 - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]
Number = Annotated[int, msgspec.Meta(ge=1, le=INTEGER_MAX)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Token = Annotated[str, msgspec.Meta(max_length=limits.TOKEN_BYTES_MAX)]
Name = Annotated[str, msgspec.Meta(max_length=limits.PUBLISHER_BYTES_MAX)]
Publisher = Annotated[str, msgspec.Meta(max_length=limits.PUBLISHER_IDENTITY_CHARS_MAX)]
PublisherKey = Annotated[str, msgspec.Meta(max_length=limits.PUBLISHER_KEY_CHARS_MAX)]
Closure = Annotated[str, msgspec.Meta(max_length=limits.CLOSURE_BYTES_MAX)]
Fields = Annotated[dict[str, str], msgspec.Meta(max_length=limits.FIELDS_MAX)]
Subjects = Annotated[list[str], msgspec.Meta(max_length=limits.SUBJECTS_PER_COMMAND_MAX)]

CommandId = str | int | None
WireId = (
    Annotated[str, msgspec.Meta(max_length=limits.CLOSURE_BYTES_MAX)]
    | Annotated[int, msgspec.Meta(ge=-INTEGER_MAX, le=INTEGER_MAX)]
    | None
)


class Command(msgspec.Struct, frozen=True, tag_field="op", kw_only=True, omit_defaults=True):
    """Base of all commands. Errors and results about a command have its `id`."""

    id: WireId = None


class Connect(Command, frozen=True, tag="connect"):
    """The first command, if sent at all. `external_token` has a meaning to the application only.

    `publisher` is a name, or with `publisher_key` an identity that an earlier `connected` gave.
    """

    token: Token | None = None
    client: Name | None = None
    publisher: Publisher | None = None
    publisher_key: PublisherKey | None = None
    external_token: Token | None = None
    keepalive_ms: Milliseconds | None = None


class PositionAfter(msgspec.Struct, frozen=True):
    """A position under a history id, after which messages are to be recovered."""

    history: str
    epoch: Count
    seq: Count


class Subscribe(Command, frozen=True, tag="subscribe"):
    """Subscribe to subjects and patterns."""

    subjects: Subjects
    history: Count = 0
    conflation_ms: Milliseconds = 0
    positions: dict[str, PositionAfter] | None = None
    replay: bool = False


class Resume(Subscribe, frozen=True, tag="resume", kw_only=True):
    """Subscribe, and recover what came after these places in the logs of the subject groups.

    Never on the wire: made by the HTTP paths. `places` are those of the history id `known`; they
    are for the subjects that come by a pattern and have no position of their own.
    """

    known: str
    places: list[int] | None


class Unsubscribe(Command, frozen=True, tag="unsubscribe"):
    """End subscriptions."""

    subjects: Subjects


class Publish(Command, frozen=True, tag="publish"):
    """Publish one message; exactly one of `content` and `content_base64` is given."""

    subject: str
    content: str | None = None
    content_base64: bytes | None = None
    fields: Fields | None = None
    closure: Closure | None = None
    retained: bool = True
    qos: Qos = Qos.GUARANTEED
    compressed: bool = False
    reply_subject: str | None = None
    number: Number | None = None


class RenewToken(Command, frozen=True, tag="token"):
    """Renew the entitlement token in band."""

    token: Token


class Ping(Command, frozen=True, tag="ping"):
    """Answered by `Pong` with the same `t`.

    With `caught_up` the answer comes after the catch-up of all earlier subscriptions.
    """

    t: msgspec.Raw = msgspec.Raw(b"null")
    caught_up: bool = False


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A range of messages without a hole that a client received of a subject in one epoch.

    `session` names one subscription of one client, even across its connections; `via` is the member
    that it was connected to. The range has `n` messages, of which `dups` came more than once and
    `reordered` too late; `conflated` were left out as the client asked. `crc_sum` adds up their
    `checksum`, `crc_at` the same times the distance from `seq_lo`: together they tell which message
    was altered, if one was. `fields_sum` and `fields_at` are the same for `fields_checksum`, and
    None if the client says nothing of fields. `opened_ms` and `closed_ms` are how long ago the
    range began and ended.
    """

    session: Name
    history: Name
    subject: Annotated[str, msgspec.Meta(max_length=limits.SUBJECT_BYTES_MAX)]
    epoch: Count
    seq_lo: Count
    seq_hi: Count
    n: Count
    crc_sum: Count
    crc_at: Count
    via: Name
    opened_ms: Count
    closed_ms: Count
    dups: Count = 0
    reordered: Count = 0
    conflated: Count = 0
    fields_sum: Count | None = None
    fields_at: Count | None = None


class Receipts(Command, frozen=True, tag="receipts"):
    """Receipts of the client, for the journal. Answered only if something is wrong with them."""

    receipts: Annotated[list[Receipt], msgspec.Meta(max_length=limits.RECEIPTS_PER_COMMAND_MAX)]


class Malformed(msgspec.Struct, frozen=True):
    """Stands for a command that could not be understood. Never on the wire: made by the codec."""

    code: str
    reason: str
    id: CommandId = None


class Fetch(msgspec.Struct, frozen=True, kw_only=True):
    """Read a subject once. Never on the wire of a session: made by the HTTP paths.

    With `history` it asks for the last n cached messages, with `after` for those after a position,
    with neither for the snapshot. Answered by `events.Fetched`.
    """

    subject: str
    history: int | None = None
    after: Position | None = None


WireCommand = Connect | Subscribe | Unsubscribe | Publish | RenewToken | Ping | Receipts
AnyCommand = WireCommand | Malformed | Fetch

__all__ = [
    "AnyCommand",
    "Command",
    "CommandId",
    "Connect",
    "Fetch",
    "Malformed",
    "MessageType",
    "Ping",
    "PositionAfter",
    "Publish",
    "Receipt",
    "Receipts",
    "RenewToken",
    "Resume",
    "Subscribe",
    "Unsubscribe",
    "WireCommand",
]
