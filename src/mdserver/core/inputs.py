"""What `Node.step` takes. Frozen values, built O(1) times a publish.

A session is named by an integer that the driver counts; a timer by a tuple that the core chose.
"""

from collections.abc import Sequence

from attrs import frozen

from mdserver.core.commands import AnyCommand
from mdserver.core.entitlement import Network
from mdserver.core.events import StatusName

TimerKey = tuple[str | int, ...]


@frozen
class Opened:
    """A client connected. `address` is its IP address as text, without the port.

    With an `idempotency_key`, each `number` of this session's publications names one publication:
    what comes again under the same key and number, in whatever session, is a repeat.
    """

    session: int
    address: str
    transport: str = "websocket"
    secure: bool = False
    idempotency_key: str = ""


@frozen
class Received:
    """What one read of a client's connection brought, in order."""

    session: int
    commands: Sequence[AnyCommand]


@frozen
class Closed:
    """A client's connection ended, by whichever side."""

    session: int
    reason: str


@frozen
class Writability:
    """The socket of a session's client takes no more for now, or all that waited was sent."""

    session: int
    writable: bool


@frozen
class TimerDue:
    """A timer that the core set is due."""

    timer: TimerKey


@frozen
class RulesChanged:
    """The configuration was read again: what a running member takes of it."""

    allow_token: str
    publish_networks: tuple[Network, ...] | None


@frozen
class Trouble:
    """The journal cannot be written, for this reason, or it can again (None).

    `refusing`: publications that want a place in a log are refused meanwhile. `withdrawn`: nothing
    that was not synced yet is on the disk, nor will be.
    """

    reason: str | None
    refusing: bool
    withdrawn: bool = False


@frozen
class Grants:
    """What a token allows: patterns of subjects, and until when (ns since the Unix epoch)."""

    subscribe: tuple[str, ...] = ()
    publish: tuple[str, ...] = ()
    expires: int | None = None
    user: str | None = None


@frozen
class Denied:
    """Why something is not allowed; `status` where it is about a token.

    `busy`: nobody decided, and the same may be allowed when it is tried again.
    """

    reason: str
    status: StatusName | None = None
    busy: bool = False


Verdict = Grants | Denied | None


@frozen
class Authorized:
    """The answer to an `outputs.Authorize`: grants for `connect` and `token`, None for yes."""

    request: int
    verdict: Verdict
