"""What `Node.step` gives back, for the driver to carry out in order.

`Deliver` and `Send` are msgspec structs, which take a third of the time of attrs objects: there are
some for each publication.
"""

from collections.abc import Sequence

import msgspec
from attrs import frozen

from mdserver.core.events import AnyEvent, Delivery
from mdserver.core.inputs import TimerKey
from mdserver.core.message import Entry


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """One message to many sessions. The list is shared: nobody may change it."""

    delivery: Delivery
    sessions: Sequence[int]


class Send(msgspec.Struct, frozen=True, gc=False):
    """One event to one session."""

    session: int
    event: AnyEvent


@frozen
class Disconnect:
    """Send what is waiting, then close the session's connection with this code and reason."""

    session: int
    code: int
    reason: str


@frozen
class SetTimer:
    """Give `TimerDue(timer)` back at this time (ns). Setting a timer again moves it."""

    timer: TimerKey
    at: int


@frozen
class CancelTimer:
    """Forget a timer; one that was never set, or is already due, is no error."""

    timer: TimerKey


@frozen
class Authorize:
    """An entitlement decision that the core cannot take itself; answered by `Authorized`.

    `action` is one of "connect", "token", "subscribe", "publish", "disconnect"; `token` and
    `subject` are given where the action has one. `address` is that of the session.
    """

    request: int
    session: int
    action: str
    token: str | None = None
    subject: str | None = None
    address: str | None = None


@frozen
class Committed:
    """Entries of a subject group that are now committed, in log order: for the journal."""

    group: int
    history: str
    entries: Sequence[Entry]


@frozen
class Log:
    """Something for the log or an audit stream: a name, and named values of plain types.

    `address` is that of the client which it is about, where it is no value.
    """

    stream: str
    name: str
    values: dict[str, str | int | float | bool | None]
    address: str | None = None


@frozen
class Trace:
    """A protocol step, one to one with an action of the specification."""

    name: str
    values: dict[str, str | int | bool | None]


@frozen
class ClusterOutput:
    """Base of what a member of a cluster asks for besides; see `mdserver.cluster.messages`."""


Output = (
    Deliver
    | Send
    | Disconnect
    | SetTimer
    | CancelTimer
    | Authorize
    | Committed
    | Log
    | Trace
    | ClusterOutput
)
