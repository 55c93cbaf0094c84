"""Statistics of a broker, as values for tests, the simulator and embedding programs.

The classes are snapshots: they do not change afterwards, and they share nothing with the broker
that could be changed through them. The idea is that of trio's `statistics()`: a test can read the
state that an invariant is about without reaching into the objects that hold it. What operators see
has its own module (`mdserver.core.inspection`), because its form is part of the product's
interface.

Each part of the broker returns its own statistics, in time proportional to what it lists.
"""

from attrs import frozen

from mdserver.core.message import Entry
from mdserver.core.session import CatchUpState, SessionState


@frozen
class BrokerCounts:
    """The numbers of things that a broker holds. `cache_bytes` is what `MaxCacheBytes` bounds."""

    sessions: int
    subscriptions: int
    subjects: int
    cached_messages: int
    cache_bytes: int


@frozen
class SubjectStatistics:
    """One subject of the cache.

    `epoch` and `seq` are its newest position. `entries` are the cached messages: all messages after
    the sequence number `floor`. `snapshot` is the snapshot as one message, None if there is none,
    and `snapshot_bytes` its size.
    """

    subject: str
    epoch: int
    seq: int
    floor: int
    entries: tuple[Entry, ...]
    snapshot: Entry | None
    snapshot_bytes: int


@frozen
class CacheStatistics:
    """The cache. `bytes` is the memory of all messages and snapshots.

    `queued` is the length of the queue of all messages, and `stale` the number of its items whose
    message is no longer cached. `branches` is the number of different first segments. `indexed`
    counts how often the index of subjects by group was built. `noting`: new subjects are noted for
    the searches under way.
    """

    subjects: tuple[str, ...]
    bytes: int
    queued: int
    stale: int
    branches: int
    indexed: int
    noting: bool


@frozen
class InterestStatistics:
    """The interest: `named` are the subjects that are subscribed to by name.

    `audiences` is the number of cached audiences, `emptied` that of branches in the tree of
    patterns that became empty and are kept for a while. `visited` counts the branches and patterns
    that were visited since the start.
    """

    named: tuple[str, ...]
    audiences: int
    emptied: int
    visited: int


@frozen
class CatchUpStatistics:
    """The catch-up of subscriptions.

    `searches` is the number of searches under way. `awaited` are the subjects of which clients have
    seen more than this member has. `worked` counts the units of work done since the start
    (`searching.Work`).
    """

    searches: int
    awaited: tuple[str, ...]
    worked: int


@frozen
class AuthorizationStatistics:
    """The numbers of requests without an answer, and of sessions whose rights are checked again."""

    open: int
    rechecked_sessions: int


@frozen
class SubscriptionStatistics:
    """One subscription: how far its catch-up is (`CatchUpState`).

    `pending` is the number of its subjects whose catch-up has not begun. `ahead` are those of which
    the client has seen more than this member has.
    """

    subject: str
    catch_up_state: CatchUpState
    pending: int
    ahead: tuple[str, ...]


@frozen
class SessionStatistics:
    """One session. `busy`: its catch-up has something left to send or to wait for.

    `ahead` are the subjects of which its client has seen more than this member has. `ended` are the
    latest subscriptions that ended, which are remembered only for receipts.
    """

    number: int
    state: SessionState
    subscriptions: tuple[SubscriptionStatistics, ...]
    busy: bool
    ahead: tuple[str, ...]
    ended: tuple[str, ...]

    def subscription(self, subject: str) -> SubscriptionStatistics:
        """Return the subscription to a subject or a pattern; raises KeyError if there is none."""
        for one in self.subscriptions:
            if one.subject == subject:
                return one
        raise KeyError(subject)


@frozen
class BrokerStatistics:
    """One broker. `sessions` are the numbers of all its sessions.

    `ending` are those that ended with more subscriptions than one step can remove. `scheduled` is
    the number of window ends that conflation keeps, including those that it will skip.
    """

    sessions: tuple[int, ...]
    ending: tuple[int, ...]
    scheduled: int
    cache: CacheStatistics
    interest: InterestStatistics
    catch_up: CatchUpStatistics
    authorizations: AuthorizationStatistics
