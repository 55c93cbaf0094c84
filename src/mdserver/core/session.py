"""One client's state, and the table of what may happen to it when."""

import enum
from collections import deque
from typing import TYPE_CHECKING, Any

from mdserver.core.commands import AnyCommand
from mdserver.core.events import Pong
from mdserver.core.inputs import Denied, Grants, Opened
from mdserver.core.message import Position
from mdserver.core.subjects import Pattern
from mdserver.errors import LocalProtocolError

if TYPE_CHECKING:
    from mdserver.core.claims import ReceiptShare


def session_name(member: str, number: int) -> str:
    """Return the name under which clients, operators and logs know a session of a member."""
    return f"{member}-{number}"


class SessionState(enum.Enum):
    """Where a session is in its life."""

    OPENED = "opened"
    AUTHORIZING = "authorizing"
    CONNECTED = "connected"
    ENDED = "ended"


class SessionEvent(enum.Enum):
    """The events that change the state of a session."""

    AUTHORIZE = "authorize"
    ADMIT = "admit"
    END = "end"


TRANSITIONS = {
    (SessionState.OPENED, SessionEvent.AUTHORIZE): SessionState.AUTHORIZING,
    (SessionState.OPENED, SessionEvent.ADMIT): SessionState.CONNECTED,
    (SessionState.OPENED, SessionEvent.END): SessionState.ENDED,
    (SessionState.AUTHORIZING, SessionEvent.ADMIT): SessionState.CONNECTED,
    (SessionState.AUTHORIZING, SessionEvent.END): SessionState.ENDED,
    (SessionState.CONNECTED, SessionEvent.END): SessionState.ENDED,
}


class CatchUpState(enum.Enum):
    """How far a subscription is on its way to the live messages (`core.catch_up`)."""

    SEARCHING = "searching"
    PENDING = "pending"
    AHEAD = "ahead"
    LIVE = "live"


class HeldCommand:
    """A command that waits for its turn; `requests` are the questions that are still open."""

    __slots__ = ("command", "requests", "verdict")

    def __init__(self, command: AnyCommand) -> None:
        self.command = command
        self.requests: dict[int, None] = {}
        self.verdict: Grants | Denied | None = None


class Subscription:
    """One session's wish for a subject or a pattern.

    `conflation` is in ns, 0 for none; its windows are counted from `start`. `pending` holds the
    subjects whose first messages are still to be brought: their live ones do not come yet. While
    these are still `searching` for, no live message comes at all; `known` are the positions that
    the command named, until all is brought. One that `renews` a live subscription gets live
    messages meanwhile, as that did. `ahead` are those of `Session.ahead` that are this
    subscription's.
    """

    __slots__ = (
        "ahead",
        "conflation",
        "known",
        "pattern",
        "pending",
        "renews",
        "searching",
        "session",
        "start",
        "subject",
    )

    def __init__(
        self,
        session: "Session",
        subject: str,
        pattern: Pattern | None,
        conflation: int,
        start: int,
    ) -> None:
        self.session = session
        self.subject = subject
        self.pattern = pattern
        self.conflation = conflation
        self.start = start
        self.pending: dict[str, None] | None = None
        self.searching = False
        self.renews = False
        self.known: KnownPositions | None = None
        self.ahead: dict[str, AheadWait] | None = None

    def waits(self, subject: str) -> bool:
        """Return whether the live messages of a subject do not come through this yet."""
        waiting = self.searching or (self.pending is not None and subject in self.pending)
        return waiting and not (self.renews and not self._names(subject))

    def defers(self, subject: str) -> bool:
        """Return whether less exact subscriptions of the session bring a subject for now.

        They do until this one's turn has come, so that they miss nothing if it never comes.
        """
        return self.waits(subject) and not self._names(subject)

    def _names(self, subject: str) -> bool:
        """Return whether a position was named: nothing may overtake what follows it."""
        known = self.known
        if known is None:
            return False
        named = subject in known.positions or self.subject in known.positions
        return named or known.places is not None

    @property
    def exactness(self) -> tuple[int, ...]:
        """Order subscriptions of a session: of those that cover a subject the greatest decides."""
        return (3,) if self.pattern is None else self.pattern.specificity

    @property
    def catch_up_state(self) -> CatchUpState:
        """How far the subscription is on its way to the live messages."""
        if self.searching:
            return CatchUpState.SEARCHING
        if self.pending is not None:
            return CatchUpState.PENDING
        return CatchUpState.LIVE if self.ahead is None else CatchUpState.AHEAD

    def __repr__(self) -> str:
        """Name the session, the subject and the state, and how many subjects wait."""
        waits = {"pending": len(self.pending or ()), "ahead": len(self.ahead or ())}
        counts = "".join(f", {count} {name}" for name, count in waits.items() if count)
        return f"<{self.session.id} {self.subject}: {self.catch_up_state.value}{counts}>"

    @property
    def match(self) -> str | None:
        """What a message says about the way it came: the pattern, None for a single subject."""
        return None if self.pattern is None else self.subject


class KnownPositions:
    """The positions that a command named: those of the current history id, and the others.

    All subscriptions of the command share it. `replay`: the snapshot or history is wanted also for
    subjects whose position is known. `places`: of each subject group the place in its log up to
    which everything is known, -1 where that says nothing; None where the command had none.
    """

    __slots__ = ("foreign", "places", "positions", "replay")

    def __init__(self, *, replay: bool = False) -> None:
        self.replay = replay
        self.positions: dict[str, Position] = {}
        self.foreign: dict[str, None] = {}
        self.places: list[int] | None = None


class CatchUpRequest:
    """What a subscription is to bring before the live messages, of each subject in its `pending`.

    After a position what was missed, else `history` messages, else the snapshot. Then come `pongs`,
    whose pings asked for that moment.
    """

    __slots__ = ("history", "known", "pongs", "subscription")

    def __init__(self, subscription: Subscription, known: KnownPositions, history: int) -> None:
        self.subscription = subscription
        self.known = known
        self.history = history
        self.pongs: list[Pong] = []


class AheadWait:
    """A session has seen more of a subject than this member: it waits, but not beyond `until`."""

    __slots__ = ("after", "subject", "subscription", "until")

    def __init__(
        self, subscription: Subscription, subject: str, after: Position, until: int
    ) -> None:
        self.subscription = subscription
        self.subject = subject
        self.after = after
        self.until = until


class Session:
    """One client. `readable` and `writable` are its rights; None allows everything.

    `trusted` says that it gave the token of the Basic entitlement, `address_allowed` that it may
    publish from where it is. `patterns` are those of its subscriptions that are patterns, which are
    in `tree` as well once there are many (`Interest`). `ahead` holds the subjects of which it has
    seen more than this member, `held` the commands that wait for a verdict or behind one that does.
    While its client takes no more it is `congested`. `ended` are subscriptions that it had, the
    latest ones; `receipts` counts what it told of what it received.
    """

    __slots__ = (
        "address",
        "address_allowed",
        "ahead",
        "client",
        "congested",
        "ended",
        "expires",
        "external_token",
        "held",
        "id",
        "idempotency_key",
        "patterns",
        "publisher",
        "readable",
        "receipts",
        "secure",
        "state",
        "subscriptions",
        "transport",
        "tree",
        "trusted",
        "user",
        "writable",
    )

    def __init__(self, opened: Opened) -> None:
        self.id = opened.session
        self.address = opened.address
        self.transport = opened.transport
        self.secure = opened.secure
        self.state = SessionState.OPENED
        self.client: str | None = None
        self.user: str | None = None
        self.external_token: str | None = None
        self.publisher = ""
        self.idempotency_key = opened.idempotency_key
        self.readable: tuple[Pattern, ...] | None = None
        self.writable: tuple[Pattern, ...] | None = None
        self.expires: int | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.patterns: dict[str, Subscription] | None = None
        self.tree: Any = None
        self.congested = False
        self.trusted = False
        self.address_allowed = True
        self.ahead: dict[str, AheadWait] | None = None
        self.held: deque[HeldCommand] | None = None
        self.ended: dict[str, Pattern | None] | None = None
        self.receipts: ReceiptShare | None = None

    def transition(self, event: SessionEvent) -> None:
        """Move on in TRANSITIONS; LocalProtocolError if it has no such move."""
        try:
            self.state = TRANSITIONS[self.state, event]
        except KeyError:
            raise LocalProtocolError(f"{event} in {self.state}") from None
