"""The inputs of `Node.step`: frozen values, of which a publication needs a constant number.

A session is named by an integer that the driver counts up, a timer by a tuple that the core chose.
"""

from collections.abc import Sequence

from attrs import frozen

from mdserver.core.commands import AnyCommand
from mdserver.core.entitlement import Network
from mdserver.core.events import StatusName
from mdserver.core.message import Publication

TimerKey = tuple[str | int, ...]


@frozen
class Opened:
    """A client connected. `address` is its IP address as text, without the port.

    With an `idempotency_key`, each `number` of this session's publications names one publication.
    Another one under the same key and number, in this session or another, is a repeat.
    """

    session: int
    address: str
    transport: str = "websocket"
    secure: bool = False
    idempotency_key: str = ""


@frozen
class Received:
    """The commands that one read of a client's connection brought, in order."""

    session: int
    commands: Sequence[AnyCommand]


@frozen
class Closed:
    """A client's connection ended; either side may have closed it."""

    session: int
    reason: str


@frozen
class Writability:
    """A session's socket takes no more bytes for now, or everything that waited was sent."""

    session: int
    writable: bool


@frozen
class TimerDue:
    """A timer that the core set is due."""

    timer: TimerKey


@frozen
class RulesChanged:
    """The configuration was read again: the rules that a running member can take over."""

    allow_token: str
    publish_networks: tuple[Network, ...] | None


@frozen
class Announce:
    """Statistics and events of this server: STANDARD publications to subscribers at every member.

    Their subjects begin with `/__mdserver__/`, to which no client may publish.
    """

    publications: list[Publication]


@frozen
class Trouble:
    """The journal cannot be written, for this reason, or it can be written again (None).

    `refusing`: publications that need a place in a log are refused meanwhile. `withdrawn`: nothing
    that has not been reported as synced is on the disk, or will be.
    """

    reason: str | None
    refusing: bool
    withdrawn: bool = False


@frozen
class Grants:
    """The rights of a token: patterns of subjects, and its expiry (ns since the Unix epoch)."""

    subscribe: tuple[str, ...] = ()
    publish: tuple[str, ...] = ()
    expires: int | None = None
    user: str | None = None


@frozen
class Denied:
    """The reason why something is not allowed; `status` if it concerns a token.

    `busy`: no decision was made, and the same may be allowed when it is tried again.
    """

    reason: str
    status: StatusName | None = None
    busy: bool = False


Verdict = Grants | Denied | None


@frozen
class Authorized:
    """The answer to an `outputs.Authorize`: grants for `connect` and `token`, else None for yes."""

    request: int
    verdict: Verdict
