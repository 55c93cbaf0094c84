"""Who wants which subject.

The lists that a publication is delivered to are kept ready for each subject, so that a publication
costs one look-up; a change of subscriptions only marks them as old. A session gets one copy of a
message: its exact subscription decides, else its most specific pattern.
"""

from collections.abc import Iterable, Iterator, Sequence

from mdserver.core.entitlement import permits
from mdserver.core.session import Session, Subscription
from mdserver.core.subjects import ONE, Pattern, segments_of
from mdserver.limits import AUDIENCES_MAX

_FEW_PATTERNS = 8
"""Up to so many patterns of a session are tried one by one."""


class Audience:
    """The sessions of one subject: who gets a message at once, and who a conflated one.

    `direct` has one list of sessions for each way that the subject was asked for: None for its own
    name, else the pattern. The lists are never changed.
    """

    __slots__ = ("conflated", "direct", "generation")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.direct: list[tuple[str | None, list[int]]] = []
        self.conflated: list[Subscription] = []

    def all(self) -> Iterator[tuple[int, str | None]]:
        """Each session once, with the pattern through which the subject comes to it."""
        for match, sessions in self.direct:
            for session in sessions:
                yield session, match
        for subscription in self.conflated:
            yield subscription.session.id, subscription.match

    def take(self, subject: str, match: str | None, subscriptions: Iterable[Subscription]) -> None:
        """Add the subscriptions to one name or pattern, all but those that have to wait."""
        sessions = []
        for subscription in subscriptions:
            waiting, pending = subscription.session.waiting, subscription.pending
            if waiting is not None and subject in waiting:
                continue
            if pending is not None and subject in pending:
                continue
            if subscription.conflation:
                self.conflated.append(subscription)
            else:
                sessions.append(subscription.session.id)
        if sessions:
            self.direct.append((match, sessions))


class _Node:
    """A branch of the tree of patterns: `here` ends at it, `rest` goes on with `**`."""

    __slots__ = ("below", "here", "rest")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.here: dict[int, Subscription] = {}
        self.rest: dict[int, Subscription] = {}

    def empty(self) -> bool:
        return not (self.below or self.here or self.rest)


class Interest:
    """All subscriptions of all sessions, by subject and by pattern."""

    def __init__(self) -> None:
        self._exact: dict[str, dict[int, Subscription]] = {}
        self._patterns = _Node()
        self._audiences: dict[str, Audience] = {}
        self._generation = 0

    def add(self, subscription: Subscription) -> None:
        """Take a subscription in; one of the same session to the same subject is replaced."""
        session = subscription.session.id
        if subscription.pattern is None:
            self._exact.setdefault(subscription.subject, {})[session] = subscription
            self._audiences.pop(subscription.subject, None)
            return
        if subscription.session.patterns is None:
            subscription.session.patterns = {}
        subscription.session.patterns[subscription.subject] = subscription
        node = self._patterns
        for segment in subscription.pattern.segments:
            node = node.below.setdefault(segment, _Node())
        (node.rest if subscription.pattern.rest else node.here)[session] = subscription
        self._generation += 1

    def remove(self, subscription: Subscription) -> None:
        """Let a subscription go that was added."""
        session = subscription.session.id
        if subscription.pattern is None:
            sessions = self._exact[subscription.subject]
            del sessions[session]
            if not sessions:
                del self._exact[subscription.subject]
            self._audiences.pop(subscription.subject, None)
            return
        assert subscription.session.patterns is not None
        del subscription.session.patterns[subscription.subject]
        self._remove_pattern(subscription.pattern, session)
        self._generation += 1

    def _remove_pattern(self, pattern: Pattern, session: int) -> None:
        path = [self._patterns]
        for segment in pattern.segments:
            path.append(path[-1].below[segment])
        del (path[-1].rest if pattern.rest else path[-1].here)[session]
        for segment in reversed(pattern.segments):
            if not path.pop().empty():
                break
            del path[-1].below[segment]

    def waiting_changed(self, subject: str) -> None:
        """A session begins or ends to wait for the live messages of a subject."""
        self._audiences.pop(subject, None)

    def changed(self) -> None:
        """Every audience may be another one now: rights changed, or who waits for many subjects."""
        self._generation += 1

    def audience(self, subject: str) -> Audience:
        """The sessions that a message of this subject goes to now."""
        audience = self._audiences.get(subject)
        if audience is None or audience.generation != self._generation:
            if len(self._audiences) >= AUDIENCES_MAX:
                self._audiences.clear()
            audience = self._audiences[subject] = self._find(subject)
        return audience

    def chosen(self, session: Session, subject: str) -> Subscription | None:
        """The subscription through which a session gets a subject."""
        exact = session.subscriptions.get(subject)
        if exact is not None and exact.pattern is None:
            return exact
        patterns = session.patterns
        if not patterns or not permits(session.readable, subject):
            return None
        if len(patterns) <= _FEW_PATTERNS:
            segments = segments_of(subject)
            matching = [s for s in patterns.values() if _pattern_of(s).matches(segments)]
            return max(matching, key=lambda s: _pattern_of(s).specificity, default=None)
        for subscriptions in self._matching(segments_of(subject)):
            if session.id in subscriptions:
                return subscriptions[session.id]
        return None

    def _find(self, subject: str) -> Audience:
        audience = Audience(self._generation)
        exact = self._exact.get(subject, {})
        audience.take(subject, None, exact.values())
        patterns = self._matching(segments_of(subject)) if not self._patterns.empty() else []
        seen: dict[int, object] = dict(exact) if patterns else {}
        for subscriptions in patterns:
            chosen = [
                subscription
                for session, subscription in subscriptions.items()
                if session not in seen and permits(subscription.session.readable, subject)
            ]
            if chosen:
                seen.update(subscriptions)
                audience.take(subject, chosen[0].subject, chosen)
        return audience

    def _matching(self, segments: Sequence[str]) -> list[dict[int, Subscription]]:
        """The subscriptions of each matching pattern, the most specific one first."""
        found = [held for held in _matches(self._patterns, segments, 0) if held]
        found = [held for held in found if _pattern(held).matches(segments)]
        found.sort(key=lambda held: _pattern(held).specificity, reverse=True)
        return found


def _pattern(subscriptions: dict[int, Subscription]) -> Pattern:
    return _pattern_of(next(iter(subscriptions.values())))


def _pattern_of(subscription: Subscription) -> Pattern:
    assert subscription.pattern is not None
    return subscription.pattern


def _matches(node: _Node, segments: Sequence[str], at: int) -> Iterator[dict[int, Subscription]]:
    if at == len(segments):
        yield node.here
        return
    yield node.rest
    for key in (segments[at], ONE):
        below = node.below.get(key)
        if below is not None:
            yield from _matches(below, segments, at + 1)
