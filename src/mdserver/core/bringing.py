"""What a subscriber gets of a subject before the live messages: its snapshot, its history, or what
was missed.

That may be a lot: a pattern may match every subject there is, and a client may have many patterns.
So a step does a bounded amount of it, counted in subjects and branches that it looks at
(`work_at_once`) and in messages (`brought_at_once`), and later steps go on where it ended.

A subscription to a pattern is first `searching`: the subjects of the cache are walked, then the
positions that came with the command. Meanwhile it gets no live message. What was found is `pending`
then: the live messages of a subject do not come before it had its turn, because they are part of
what it gets then. Only the first subscription in the queue of a session searches, so a session has
at most each subject of the cache waiting once, however many patterns it has.

A client that takes no more waits until it does: the cache keeps everything anyway. So does a
subject wait of which the subscriber has seen more than this member (`Session.waiting`).
"""

from collections import deque
from collections.abc import Iterable, Iterator

from mdserver.core.cache import Cache, SubjectState
from mdserver.core.commands import Fetch
from mdserver.core.events import (
    Delivery,
    Fetched,
    MissingRange,
    Reset,
    Status,
    StatusName,
    WirePosition,
)
from mdserver.core.interest import Interest
from mdserver.core.message import Entry, MessageType, Position
from mdserver.core.outputs import CancelTimer, Output, Send, SetTimer
from mdserver.core.recovery import Histories, Lost, Missed, forked, recover
from mdserver.core.session import Backlog, Known, Session, Subscription, Waiting
from mdserver.core.settings import BrokerSettings
from mdserver.core.subjects import Pattern, segments_of, validate_subject
from mdserver.errors import InvalidSubjectError
from mdserver.limits import BEHIND_WAIT_S, BRING_PAUSE_MS, NS_PER_MS, NS_PER_S

TIMER = ("broker", "bring")
SEARCH_TURN = 256
"""How much of a search is one turn of a session that waits."""


class Work:
    """How much the step may still do that can also be done later.

    A step is known by its list of outputs, of which each has its own.
    """

    __slots__ = ("_most", "_out", "left")

    def __init__(self, most: int) -> None:
        self.left = self._most = most
        self._out: list[Output] | None = None

    def begin(self, out: list[Output]) -> None:
        """Count anew if this is another step."""
        if out is not self._out:
            self._out = out
            self.left = self._most


class Search:
    """What was found for one subscription so far.

    `foreign` are positions of another history id; `newcomers` is how many of the cache's were
    looked at.
    """

    __slots__ = ("candidates", "foreign", "found", "newcomers")

    def __init__(self, newcomers: int) -> None:
        self.candidates: Iterator[str | None] = iter(())
        self.found: dict[str, None] = {}
        self.foreign: list[str] = []
        self.newcomers = newcomers


def is_one_of(subject: str, pattern: Pattern, settings: BrokerSettings) -> bool:
    """Return whether this is a subject that one can publish to, and one of the pattern's."""
    try:
        validate_subject(subject, settings.subject_segments_min, settings.subject_segments_max)
    except InvalidSubjectError:
        return False
    return pattern.matches(segments_of(subject))


class Bringing:
    """Brings subscribers up to the live messages, at once or later."""

    def __init__(
        self, settings: BrokerSettings, cache: Cache, interest: Interest, histories: Histories
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._interest = interest
        self._histories = histories
        self._queues: dict[Session, deque[Backlog]] = {}
        self._stalled: dict[Session, deque[Backlog]] = {}
        """The queues of those whose clients take no more."""
        self.behind: dict[str, dict[Session, Waiting]] = {}
        """Subject -> the sessions that have seen more of it than this member has."""
        self._timed: dict[Session, None] = {}
        self._searches: dict[Subscription, Search] = {}
        self._work = Work(settings.work_at_once)

    def begin(
        self, backlog: Backlog, now: int, out: list[Output], subjects: list[str] | None = None
    ) -> None:
        """Bring a subscription up to the live messages, as far as this step has room for it.

        `subjects` are those to bring, if they are known; else they are searched for.
        """
        self._work.begin(out)
        subscription = backlog.subscription
        session = subscription.session
        if subjects is None and subscription.pattern is None:
            subjects = [subscription.subject]
        if subjects is None:
            subscription.searching = True
        waits = session.congested or session in self._queues
        if subscription.searching and not waits and self._search(backlog, self._work.left):
            subjects = self._found(backlog, out)
        if subjects is not None:
            brought = 0
            for subject in () if waits else subjects[: self._settings.brought_at_once]:
                if self._full(out):
                    break
                self._bring(backlog, subject, now, out)
                brought += 1
            if brought == len(subjects):
                return
            self._keep_waiting(subscription, subjects[brought:])
        if session.congested:
            self._stalled.setdefault(session, deque()).append(backlog)
        else:
            self._enqueue(session, (backlog,), now, out)

    def _full(self, out: list[Output]) -> bool:
        return self._work.left <= 0 or len(out) >= self._settings.brought_at_once

    def _keep_waiting(self, subscription: Subscription, subjects: list[str]) -> None:
        # The last one is the next one: only that end of a dict is cheap to take from.
        subscription.pending = dict.fromkeys(reversed(subjects))
        if subscription.pattern is None:
            self._interest.waiting_changed(subscription, subscription.subject)
        else:
            self._interest.pattern_changed(subscription)

    # -- Which subjects a pattern has ------------------------------------------------------------

    def _search(self, backlog: Backlog, most: int) -> bool:
        """Search on for so much work at most; returns whether all is found."""
        search = self._searches.get(backlog.subscription)
        if search is None:
            if self._cache.newcomers is None:
                self._cache.newcomers = []
            search = Search(len(self._cache.newcomers))
            search.candidates = self._candidates(backlog, search)
            self._searches[backlog.subscription] = search
        end = max(0, self._work.left - most)
        while self._work.left > end:
            before = self._interest.visited
            try:
                subject = next(search.candidates)
            except StopIteration:
                return True
            finally:
                self._work.left -= 1 + self._interest.visited - before
            if subject is not None:
                search.found[subject] = None
        return False

    def _candidates(self, backlog: Backlog, search: "Search") -> Iterator[str | None]:
        """Yield the subjects that are to be brought, and None for what is looked at besides."""
        subscription, known = backlog.subscription, backlog.known
        pattern, settings = subscription.pattern, self._settings
        assert pattern is not None
        yield from self._cache.search(pattern)
        for subject in list(known.positions):
            yield subject if is_one_of(subject, pattern, settings) else None
        for subject in list(known.foreign):
            if is_one_of(subject, pattern, settings) and (
                self._interest.chosen(subscription.session, subject) is subscription
            ):
                search.foreign.append(subject)
            yield None
        newcomers = self._cache.newcomers
        while newcomers is not None and search.newcomers < len(newcomers):
            subject = newcomers[search.newcomers]
            search.newcomers += 1
            yield subject if pattern.matches(segments_of(subject)) else None

    def _found(self, backlog: Backlog, out: list[Output]) -> list[str]:
        """The search is at its end: what it found is to be brought now."""
        subscription = backlog.subscription
        search = self._end_search(subscription)
        assert search is not None
        if search.foreign:
            reset = Reset(history=self._histories.current, subjects=search.foreign)
            out.append(Send(subscription.session.id, reset))
        self._interest.pattern_changed(subscription)
        return list(search.found)

    def _end_search(self, subscription: Subscription) -> "Search | None":
        subscription.searching = False
        search = self._searches.pop(subscription, None)
        if not self._searches:
            self._cache.newcomers = None
        return search

    # -- Turn by turn ------------------------------------------------------------------------------

    def again(
        self, subscription: Subscription, subjects: list[str], now: int, out: list[Output]
    ) -> None:
        """Bring the snapshots of these subjects to a subscription that is in place.

        The caller has the interest find all audiences anew.
        """
        if subscription.searching:
            return  # it will find them
        if subscription.pending is None:
            self.begin(Backlog(subscription, Known(), 0), now, out, subjects)
        else:
            # What it brings already waits in the queue: these wait there as well.
            subscription.pending.update(dict.fromkeys(subjects))

    def _enqueue(
        self, session: Session, backlogs: Iterable[Backlog], now: int, out: list[Output]
    ) -> None:
        if not self._queues:
            out.append(SetTimer(TIMER, now + BRING_PAUSE_MS * NS_PER_MS))
        self._queues.setdefault(session, deque()).extend(backlogs)

    def paced(self, session: Session, now: int, out: list[Output]) -> None:
        """The session has become congested, or is no more."""
        if session.congested:
            queue = self._queues.pop(session, None)
            if queue is not None:
                self._stalled[session] = queue
        elif (stalled := self._stalled.pop(session, None)) is not None:
            self._enqueue(session, stalled, now, out)

    def due(self, now: int, out: list[Output]) -> None:
        """Go on with those who wait, one subject of each session in turn."""
        self._work.begin(out)
        turns = self._settings.brought_at_once
        while self._queues and turns and not self._full(out):
            session, queue = next(iter(self._queues.items()))
            del self._queues[session]
            backlog = queue[0]
            subscription = backlog.subscription
            if subscription.searching:
                if self._search(backlog, SEARCH_TURN):
                    self._keep_waiting(subscription, self._found(backlog, out))
            else:
                turns -= 1
                if subscription.pending:
                    subject, _ = subscription.pending.popitem()
                    self._interest.waiting_changed(subscription, subject)
                    self._bring(backlog, subject, now, out)
                if not subscription.pending:
                    subscription.pending = None
                    queue.popleft()
            if queue:
                self._queues[session] = queue
        if self._queues:
            out.append(SetTimer(TIMER, now + BRING_PAUSE_MS * NS_PER_MS))

    def _bring(self, backlog: Backlog, subject: str, now: int, out: list[Output]) -> None:
        subscription = backlog.subscription
        session, match = subscription.session, subscription.match
        before = self._interest.visited
        chosen = self._interest.chosen(session, subject)
        self._work.left -= 1 + self._interest.visited - before
        if chosen is not subscription:
            return  # a more exact subscription brings it
        if session.waiting is not None and subject in session.waiting:
            self._release(session.waiting[subject])
        positions = backlog.known.positions
        after = positions.get(subject, positions.get(subscription.subject))
        state = self._cache.find(subject)
        if after is not None:
            self._recover(subscription, subject, after, now, out)
            if not backlog.known.replay:
                return
        if state is not None and backlog.history:
            entries = list(self._cache.entries(state, now)[-backlog.history :])
            brought = deliveries(entries, MessageType.HISTORICAL, match)
            out.extend(Send(session.id, delivery) for delivery in brought)
        else:
            self._send_snapshot(session.id, state, match, now, out)

    def _send_snapshot(
        self, session: int, state: SubjectState | None, match: str | None, now: int,
        out: list[Output],
    ) -> None:  # fmt: skip
        if state is None or not self._settings.publish_snapshot:
            return
        snapshot = self._cache.snapshot(state, now)
        if snapshot is not None:
            out.append(Send(session, snapshot.delivery(match)))

    def _recover(
        self,
        subscription: Subscription,
        subject: str,
        after: Position,
        now: int,
        out: list[Output],
    ) -> None:
        session, match = subscription.session, subscription.match
        state = self._cache.find(subject)
        entries = () if state is None else self._cache.entries(state, now)
        found = recover(state, entries, after)
        if isinstance(found, Missed):
            out.append(Send(session.id, Status(status=StatusName.DATA_SYNC, subject=subject)))
            brought = deliveries(found.entries, MessageType.RECOVERED, match, after)
            out.extend(Send(session.id, delivery) for delivery in brought)
        elif isinstance(found, Lost):
            out.append(Send(session.id, self._resync(subject, found)))
            self._send_snapshot(session.id, state, match, now, out)
        else:
            self._wait(Waiting(subscription, subject, after, now + BEHIND_WAIT_S * NS_PER_S), out)

    def _resync(self, subject: str, lost: Lost) -> Status:
        missing = self._missing(subject, lost)
        return Status(status=StatusName.DATA_RESYNC, subject=subject, missing=missing)

    def _missing(self, subject: str, lost: Lost) -> MissingRange:
        history = self._histories.of(subject)
        return MissingRange(
            WirePosition(history, lost.first.epoch, lost.first.seq),
            WirePosition(history, lost.last.epoch, lost.last.seq),
        )

    def taken_over(
        self, state: SubjectState, lost: Lost | None, now: int, out: list[Output]
    ) -> None:
        """Another member's memory of a subject replaced this one's: bring subscribers up to it.

        `lost` is the range that this member missed, None where it knew nothing of the subject.
        """
        for session, match in self._interest.audience(state.subject).all():
            if lost is not None:
                out.append(Send(session, self._resync(state.subject, lost)))
            self._send_snapshot(session, state, match, now, out)

    # -- Those who have seen more ------------------------------------------------------------------

    def _wait(self, waiting: Waiting, out: list[Output]) -> None:
        session = waiting.subscription.session
        if session.waiting is None:
            session.waiting = {}
        session.waiting[waiting.subject] = waiting
        subscription = waiting.subscription
        if subscription.waiting is None:
            subscription.waiting = {}
        subscription.waiting[waiting.subject] = waiting
        self.behind.setdefault(waiting.subject, {})[session] = waiting
        self._interest.waiting_changed(subscription, waiting.subject)
        self._time(session, out)

    def _release(self, waiting: Waiting) -> None:
        subscription, subject = waiting.subscription, waiting.subject
        session = subscription.session
        assert session.waiting is not None
        assert subscription.waiting is not None
        del session.waiting[subject]
        if not session.waiting:
            session.waiting = None
        del subscription.waiting[subject]
        if not subscription.waiting:
            subscription.waiting = None
        behind = self.behind[subject]
        del behind[session]
        if not behind:
            del self.behind[subject]
        self._interest.waiting_changed(subscription, subject)

    def _time(self, session: Session, out: list[Output]) -> None:
        """Set the timer for the next moment at which the session has waited for too long."""
        if session.waiting and session not in self._timed:
            self._timed[session] = None
            # All wait for the same time, so the first one has waited for longest.
            until = next(iter(session.waiting.values())).until
            out.append(SetTimer(("broker", "behind", session.id), until))

    def applied(self, state: SubjectState, now: int, out: list[Output]) -> None:
        """A subject went on: let those go on who have seen no more, or what was dropped."""
        for waiting in list(self.behind.get(state.subject, {}).values()):
            if waiting.after.seq <= state.seq or forked(state, waiting.after):
                self._release(waiting)
                self._recover(waiting.subscription, state.subject, waiting.after, now, out)

    def too_long(self, session: Session, now: int, out: list[Output]) -> bool:
        """The session's timer is due: whether it has waited for too long."""
        self._timed.pop(session, None)
        if session.waiting and next(iter(session.waiting.values())).until <= now:
            return True
        self._time(session, out)
        return False

    def let_go(self, subscription: Subscription) -> None:
        """Nothing is to be brought for a subscription any more."""
        if subscription.pending is not None:
            subscription.pending = None
            if subscription.pattern is None:
                self._interest.waiting_changed(subscription, subscription.subject)
        if subscription.searching:
            self._end_search(subscription)
        for waiting in list((subscription.waiting or {}).values()):
            self._release(waiting)

    def end(self, session: Session, out: list[Output]) -> None:
        """The session ends."""
        self._queues.pop(session, None)
        self._stalled.pop(session, None)
        for waiting in list((session.waiting or {}).values()):
            self._release(waiting)
        if session in self._timed:
            del self._timed[session]
            out.append(CancelTimer(("broker", "behind", session.id)))

    def reset(
        self, session: Session, subjects: list[str], groups: dict[int, None], out: list[Output]
    ) -> None:
        """Tell a session that the numbering of these subscriptions' subjects starts anew.

        What it knew of the subjects in these groups says nothing any more.
        """
        if subjects:
            reset = Reset(history=self._histories.current, subjects=subjects)
            out.append(Send(session.id, reset))
        for waiting in list((session.waiting or {}).values()):
            if self._histories.group(waiting.subject) in groups:
                self._release(waiting)
        queued = (*self._queues.get(session, ()), *self._stalled.get(session, ()))
        for known in {id(backlog.known): backlog.known for backlog in queued}.values():
            known.positions = {
                subject: after
                for subject, after in known.positions.items()
                if after.seq == 0 or self._histories.group(subject) not in groups
            }

    # -- Reading once ------------------------------------------------------------------------------

    def fetched(self, command: Fetch, now: int) -> Fetched:
        """What the HTTP paths ask for."""
        state = self._cache.find(command.subject)
        entries = [] if state is None else list(self._cache.entries(state, now))
        if command.history is not None:
            kept = entries[-command.history :] if command.history > 0 else []
            return Fetched(list(deliveries(kept, MessageType.HISTORICAL)))
        if command.after is not None:
            found = recover(state, entries, command.after)
            if isinstance(found, Lost):
                return Fetched(self._snapshot(state, now), self._missing(command.subject, found))
            missed = found.entries if isinstance(found, Missed) else ()
            return Fetched(list(deliveries(missed, MessageType.RECOVERED, None, command.after)))
        return Fetched(self._snapshot(state, now))

    def _snapshot(self, state: SubjectState | None, now: int) -> list[Delivery]:
        snapshot = None if state is None else self._cache.snapshot(state, now)
        return [] if snapshot is None else [snapshot.delivery()]


def deliveries(
    entries: Iterable[Entry],
    type: MessageType,  # noqa: A002 - the name on the wire
    match: str | None = None,
    before: Position | None = None,
) -> Iterator[Delivery]:
    """Cached messages for one reader, in order; `before` is the position before the first one.

    Where a number does not follow the one before it, the message says which one that was.
    """
    for entry in entries:
        gap = before is not None and before.seq and entry.seq != before.seq + 1
        yield Delivery(entry, type, match, before if gap else None)
        before = Position(entry.epoch, entry.seq)
