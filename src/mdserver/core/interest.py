"""Interest: which sessions receive which subject.

The lists of sessions that a publication is delivered to (its audience) are kept ready for each
subject, so that a publication costs one look-up. A session gets one copy of a message: its exact
subscription decides, else its most specific pattern. A subscription whose catch-up has not come to
the subject may leave it to the next one (`Subscription.defers`).

Patterns form a tree with a branch for each segment. A subject is looked up by following, at each
branch, its own segment and `*`. Each branch is visited at most once, so a look-up costs no more
than the segments of all patterns together. Literal segments are followed first and `**` last, which
yields the patterns from the most to the least specific one.

Audiences are invalidated lazily, because a pattern may match a million of them. Subscribing or
unsubscribing marks the branch at which the pattern ends with the number of the change (its
generation). An audience that is older than the latest change is checked when it is needed next: if
no branch on its way was marked since, it is still right; if one was, only the sessions that come
through patterns are listed anew. A change of a subscription by name drops the one audience that it
concerns. A branch that becomes empty stays for a while, because its mark has to be found; when it
is cut off, the branch above takes over its mark.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from mdserver.core.entitlement import permits
from mdserver.core.session import Session, Subscription
from mdserver.core.statistics import InterestStatistics
from mdserver.core.subjects import ONE, RESERVED, Pattern, segments_of
from mdserver.limits import AUDIENCES_MAX, EMPTY_PATTERNS_KEPT

_FEW_PATTERNS = 8
"""Up to this many patterns of a session are tried one by one, without a tree of their own."""


class Audience:
    """The sessions of one subject: those that get a message at once, and those with conflation.

    `direct` has a list of sessions for the subject's own name (None), and one for each pattern. The
    lists are shared with deliveries and never changed. `exact` is how many items of `direct` and of
    `conflated` are subscriptions by name; these come first. `deferring` are the sessions whose
    subscriptions by name leave the subject to a pattern for now. `generation` is that of the latest
    check.
    """

    __slots__ = ("conflated", "deferring", "direct", "exact", "generation")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.direct: list[tuple[str | None, list[int]]] = []
        self.conflated: list[Subscription] = []
        self.exact = (0, 0)
        self.deferring: Sequence[int] = ()

    def by_name(self, subject: str, subscriptions: Iterable[Subscription]) -> None:
        """List the subscriptions to the subject itself."""
        self.deferring = self.take(subject, None, subscriptions)
        self.exact = len(self.direct), len(self.conflated)

    def renewed(self, generation: int) -> "Audience":
        """Return an audience with the same subscriptions by name, and none by patterns."""
        audience = Audience(generation)
        direct, conflated = audience.exact = self.exact
        audience.direct = self.direct[:direct]
        audience.conflated = self.conflated[:conflated]
        audience.deferring = self.deferring
        return audience

    def all(self) -> Iterator[tuple[int, str | None]]:
        """Yield each session once, with the pattern through which it receives the subject."""
        for match, sessions in self.direct:
            for session in sessions:
                yield session, match
        for subscription in self.conflated:
            yield subscription.session.id, subscription.match

    def take(
        self, subject: str, match: str | None, subscriptions: Iterable[Subscription]
    ) -> Sequence[int]:
        """Add the subscriptions to one name or pattern, except those that have to wait.

        Returns the sessions of those that leave the subject to a less exact subscription.
        """
        sessions = []
        deferring: list[int] = []
        for subscription in subscriptions:
            ahead = subscription.session.ahead
            if ahead is not None and subject in ahead:
                continue
            unbrought = subscription.searching or subscription.pending is not None
            if unbrought and subscription.waits(subject):
                if subscription.defers(subject):
                    deferring.append(subscription.session.id)
                continue
            if subscription.conflation:
                self.conflated.append(subscription)
            else:
                sessions.append(subscription.session.id)
        if sessions:
            self.direct.append((match, sessions))
        return deferring


class _Node:
    """A branch of the tree of patterns.

    `here` are the subscriptions whose pattern ends at it, `rest` those that go on with `**`, by
    session. `changed` is the number of its latest change, `above` the branch above it, `emptied`
    whether it is in the queue of branches that were empty.
    """

    __slots__ = ("above", "below", "changed", "emptied", "here", "rest", "segment")

    def __init__(self, above: "_Node | None" = None, segment: str = "") -> None:
        self.above = above
        self.segment = segment
        self.changed = 0
        self.emptied = False
        self.below: dict[str, _Node] = {}
        self.here: dict[int, Subscription] = {}
        self.rest: dict[int, Subscription] = {}

    def empty(self) -> bool:
        return not (self.below or self.here or self.rest)

    def at(self, pattern: Pattern) -> "_Node":
        """Return the branch at which a pattern ends, which is made if there is none."""
        node = self
        for segment in pattern.segments:
            below = node.below.get(segment)
            if below is None:
                below = node.below[segment] = _Node(node, segment)
            node = below
        return node


class Interest:
    """All subscriptions of all sessions, by subject and by pattern.

    `visited` counts the branches and single patterns that were looked at.
    """

    def __init__(self) -> None:
        self.visited = 0
        self._exact: dict[str, dict[int, Subscription]] = {}
        self._patterns = _Node()
        self._emptied: deque[_Node] = deque()
        self._audiences: dict[str, Audience] = {}
        self._generation = 1

    def statistics(self) -> InterestStatistics:
        """Return the state of the interest as a snapshot."""
        return InterestStatistics(
            named=tuple(self._exact),
            audiences=len(self._audiences),
            emptied=len(self._emptied),
            visited=self.visited,
        )

    def add(self, subscription: Subscription) -> None:
        """Add a subscription; it replaces one of the same session to the same subject."""
        if subscription.pattern is None:
            sessions = self._exact.setdefault(subscription.subject, {})
            sessions[subscription.session.id] = subscription
            self._audiences.pop(subscription.subject, None)
            return
        session = subscription.session
        if session.patterns is None:
            session.patterns = {}
        session.patterns[subscription.subject] = subscription
        if session.tree is not None:
            _put(session.tree, subscription)
        elif len(session.patterns) > _FEW_PATTERNS:
            session.tree = _Node()
            for held in session.patterns.values():
                _put(session.tree, held)
        self._mark(_put(self._patterns, subscription))

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription that was added."""
        session, pattern = subscription.session, subscription.pattern
        if pattern is None:
            sessions = self._exact[subscription.subject]
            del sessions[session.id]
            if not sessions:
                del self._exact[subscription.subject]
            self._audiences.pop(subscription.subject, None)
            return
        assert session.patterns is not None
        del session.patterns[subscription.subject]
        if len(session.patterns) <= _FEW_PATTERNS:
            session.tree = None
        elif session.tree is not None:
            _prune(_take(session.tree, subscription))
        node = _take(self._patterns, subscription)
        self._mark(node)
        if node.empty():
            self._empty(node)

    def _mark(self, node: _Node) -> None:
        self._generation += 1
        node.changed = self._generation

    def _empty(self, node: _Node) -> None:
        """Cut off the branches that have been empty for longest, if there are too many."""
        if not node.emptied:
            node.emptied = True
            self._emptied.append(node)
        while len(self._emptied) > EMPTY_PATTERNS_KEPT:
            _prune_one(self._emptied.popleft(), self._emptied)

    def subject_changed(self, subscription: Subscription, subject: str) -> None:
        """Note that a subscription begins or ceases to wait for the live messages of a subject."""
        if subscription.pattern is None:
            self._audiences.pop(subject, None)
        elif subject in self._audiences:
            self._audiences[subject].generation = 0

    def pattern_changed(self, subscription: Subscription) -> None:
        """Note a change of a subscription that concerns all subjects of its pattern."""
        assert subscription.pattern is not None
        self._mark(self._patterns.at(subscription.pattern))

    def rights_changed(self, session: Session) -> None:
        """Note a change of a session's rights, which limit what its patterns bring."""
        for subscription in (session.patterns or {}).values():
            self.pattern_changed(subscription)

    def changed(self) -> None:
        """Invalidate all audiences."""
        self._audiences.clear()

    def forget(self, subject: str) -> None:
        """Drop the list of a subject that was forgotten; its next message makes it anew."""
        self._audiences.pop(subject, None)

    def audience(self, subject: str) -> Audience:
        """Return the sessions that a message of this subject is delivered to now."""
        audience = self._audiences.get(subject)
        if audience is None or audience.generation != self._generation:
            audience = self._renew(subject, audience)
        return audience

    def subscribers(self, subject: str) -> int:
        """Count the sessions that subscribe to a subject, by name or pattern; keeps no list."""
        found, _ = self._matching(segments_of(subject))
        exact = self._exact.get(subject, {})
        return len(dict.fromkeys(chain(exact, *found))) if found else len(exact)

    def _renew(self, subject: str, audience: Audience | None) -> Audience:
        """Return the audience of a subject as of now, with what is still right of the old one."""
        exact = self._exact.get(subject, {})
        found, changed = self._matching(segments_of(subject))
        if audience is None:
            if len(self._audiences) >= AUDIENCES_MAX:
                self._audiences.clear()
            audience = Audience(self._generation)
            audience.by_name(subject, exact.values())
        elif changed <= audience.generation:
            audience.generation = self._generation
            return audience
        else:
            audience = audience.renewed(self._generation)
        seen: dict[int, object] = {}
        for subscriptions in found:
            chosen = [
                subscription
                for session, subscription in subscriptions.items()
                if session not in seen
                and (session not in exact or session in audience.deferring)
                and permits(subscription.session.readable, subject)
            ]
            if chosen:
                # These sessions need no less specific pattern, except those that defer the subject.
                seen.update(subscriptions)
                for session in audience.take(subject, chosen[0].subject, chosen):
                    del seen[session]
        self._audiences[subject] = audience
        return audience

    def chosen(self, session: Session, subject: str) -> Subscription | None:
        """Return the subscription through which a session gets a subject, or will get it."""
        return next(self._covering(session, subject), None)

    def bringing(self, session: Session, subject: str) -> Subscription | None:
        """Return the subscription through which a session gets the messages of a subject now.

        It is not the one that is `chosen` if that defers the subject until its turn has come.
        """
        covering = self._covering(session, subject)
        return next((one for one in covering if not one.defers(subject)), None)

    def _covering(self, session: Session, subject: str) -> Iterator[Subscription]:
        """Yield the subscriptions of a session that cover a subject, the most exact one first."""
        exact = session.subscriptions.get(subject)
        if exact is not None and exact.pattern is None:
            yield exact
        patterns = session.patterns
        if not patterns:
            return
        self.visited += len(session.readable or ())
        if not permits(session.readable, subject):
            return
        segments = segments_of(subject)
        if session.tree is not None:
            for _, held in _walk(session.tree, segments):
                self.visited += 1
                yield from (held or {}).values()
            return
        self.visited += len(patterns)
        matching = [s for s in patterns.values() if _pattern_of(s).matches(segments)]
        if len(matching) > 1:
            matching.sort(key=lambda s: s.exactness, reverse=True)
        yield from matching

    def _matching(self, segments: Sequence[str]) -> tuple[list[dict[int, Subscription]], int]:
        """Return the subscriptions of each matching pattern, the most specific one first.

        The second value is the number of the latest change of a branch on the way.
        """
        found: list[dict[int, Subscription]] = []
        changed = 1
        for node, held in _walk(self._patterns, segments):
            self.visited += 1
            changed = max(changed, node.changed)
            if held:
                found.append(held)
        return found, changed


def _pattern_of(subscription: Subscription) -> Pattern:
    assert subscription.pattern is not None
    return subscription.pattern


def _put(tree: _Node, subscription: Subscription) -> _Node:
    pattern = _pattern_of(subscription)
    node = tree.at(pattern)
    (node.rest if pattern.rest else node.here)[subscription.session.id] = subscription
    return node


def _take(tree: _Node, subscription: Subscription) -> _Node:
    pattern = _pattern_of(subscription)
    node = tree.at(pattern)
    del (node.rest if pattern.rest else node.here)[subscription.session.id]
    return node


def _prune(node: _Node) -> None:
    """Cut off a branch and those above it, as far as they are empty."""
    while node.above is not None and node.empty():
        del node.above.below[node.segment]
        node = node.above


def _prune_one(node: _Node, emptied: deque[_Node]) -> None:
    """Cut off a branch if it is still empty; the one above takes its mark, and may be next."""
    node.emptied = False
    above = node.above
    if above is None or not node.empty():
        return
    del above.below[node.segment]
    above.changed = max(above.changed, node.changed)
    if above.empty() and not above.emptied:
        above.emptied = True
        emptied.append(above)


def _walk(
    tree: _Node, segments: Sequence[str]
) -> Iterator[tuple[_Node, dict[int, Subscription] | None]]:
    """Yield the branches that a subject leads to, with the subscriptions that end there.

    A branch with `**` comes a second time, after those below it, because `**` is less specific than
    anything that they hold.
    """
    last = len(segments)
    reserved = segments[0] == RESERVED
    stack: list[tuple[_Node, int]] = [(tree, 0)]
    while stack:
        node, at = stack.pop()
        if at < 0:
            yield node, node.rest
            continue
        if at == last:
            yield node, node.here
            continue
        yield node, None
        below = node.below
        # Pushed in reverse: the most specific continuation is to be popped first.
        if at or not reserved:
            if node.rest:
                stack.append((node, -1))
            if ONE in below:
                stack.append((below[ONE], at + 1))
        if segments[at] in below:
            stack.append((below[segments[at]], at + 1))
