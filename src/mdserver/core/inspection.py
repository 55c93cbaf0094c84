"""Inspection: what operators may look up in a broker, about one session or one subject.

Each look-up takes time in proportion to what it shows, not to the size of the broker.
"""

from bisect import bisect_left
from collections.abc import Mapping
from itertools import islice

from attrs import frozen

from mdserver.core.cache import Cache, entry_bytes
from mdserver.core.interest import Interest
from mdserver.core.message import Entry
from mdserver.core.session import Session
from mdserver.core.subjects import group_of
from mdserver.limits import NS_PER_S

RATE_S = 60
"""The rate of a subject is over this many of the latest seconds."""


@frozen(kw_only=True)
class SubjectView:
    """One subject: its newest position, what is cached of it, and how many sessions receive it.

    `bytes` is what its cached messages count for, without its snapshot. `subscribers` are sessions
    that subscribe to it, by name or by pattern. `per_second` is the rate of its cached messages
    over the last minute, or since the oldest of them if that is less and there were more.
    """

    subject: str
    group: int
    epoch: int
    seq: int
    messages: int
    bytes: int
    subscribers: int
    per_second: float


@frozen(kw_only=True)
class SessionDescription:
    """One session: the name that its client gave, the user of its token, and its subscriptions.

    `subscriptions` is how many there are; `names` are the subjects and patterns of the first ones.
    """

    client: str | None
    user: str | None
    subscriptions: int
    names: tuple[str, ...]


class Inspection:
    """Looks at the sessions, the cache and the interest of a broker, and changes nothing."""

    def __init__(
        self, sessions: Mapping[int, Session], cache: Cache, interest: Interest, groups: int
    ) -> None:
        self._sessions = sessions
        self._cache = cache
        self._interest = interest
        self._groups = groups

    def session(self, number: int, names_max: int) -> SessionDescription | None:
        """Describe a session with at most `names_max` of its subscriptions; None if it is gone."""
        session = self._sessions.get(number)
        if session is None:
            return None
        return SessionDescription(
            client=session.client,
            user=session.user,
            subscriptions=len(session.subscriptions),
            names=tuple(islice(session.subscriptions, names_max)),
        )

    def subjects(self) -> list[str]:
        """Return the names of all subjects."""
        return self._cache.names()

    def cached(self, subject: str) -> int:
        """Return how many messages of a subject are cached: what a look at it costs."""
        state = self._cache.find(subject)
        return 0 if state is None else len(state.entries)

    def subject(self, subject: str, now: int) -> SubjectView | None:
        """Describe a subject; None if nothing is known of it."""
        state = self._cache.find(subject)
        if state is None:
            return None
        return SubjectView(
            subject=subject,
            group=group_of(subject, self._groups),
            epoch=state.epoch,
            seq=state.seq,
            messages=len(state.entries),
            bytes=sum(map(entry_bytes, state.entries)),
            subscribers=self._interest.subscribers(subject),
            per_second=round(rate(state.entries, state.floor, now), 3),
        )


def rate(entries: list[Entry], floor: int, now: int) -> float:
    """Return how many of these messages came a second in the last RATE_S seconds.

    With a `floor` there were earlier messages, which are not cached any more. If all that are
    cached are recent, the rate is over the time since the oldest one.
    """
    since = now - RATE_S * NS_PER_S
    first = bisect_left(entries, since, key=_time)
    count = len(entries) - first
    if not count:
        return 0.0
    if floor and not first:
        since = entries[0].publication.time
    return count / max((now - since) / NS_PER_S, 1.0)


def _time(entry: Entry) -> int:
    return entry.publication.time
