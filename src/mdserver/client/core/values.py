"""What `ClientCore` gives back, for a driver to carry out in order, and what it tells of."""

import enum
from collections.abc import Mapping, Sequence

from attrs import Factory, field, frozen

from mdserver.client.core.schedule import ReconnectSettings
from mdserver.client.core.servers import Server
from mdserver.core import events
from mdserver.core.commands import PositionAfter
from mdserver.core.events import MessageEvent, MissingRange, StatusName
from mdserver.limits import CLIENT_OPEN_TIMEOUT_S, CLIENT_PUBLICATIONS_MAX


class Notification(enum.Enum):
    """The statuses of the client API; those a server sends have the same name on the wire."""

    SERVER_UP = "NOTIFY_SERVER_UP"
    SERVER_DOWN = "NOTIFY_SERVER_DOWN"
    DATA_SYNC = "NOTIFY_DATA_SYNC"
    DATA_RESYNC = "NOTIFY_DATA_RESYNC"
    SUBSCRIBE_ALLOW = "NOTIFY_SUBSCRIBE_ALLOW"
    SUBSCRIBE_DENY = "NOTIFY_SUBSCRIBE_DENY"
    PUBLISH_OK = "NOTIFY_PUBLISH_OK"
    PUBLISH_FAILED = "NOTIFY_PUBLISH_FAILED"
    PUBLISH_DENIED = "NOTIFY_PUBLISH_DENIED"
    MESSAGE_SIZE_LIMIT_EXCEEDED = "NOTIFY_MESSAGE_SIZE_LIMIT_EXCEEDED"
    CONNECT_OK = "NOTIFY_CONNECT_OK"
    CONNECT_DENY = "NOTIFY_CONNECT_DENY"
    RECONNECT_RATE_EXCEEDED = "NOTIFY_RECONNECT_RATE_EXCEEDED"
    TOKEN_TO_EXPIRE = "NOTIFY_TOKEN_TO_EXPIRE"
    TOKEN_EXPIRED = "NOTIFY_TOKEN_EXPIRED"
    TOKEN_INVALID = "NOTIFY_TOKEN_INVALID"
    TOKEN_UPDATED = "NOTIFY_TOKEN_UPDATED"
    ERROR = "NOTIFY_ERROR"


@frozen
class Notice:
    """One status. `info` is a sentence where there is something to say."""

    status: Notification
    info: str | None = None
    subject: str | None = None
    closure: str | None = None
    position: PositionAfter | None = None
    missing: MissingRange | None = None


@frozen
class Numbering:
    """How far a publisher has come: of how many subject groups, the last number taken in each.

    `publisher` is the identity under which the server counts, `publisher_key` what proves that it
    is this client's: a secret, as it lets others go on with the numbers.
    """

    groups: int = 0
    taken: Mapping[int, int] = Factory(dict)
    publisher: str | None = None
    publisher_key: str | None = field(default=None, repr=False)


@frozen
class ClientSettings:
    """What a client is told at its start.

    With a `publisher` publications are numbered and taken exactly once. It is a name, or with
    `publisher_key` the identity that a server gave. Where the server takes the name as it is, for
    the user of a token, it must be new for each run, since a run counts from 1, unless `numbering`
    says how far the run came whose publications this one goes on with. None: publications are
    repeated after a lost connection, at least once.
    """

    client: str = "mdserver-python"
    publisher: str | None = None
    publisher_key: str | None = field(default=None, repr=False)
    numbering: Numbering | None = None
    token: str | None = None
    external_token: str | None = None
    keepalive_ms: int | None = None
    encryption: bool = False
    reconnect: ReconnectSettings = Factory(ReconnectSettings)
    open_timeout_s: float = CLIENT_OPEN_TIMEOUT_S
    publications_max: int = CLIENT_PUBLICATIONS_MAX


@frozen
class OpenTransport:
    """Connect to the server; answered by `opened` or `closed` with the same attempt."""

    attempt: int
    server: Server
    secure: bool


@frozen
class Transmit:
    """Send one frame; several in a row may be joined into one message of the transport."""

    attempt: int
    frame: bytes


@frozen
class CloseTransport:
    """Close the connection of this attempt, or stop opening it; nothing is answered."""

    attempt: int
    code: int
    reason: str


@frozen
class SetTimer:
    """Call `due(timer, now)` at this time (ns). Setting a timer again moves it."""

    timer: str
    at: int


@frozen
class CancelTimer:
    """Forget a timer."""

    timer: str


@frozen
class Notify:
    """A status for the application."""

    notice: Notice


@frozen
class DeliverMessages:
    """New messages for the application, in order, duplicates already dropped.

    `repeated`: they were delivered before, and are for a subscription that was made since.
    """

    messages: Sequence[MessageEvent]
    repeated: bool = False


@frozen
class PublishResult:
    """What became of a publication; exactly one for each that was taken by `publish`.

    `status` is PUBLISH_OK, PUBLISH_FAILED, PUBLISH_DENIED or MESSAGE_SIZE_LIMIT_EXCEEDED.
    `duplicate` with epoch 0: it is in, but its position is forgotten. `certain`: for a failure,
    whether the publication surely left no trace.
    """

    publication: int
    status: StatusName
    reason: str | None = None
    epoch: int = 0
    seq: int = 0
    duplicate: bool = False
    certain: bool = True


@frozen
class Published:
    """A publication has its result."""

    result: PublishResult


@frozen
class Subscribed:
    """The server has handled the subscriptions of one call; refusals came before this."""

    subjects: Sequence[str]


@frozen
class Reported:
    """The server has the receipts that were sent with this mark."""

    mark: int


@frozen
class Refused:
    """Subjects that are not subscribed: refused or invalid; the core has dropped them."""

    subjects: Sequence[str]
    reason: str


@frozen
class Connected:
    """A connection stands, the first one or another."""

    event: events.Connected


@frozen
class Stopped:
    """The client will not reconnect until it is told to connect, or gets another token."""

    code: int
    reason: str


Output = (
    OpenTransport
    | Transmit
    | CloseTransport
    | SetTimer
    | CancelTimer
    | Notify
    | DeliverMessages
    | Published
    | Subscribed
    | Reported
    | Refused
    | Connected
    | Stopped
)
