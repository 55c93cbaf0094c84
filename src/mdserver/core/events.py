"""The events that the server sends: a class for each, the table of both encodings.

docs/protocol.md describes them.
"""

import enum
from collections.abc import Sequence

import msgspec

from mdserver.core.commands import CommandId
from mdserver.core.message import Entry, MessageType, Position, Qos


class StatusName(enum.Enum):
    """The statuses of the client API, without their `NOTIFY_` prefix."""

    DATA_SYNC = "DATA_SYNC"
    DATA_RESYNC = "DATA_RESYNC"
    SUBSCRIBE_ALLOW = "SUBSCRIBE_ALLOW"
    SUBSCRIBE_DENY = "SUBSCRIBE_DENY"
    PUBLISH_OK = "PUBLISH_OK"
    PUBLISH_FAILED = "PUBLISH_FAILED"
    PUBLISH_DENIED = "PUBLISH_DENIED"
    MESSAGE_SIZE_LIMIT_EXCEEDED = "MESSAGE_SIZE_LIMIT_EXCEEDED"
    CONNECT_OK = "CONNECT_OK"
    CONNECT_DENY = "CONNECT_DENY"
    TOKEN_TO_EXPIRE = "TOKEN_TO_EXPIRE"
    TOKEN_EXPIRED = "TOKEN_EXPIRED"
    TOKEN_INVALID = "TOKEN_INVALID"
    TOKEN_UPDATED = "TOKEN_UPDATED"


class Event(msgspec.Struct, frozen=True, tag_field="op", kw_only=True, omit_defaults=True):
    """Base of all events but messages, which are `Delivery` below."""


class Connected(Event, frozen=True, tag="connected"):
    """The first event of a session that is admitted.

    `path` is where the client of an HTTP stream posts its commands. `publisher` is the identity
    under which the session's numbers are counted; `publisher_key` proves in a later session that it
    is the client's own.
    """

    session: str
    member: str
    version: int
    history: str
    groups: int
    keepalive_ms: int
    message_bytes_max: int
    publisher: str | None = None
    publisher_key: str | None = None
    path: str | None = None


class MissingRange(msgspec.Struct, frozen=True, rename={"first": "from", "last": "to"}):
    """A range of messages that cannot be recovered, both ends included."""

    first: "WirePosition"
    last: "WirePosition"


class WirePosition(msgspec.Struct, frozen=True):
    """A position as clients see it."""

    history: str
    epoch: int
    seq: int


class Status(Event, frozen=True, tag="status"):
    """A result or a notice; docs/protocol.md says which keys go with which status."""

    status: StatusName
    info: str | None = None
    subject: str | None = None
    reason: str | None = None
    closure: str | None = None
    id: CommandId = None
    epoch: int | None = None
    seq: int | None = None
    missing: MissingRange | None = None
    certain: bool | None = None
    duplicate: bool = False
    expected: int | None = None


class Reset(Event, frozen=True, tag="reset"):
    """The numbering of these subjects starts anew under another history id."""

    history: str
    subjects: list[str]


class Move(Event, frozen=True, tag="move"):
    """A request to connect to another member after the delay."""

    delay_ms: int
    reason: str
    servers: list[str] | None = None


class Error(Event, frozen=True, tag="error"):
    """A command that could not be understood; nothing else happened."""

    code: str
    reason: str
    id: CommandId = None


class Pong(Event, frozen=True, tag="pong"):
    """The answer to a ping.

    `positions`: subjects that were subscribed without a position since the last answer, and had
    nothing to bring -> where they stood then. What a client misses of them comes after that.
    """

    t: msgspec.Raw
    positions: dict[str, WirePosition] | None = None


class StreamClosed(Event, frozen=True, tag="closed"):
    """The last event of an HTTP stream; a WebSocket has the same in its close frame."""

    code: int
    reason: str


class MessageEvent(Event, frozen=True, tag="message"):
    """A message as a client decodes it; the server encodes the same keys from a `Delivery`."""

    subject: str
    type: MessageType
    epoch: int
    seq: int
    content: str | None = None
    content_base64: bytes | None = None
    fields: dict[str, str] | None = None
    qos: Qos = Qos.GUARANTEED
    retained: bool = True
    closure: str | None = None
    reply_subject: str | None = None
    compressed: bool = False
    match: str | None = None
    prev: Position | None = None


class Fetched(msgspec.Struct, frozen=True):
    """The answer to `commands.Fetch`. Never on the wire: for the HTTP paths.

    `missing` is given when the position asked for is older than the cache.
    """

    deliveries: list["Delivery"]
    missing: MissingRange | None = None


class Mark(msgspec.Struct, frozen=True):
    """The session received everything up to these places in the logs of the subject groups.

    Never on the wire: it is for forms that name places. With `ordered` the live messages after it
    come in the order of their places; otherwise, and if `places` is None, they do not
    (`core.marks`).
    """

    places: Sequence[int] | None
    ordered: bool = False


class Delivery(msgspec.Struct, eq=False, gc=False):
    """One message on its way to any number of sessions: the same object for all of them.

    The codec keeps the encoded frames in `json` and `binary`, so that each encoding is made once,
    for however many sessions (docs/design.md, "Fan-out"). `alias` is the key of the alias that the
    binary frame uses for the subject (0: none, the frame spells the subject). Nothing else changes.
    """

    entry: Entry
    type: MessageType
    match: str | None = None
    prev: Position | None = None
    json: bytes | None = None
    binary: bytes | None = None
    alias: int = 0


WireEvent = Connected | Status | Reset | Move | Error | Pong | StreamClosed
AnyEvent = WireEvent | Delivery | Fetched | Mark
