"""The outputs of `ClientCore`, which a driver carries out in order, and the values in them."""

import enum
from collections.abc import Mapping, Sequence

from attrs import Factory, field, frozen

from mdserver.client.core.schedule import ReconnectSettings
from mdserver.client.core.servers import ServerEndpoint
from mdserver.core import events
from mdserver.core.commands import PositionAfter
from mdserver.core.events import MessageEvent, MissingRange, StatusName
from mdserver.limits import CLIENT_OPEN_TIMEOUT_S, CLIENT_PUBLICATIONS_MAX


class Notification(enum.Enum):
    """The statuses of the client API; those that a server sends have the same name on the wire."""

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
    """A status. `info` is a sentence for people, if there is something to say."""

    status: Notification
    info: str | None = None
    subject: str | None = None
    closure: str | None = None
    position: PositionAfter | None = None
    missing: MissingRange | None = None


@frozen
class Numbering:
    """The state of a publisher's numbering: the last number taken in each subject group.

    `groups`: the number of subject groups of the cluster. `taken`: from the index of a group to its
    last number. `publisher`: the identity under which the server counts. `publisher_key`: the proof
    that it belongs to this client; keep it secret, because it lets its owner go on with the
    numbers.
    """

    groups: int = 0
    taken: Mapping[int, int] = Factory(dict)
    publisher: str | None = None
    publisher_key: str | None = field(default=None, repr=False)


@frozen
class ClientSettings:
    """The settings of a client.

    With a `publisher` publications are numbered and taken exactly once. It is a name, or, together
    with `publisher_key`, the identity that a server gave. If the server takes the name as it is,
    for the user of a token, it must be new for each run, because a run counts from 1, unless
    `numbering` says how far the earlier run came. Without a publisher (None) publications are
    repeated after a lost connection: they are taken at least once.
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
    """Connect to the server; answered by `opened`, or by `closed`, with the same attempt."""

    attempt: int
    server: ServerEndpoint
    secure: bool


@frozen
class Transmit:
    """Send one frame; consecutive frames may be joined into one message of the transport."""

    attempt: int
    frame: bytes


@frozen
class CloseTransport:
    """Close the connection of this attempt, or stop opening it.

    No answer is needed: what the transport reports later is ignored.
    """

    attempt: int
    code: int
    reason: str


@frozen
class SetTimer:
    """Call `due(timer, now)` at this time (ns); setting a timer again moves it."""

    timer: str
    at: int


@frozen
class CancelTimer:
    """Cancel a timer."""

    timer: str


@frozen
class Notify:
    """Hand a status to the application."""

    notice: Notice


@frozen
class DeliverMessages:
    """Deliver new messages to the application, in order; duplicates are dropped already.

    `repeated`: they were delivered before, and are for a subscription that joined since.
    """

    messages: Sequence[MessageEvent]
    repeated: bool = False


@frozen
class PublishResult:
    """The result of a publication; there is exactly one for each that `publish` took.

    `status` is PUBLISH_OK, PUBLISH_FAILED, PUBLISH_DENIED or MESSAGE_SIZE_LIMIT_EXCEEDED. `epoch`
    and `seq` are the position of the message; 0 if it has none. `duplicate` with epoch 0: it was
    taken earlier, but its position is forgotten. `certain`: for a failure, whether the publication
    certainly left no trace.
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
    """The server has handled the subscriptions of one command; refusals came before this."""

    subjects: Sequence[str]


@frozen
class Reported:
    """The server has handled everything that was sent before the ping with this mark."""

    mark: int


@frozen
class Refused:
    """Subjects that the server refused; they are not subscribed any more."""

    subjects: Sequence[str]
    reason: str


@frozen
class Connected:
    """A session is established, the first one or a later one."""

    event: events.Connected


@frozen
class Stopped:
    """The client does not reconnect until `connect`, or until it gets another token."""

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
