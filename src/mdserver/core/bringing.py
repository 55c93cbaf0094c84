"""What a subscriber gets of a subject before the live messages: its snapshot, its history, or what
was missed.

That may be a lot: a pattern may match every subject there is. So a step brings a bounded number of
messages, and the rest of the subjects wait for later steps. So does a subject of which the
subscriber has seen more than this member. While a subject waits, its live messages do not go to
the session (`Session.waiting`): they are part of what it gets later.
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
from mdserver.core.recovery import Histories, Lost, Missed, recover
from mdserver.core.session import Session, Waiting
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
        self._queues: dict[Session, deque[Waiting]] = {}
        self._behind: dict[str, dict[Session, Waiting]] = {}
        self._timed: dict[Session, None] = {}

    def bring(
        self, wanted: Waiting, state: SubjectState | None, now: int, out: list[Output]
    ) -> None:
        """Bring a subject up to the live messages, later if this step has brought much already.

        What the session waited for of the subject until now does not count any more.
        """
        earlier = (wanted.subscription.session.waiting or {}).get(wanted.subject)
        if earlier is not None:
            self._release(earlier)
        if len(out) < self._settings.brought_at_once:
            self._bring(wanted, state, now, out)
            return
        if not self._queues:
            out.append(SetTimer(TIMER, now + BRING_PAUSE_MS * NS_PER_MS))
        self._hold(wanted)
        self._queues.setdefault(wanted.subscription.session, deque()).append(wanted)

    def due(self, now: int, out: list[Output]) -> None:
        """Go on with those who wait, one subject of each session in turn."""
        while self._queues and len(out) < self._settings.brought_at_once:
            session, queue = next(iter(self._queues.items()))
            del self._queues[session]
            wanted = queue.popleft()
            if queue:
                self._queues[session] = queue
            if waits(wanted):
                self._release(wanted)
                if self._interest.chosen(session, wanted.subject) is not wanted.subscription:
                    continue
                self._bring(wanted, self._cache.find(wanted.subject), now, out)
        if self._queues:
            out.append(SetTimer(TIMER, now + BRING_PAUSE_MS * NS_PER_MS))

    def _bring(
        self, wanted: Waiting, state: SubjectState | None, now: int, out: list[Output]
    ) -> None:
        session, match = wanted.subscription.session.id, wanted.subscription.match
        if wanted.after is not None:
            self._recover(wanted, wanted.after, state, now, out)
        elif state is not None and wanted.history:
            entries = list(self._cache.entries(state, now))[-wanted.history :]
            brought = deliveries(entries, MessageType.HISTORICAL, match)
            out.extend(Send(session, delivery) for delivery in brought)
        else:
            self._send_snapshot(session, state, match, now, out)

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
        wanted: Waiting,
        after: Position,
        state: SubjectState | None,
        now: int,
        out: list[Output],
    ) -> None:
        session, match = wanted.subscription.session, wanted.subscription.match
        entries = () if state is None else self._cache.entries(state, now)
        found = recover(state, entries, after)
        if isinstance(found, Missed):
            sync = Status(status=StatusName.DATA_SYNC, subject=wanted.subject)
            out.append(Send(session.id, sync))
            brought = deliveries(found.entries, MessageType.RECOVERED, match, after)
            out.extend(Send(session.id, delivery) for delivery in brought)
        elif isinstance(found, Lost):
            out.append(Send(session.id, self._resync(wanted.subject, found)))
            self._send_snapshot(session.id, state, match, now, out)
        else:
            self._hold(wanted)
            self._behind.setdefault(wanted.subject, {})[session] = wanted
            wanted.until = now + BEHIND_WAIT_S * NS_PER_S
            self._time(session, out)

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

    # -- Those who wait ----------------------------------------------------------------------------

    def _hold(self, wanted: Waiting) -> None:
        session = wanted.subscription.session
        if session.waiting is None:
            session.waiting = {}
        session.waiting[wanted.subject] = wanted
        self._interest.waiting_changed(wanted.subject)

    def _release(self, wanted: Waiting) -> None:
        session, subject = wanted.subscription.session, wanted.subject
        assert session.waiting is not None
        del session.waiting[subject]
        if not session.waiting:
            session.waiting = None
        self._interest.waiting_changed(subject)
        behind = self._behind.get(subject)
        if behind is not None and behind.pop(session, None) is not None and not behind:
            del self._behind[subject]

    def _time(self, session: Session, out: list[Output]) -> None:
        """Set the timer for the next moment at which the session has waited for too long."""
        ends = [w.until for w in (session.waiting or {}).values() if w.until]
        if ends and session not in self._timed:
            self._timed[session] = None
            out.append(SetTimer(("broker", "behind", session.id), min(ends)))

    def applied(self, state: SubjectState, now: int, out: list[Output]) -> None:
        """A subject went on: let those go on who have seen no more than that."""
        for wanted in list(self._behind.get(state.subject, {}).values()):
            assert wanted.after is not None
            if wanted.after.seq <= state.seq:
                self._release(wanted)
                self._recover(wanted, wanted.after, state, now, out)

    def too_long(self, session: Session, now: int, out: list[Output]) -> bool:
        """The session's timer is due: whether it has waited for too long."""
        self._timed.pop(session, None)
        if any(w.until and w.until <= now for w in (session.waiting or {}).values()):
            return True
        self._time(session, out)
        return False

    def forget(self, waiting: Iterable[Waiting]) -> None:
        """These subjects are not waited for any more."""
        for wanted in list(waiting):
            self._release(wanted)

    def end(self, session: Session, out: list[Output]) -> None:
        """The session ends."""
        self.forget((session.waiting or {}).values())
        self._queues.pop(session, None)
        if session in self._timed:
            del self._timed[session]
            out.append(CancelTimer(("broker", "behind", session.id)))

    def reset(
        self, session: Session, history: str, subjects: Iterable[str], out: list[Output]
    ) -> None:
        """Tell a session that the numbering of these subscriptions' subjects starts anew."""
        named = dict.fromkeys(subjects)
        if named:
            out.append(Send(session.id, Reset(history=history, subjects=list(named))))
        waiting = (session.waiting or {}).values()
        self.forget(w for w in waiting if w.subscription.subject in named)

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


def waits(wanted: Waiting) -> bool:
    """Whether the session still waits for this."""
    waiting = wanted.subscription.session.waiting
    return waiting is not None and waiting.get(wanted.subject) is wanted


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
