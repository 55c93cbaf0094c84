"""What a subscriber gets of a subject before the live messages: its snapshot, its history, or what
was missed.

That may be a lot: a pattern may match every subject there is. So a step brings a bounded number of
messages, and the rest of the subjects wait for later steps (`Subscription.pending`), and those of
a client that takes no more until it does: the cache keeps them anyway. So does a subject wait of
which the subscriber has seen more than this member (`Session.waiting`). While a subject waits, its
live messages do not go to the session: they are part of what it gets later.
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
from mdserver.core.session import Backlog, Session, Subscription, Waiting
from mdserver.core.settings import BrokerSettings
from mdserver.limits import BEHIND_WAIT_S, BRING_PAUSE_MS, NS_PER_MS, NS_PER_S

TIMER = ("broker", "bring")


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

    def begin(self, backlog: Backlog, subjects: list[str], now: int, out: list[Output]) -> None:
        """Bring these subjects of a new subscription, later those for which this step is full."""
        session = backlog.subscription.session
        brought = 0
        if not session.congested and session not in self._queues:
            for subject in subjects[: self._settings.brought_at_once]:
                if len(out) >= self._settings.brought_at_once:
                    break
                self._bring(backlog, subject, now, out)
                brought += 1
        if brought == len(subjects):
            return
        # The last one is the next one: only that end of a dict is cheap to take from.
        backlog.subscription.pending = dict.fromkeys(reversed(subjects[brought:]))
        if backlog.subscription.pattern is None:
            self._interest.waiting_changed(backlog.subscription.subject)
        if session.congested:
            self._stalled.setdefault(session, deque()).append(backlog)
        else:
            self._enqueue(session, (backlog,), now, out)

    def again(
        self, subscription: Subscription, subjects: list[str], now: int, out: list[Output]
    ) -> None:
        """Bring the snapshots of these subjects to a subscription that is in place.

        The caller has the interest find all audiences anew.
        """
        if subscription.pending is None:
            self.begin(Backlog(subscription, {}, 0), subjects, now, out)
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
        turns = self._settings.brought_at_once
        while self._queues and turns and len(out) < self._settings.brought_at_once:
            turns -= 1
            session, queue = next(iter(self._queues.items()))
            del self._queues[session]
            pending = queue[0].subscription.pending
            if pending:
                subject, _ = pending.popitem()
                self._interest.waiting_changed(subject)
                self._bring(queue[0], subject, now, out)
            if not pending:
                queue.popleft().subscription.pending = None
            if queue:
                self._queues[session] = queue
        if self._queues:
            out.append(SetTimer(TIMER, now + BRING_PAUSE_MS * NS_PER_MS))

    def _bring(self, backlog: Backlog, subject: str, now: int, out: list[Output]) -> None:
        subscription = backlog.subscription
        session, match = subscription.session, subscription.match
        if self._interest.chosen(session, subject) is not subscription:
            return  # a more exact subscription brings it
        if session.waiting is not None and subject in session.waiting:
            self._release(session.waiting[subject])
        after = backlog.positions.get(subject, backlog.positions.get(subscription.subject))
        state = self._cache.find(subject)
        if after is not None:
            self._recover(subscription, subject, after, now, out)
        elif state is not None and backlog.history:
            entries = list(self._cache.entries(state, now))[-backlog.history :]
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
        self.behind.setdefault(waiting.subject, {})[session] = waiting
        self._interest.waiting_changed(waiting.subject)
        self._time(session, out)

    def _release(self, waiting: Waiting) -> None:
        session, subject = waiting.subscription.session, waiting.subject
        assert session.waiting is not None
        del session.waiting[subject]
        if not session.waiting:
            session.waiting = None
        behind = self.behind[subject]
        del behind[session]
        if not behind:
            del self.behind[subject]
        self._interest.waiting_changed(subject)

    def _time(self, session: Session, out: list[Output]) -> None:
        """Set the timer for the next moment at which the session has waited for too long."""
        if session.waiting and session not in self._timed:
            self._timed[session] = None
            until = min(waiting.until for waiting in session.waiting.values())
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
        if any(waiting.until <= now for waiting in (session.waiting or {}).values()):
            return True
        self._time(session, out)
        return False

    def let_go(self, subscription: Subscription) -> None:
        """Nothing is to be brought for a subscription any more."""
        if subscription.pending is not None:
            subscription.pending = None
            self._interest.waiting_changed(subscription.subject)
        for waiting in list((subscription.session.waiting or {}).values()):
            if waiting.subscription is subscription:
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
        for backlog in (*self._queues.get(session, ()), *self._stalled.get(session, ())):
            backlog.positions = {
                subject: after
                for subject, after in backlog.positions.items()
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
