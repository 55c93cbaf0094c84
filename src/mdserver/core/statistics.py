"""Statistics of a broker, as values for tests, the simulator and embedding programs.

The classes are snapshots: nothing in them changes afterwards, and nothing done to them changes the
broker. The idea is trio's `statistics()`: the state that an invariant is about can be read without
reaching into the objects that hold it. What operators see is made apart from this
(`mdserver.core.inspection`), since its form is part of the product's interface.

Each part of the broker gives its own statistics, in time that is proportional to what it lists.
"""

from attrs import frozen

from mdserver.core.message import Entry
from mdserver.core.session import CatchUpState, SessionState


@frozen
class Counts:
    """How much a broker holds at the moment. `cache_bytes` is what `MaxCacheBytes` bounds."""

    sessions: int
    subscriptions: int
    subjects: int
    cached_messages: int
    cache_bytes: int


@frozen
class SubjectStatistics:
    """One subject of the cache.

    `epoch` and `seq` are its newest position. `entries` are the cached messages, which are all
    those after `floor`. `snapshot` is the snapshot as one message, None if there is none, and
    `snapshot_bytes` what it counts for.
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

    `queued` is the length of the queue of all messages, in which `stale` items stand for nothing.
    `branches` is how many first segments its subjects have. `indexed` counts how often all subjects
    were put in order by group. `noting`: new subjects are noted for searches.
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

    `audiences` are kept ready, `emptied` are branches of the tree of patterns that became empty and
    are kept for a while. `visited` counts the branches and patterns looked at since the start.
    """

    named: tuple[str, ...]
    audiences: int
    emptied: int
    visited: int


@frozen
class CatchUpStatistics:
    """The catch-up of subscriptions.

    `searches` are under way. `awaited` are the subjects of which clients have seen more than this
    member has. `worked` counts the units of work done since the start (`searching.Work`).
    """

    searches: int
    awaited: tuple[str, ...]
    worked: int


@frozen
class AuthorizationStatistics:
    """The questions without an answer, and the sessions whose subscriptions are asked about."""

    open: int
    rechecked_sessions: int


@frozen
class SubscriptionStatistics:
    """One subscription: how far its catch-up is (`CatchUpState`).

    `pending` is how many of its subjects have not had their turn, `ahead` are those of which the
    client has seen more than this member has.
    """

    subject: str
    catch_up_state: CatchUpState
    pending: int
    ahead: tuple[str, ...]


@frozen
class SessionStatistics:
    """One session. `busy`: something is still to be brought to it, or waited for.

    `ahead` are the subjects of which its client has seen more than this member has, `ended` the
    latest subscriptions that it had, which are only noted for receipts.
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
    """One broker. `sessions` are the numbers of all that it knows.

    `ending` are those that ended with more subscriptions than one step ends. `scheduled` is how
    many ends of windows conflation keeps, with those that are to be skipped.
    """

    sessions: tuple[int, ...]
    ending: tuple[int, ...]
    scheduled: int
    cache: CacheStatistics
    interest: InterestStatistics
    catch_up: CatchUpStatistics
    authorizations: AuthorizationStatistics
