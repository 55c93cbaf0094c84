"""The outputs of `Node.step`, which the driver carries out in order.

`Deliver`, `Send` and `Committed` are msgspec structs, because each publication may make some of
them, and they take a tenth of the time of attrs objects.
"""

from collections.abc import Sequence

import msgspec
from attrs import frozen

from mdserver.core.events import AnyEvent, Delivery
from mdserver.core.inputs import TimerKey
from mdserver.core.message import Entry, Publication


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """One message to many sessions. The list is shared and must not be changed."""

    delivery: Delivery
    sessions: Sequence[int]


class Send(msgspec.Struct, frozen=True, gc=False):
    """One event to one session."""

    session: int
    event: AnyEvent


@frozen
class Disconnect:
    """Send what is waiting, then close the session's connection with a close code and reason."""

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
    """A request for an entitlement decision that the core cannot make; answered by `Authorized`.

    `action` is one of "connect", "token", "subscribe", "publish", "disconnect"; `token` and
    `subject` are given if the action has one. `address` is that of the session.
    """

    request: int
    session: int
    action: str
    token: str | None = None
    subject: str | None = None
    address: str | None = None


class Committed(msgspec.Struct, frozen=True, gc=False):
    """Entries of a subject group that are now committed, in log order: for the journal."""

    group: int
    history: str
    entries: Sequence[Entry]


@frozen
class Log:
    """A line for the log or an audit stream: the name of an event, and values of plain types.

    `address` is that of the client concerned, if it is not among the values.
    """

    stream: str
    name: str
    values: dict[str, str | int | float | bool | None]
    address: str | None = None


@frozen
class Announced:
    """The statistics of another member (`inputs.Announce`), for those of the whole cluster."""

    member: str
    publications: Sequence[Publication]


@frozen
class Trace:
    """A protocol step that corresponds to one action of the TLA+ specification."""

    name: str
    values: dict[str, str | int | bool | None]


@frozen
class ClusterOutput:
    """Base of the outputs that the cluster adds; see `mdserver.cluster.messages`."""


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
    | Announced
    | ClusterOutput
)
