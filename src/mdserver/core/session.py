"""One client's state, and the table of its transitions.

A session begins OPENED when its connection does. Its first command admits it (CONNECTED), after a
verdict if an external authorizer is asked (AUTHORIZING). It is ENDED when its connection is gone or
the broker disconnects it; in the second case the object stays known until the connection closes,
and commands that are still on their way are dropped. ENDED is final. No message is delivered to a
session before it is CONNECTED, because until then it has no subscriptions.
"""

import enum
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from mdserver.core.commands import AnyCommand
from mdserver.core.events import Pong, WirePosition
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
    """The states of a session; the module's docstring says what they mean."""

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
    """The states of a subscription's catch-up, whose theory is in `core.catch_up`."""

    SEARCHING = "searching"
    PENDING = "pending"
    AHEAD = "ahead"
    LIVE = "live"


class HeldCommand:
    """A command that waits for its turn; `requests` are its questions without a verdict yet."""

    __slots__ = ("command", "requests", "verdict")

    def __init__(self, command: AnyCommand) -> None:
        self.command = command
        self.requests: dict[int, None] = {}
        self.verdict: Grants | Denied | None = None


class Subscription:
    """A session's subscription to a subject or a pattern.

    `conflation` is the length of its windows in ns, 0 for none; they are counted from `start`.

    The rest is the state of its catch-up (`core.catch_up`). `searching`: the subjects of the
    pattern are being looked up, and no live message is delivered. `pending` are the subjects that
    still have to be brought, None if there are none; their live messages are not delivered yet.
    `known` are the positions that the command named, kept until everything is brought. `renews`:
    this one replaces a live subscription, so it goes on with the live messages meanwhile. `ahead`
    are those entries of `Session.ahead` that belong to this subscription.
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
        """Return whether the live messages of a subject are not delivered through this yet."""
        waiting = self.searching or (self.pending is not None and subject in self.pending)
        return waiting and not (self.renews and not self._names(subject))

    def defers(self, subject: str) -> bool:
        """Return whether a less exact subscription of the session brings a subject for now.

        It does until this one's turn has come, so that the client misses nothing if this one ends
        before. If a position was named it does not, since live messages would overtake what follows
        that position.
        """
        return self.waits(subject) and not self._names(subject)

    def _names(self, subject: str) -> bool:
        """Return whether the command named a position, or places, that concern a subject."""
        known = self.known
        if known is None:
            return False
        named = subject in known.positions or self.subject in known.positions
        return named or known.places is not None

    @property
    def exactness(self) -> tuple[int, ...]:
        """The order of a session's subscriptions: the greatest that covers a subject decides."""
        return (3,) if self.pattern is None else self.pattern.specificity

    @property
    def catch_up_state(self) -> CatchUpState:
        """The state of the subscription's catch-up."""
        if self.searching:
            return CatchUpState.SEARCHING
        if self.pending is not None:
            return CatchUpState.PENDING
        return CatchUpState.LIVE if self.ahead is None else CatchUpState.AHEAD

    def __repr__(self) -> str:
        """Return the session, the subject, the state, and how many subjects wait."""
        waits = {"pending": len(self.pending or ()), "ahead": len(self.ahead or ())}
        counts = "".join(f", {count} {name}" for name, count in waits.items() if count)
        return f"<{self.session.id} {self.subject}: {self.catch_up_state.value}{counts}>"

    @property
    def match(self) -> str | None:
        """The pattern through which messages come, None for a subscription to one subject."""
        return None if self.pattern is None else self.subject


class KnownPositions:
    """The positions that a command named: those of the current history id, and the others.

    All subscriptions of the command share one object. `replay`: the snapshot or history is wanted
    for subjects with a known position too. `places` has, for each subject group, the place in its
    log up to which the client has everything, -1 if that is unknown; it is None if the command
    named no places. `foreign` are the subjects of positions under another history id.
    """

    __slots__ = ("foreign", "places", "positions", "replay")

    def __init__(self, *, replay: bool = False) -> None:
        self.replay = replay
        self.positions: dict[str, Position] = {}
        self.foreign: dict[str, None] = {}
        self.places: list[int] | None = None


class CatchUpRequest:
    """A request for what precedes the live messages of each subject of a subscription.

    That is what was missed since a known position; without one the last `history` messages, or the
    snapshot if `history` is 0. When all of it is sent, `pongs` follow: they answer pings that asked
    for this moment (`Ping.caught_up`).
    """

    __slots__ = ("history", "known", "pongs", "subscription")

    def __init__(self, subscription: Subscription, known: KnownPositions, history: int) -> None:
        self.subscription = subscription
        self.known = known
        self.history = history
        self.pongs: list[msgspec.Raw] = []


class AheadWait:
    """The wait of a session that has seen more of a subject than this member, up to `until` (ns).

    `after` is the last position that the client has seen. `replayed`: how many messages of the
    history follow what was missed, 0 for the snapshot, None if the client wants neither.
    """

    __slots__ = ("after", "replayed", "subject", "subscription", "until")

    def __init__(
        self,
        subscription: Subscription,
        subject: str,
        after: Position,
        until: int,
        replayed: int | None = None,
    ) -> None:
        self.subscription = subscription
        self.subject = subject
        self.after = after
        self.until = until
        self.replayed = replayed


class Session:
    """One client.

    `readable` and `writable` are its rights; None allows everything. `trusted` says that it gave
    the token of the Basic entitlement, `address_allowed` that it may publish from its address.
    `patterns` are those of its subscriptions that have patterns, which are in `tree` as well once
    there are many (`Interest`). `ahead` holds, by subject, its waits for what it has seen and this
    member has not. `held` are the commands that wait for a verdict, or behind one that does. It is
    `congested` while its client takes no more bytes. `ended` are the latest subscriptions that it
    had; `receipts` counts the receipts that it sent. What few sessions need is None until then,
    because there may be very many sessions.

    `begun`: subjects that were subscribed without a position, and had nothing to bring -> where
    they stood. The next pong says it.
    """

    __slots__ = (
        "address",
        "address_allowed",
        "ahead",
        "begun",
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
        self.begun: dict[str, Position] | None = None
        self.held: deque[HeldCommand] | None = None
        self.ended: dict[str, Pattern | None] | None = None
        self.receipts: ReceiptShare | None = None

    def pong(self, t: msgspec.Raw, history: str) -> Pong:
        """Return the answer to a ping, with what is to be told with it under a history id."""
        begun, self.begun = self.begun, None
        if not begun:
            return Pong(t=t)
        told = {subject: WirePosition(history, at.epoch, at.seq) for subject, at in begun.items()}
        return Pong(t=t, positions=told)

    def transition(self, event: SessionEvent) -> None:
        """Change the state as TRANSITIONS says; raise LocalProtocolError if it has no such key."""
        try:
            self.state = TRANSITIONS[self.state, event]
        except KeyError:
            raise LocalProtocolError(f"{event} in {self.state}") from None
