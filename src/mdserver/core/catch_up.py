"""Catching up: what a subscription gets of each of its subjects before the live messages.

That is the snapshot, the last messages (`history`), or, after a position that the client named,
everything that it missed. Until then no live message of the subject goes to the subscription: live
messages are numbered after what it is still to get, so the order of a subject is never broken.

The states of a subscription (`Subscription.catch_up_state`), of which it goes through any number:

- SEARCHING: which subjects a pattern has is being looked up, in the cache and in the positions of
  the command. It gets no live message at all, since any subject may be one of those.
- PENDING: the subjects are known, and those in `pending` have not had their turn. Live messages of
  the others go on.
- AHEAD: all had their turn, but of the subjects in `ahead` the client has seen more than this
  member has. It waits for the member to get there, for at most AHEAD_WAIT_S; then it is moved to
  another member. Nothing goes to it meanwhile, because a lower position would take it back. A
  client that knows a place in the log of a group which this member has not reached yet waits in
  the same way with all that its session is to be brought.
- LIVE: every message goes to it when it is committed.

All this may be a lot: a pattern may match every subject there is, and a client may have many
patterns. So one step does a bounded amount, counted in the subjects and branches that it looks at
(`work_at_once`) and in messages (`brought_at_once`), and later steps go on with what is left, one
subject of each session in turn. Only the first request in the queue of a session searches, so a
session has each subject of the cache waiting at most once, however many patterns it has. The queue
of a session whose client takes no more bytes is paused: the cache keeps everything anyway.
"""

from collections import deque
from collections.abc import Iterable

from mdserver.core.ahead import AheadWaits
from mdserver.core.cache import Cache, SubjectState
from mdserver.core.commands import Fetch
from mdserver.core.events import (
    Delivery,
    Fetched,
    MissingRange,
    Pong,
    Reset,
    Status,
    StatusName,
    WirePosition,
)
from mdserver.core.histories import Histories
from mdserver.core.interest import Interest
from mdserver.core.message import MessageType, Position
from mdserver.core.outputs import Output, Send, SetTimer
from mdserver.core.recovery import Ahead, Lost, Missed, deliveries, forked, recover, recover_since
from mdserver.core.searching import Searches, Work
from mdserver.core.session import AheadWait, CatchUpRequest, KnownPositions, Session, Subscription
from mdserver.core.settings import BrokerSettings
from mdserver.limits import AHEAD_WAIT_S, NS_PER_MS, NS_PER_S, PINGS_WAITING_MAX, STEP_PAUSE_MS

TIMER = ("broker", "catch-up")
SEARCH_TURN = 256
"""How much of a search is one turn of a session that waits."""


class CatchUp:
    """The subscriptions that are not live yet; see the head of this module."""

    def __init__(
        self, settings: BrokerSettings, cache: Cache, interest: Interest, histories: Histories
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._interest = interest
        self._histories = histories
        self._queues: dict[Session, deque[CatchUpRequest]] = {}
        self._stalled: dict[Session, deque[CatchUpRequest]] = {}
        """The queues of those whose clients take no more."""
        self._ahead = AheadWaits(settings.groups, interest)
        self.awaited, self.reached = self._ahead.awaited, self._ahead.reached
        self._work = Work(settings.work_at_once)
        self._searches = Searches(settings, cache, interest, self._work)

    def start(
        self,
        request: CatchUpRequest,
        now: int,
        out: list[Output],
        subjects: list[str] | None = None,
    ) -> None:
        """Catch a subscription up, at once as far as this step has room for it.

        `subjects` are those to bring, if they are known; else they are searched for.
        """
        self._work.begin(out)
        subscription = request.subscription
        session = subscription.session
        subscription.known = request.known
        if subjects is None and subscription.pattern is None:
            subjects = [subscription.subject]
        if subjects is None:
            subscription.searching = True
        self._ahead.compare(session, request.known, now, out)
        stalled = session.congested or self._ahead.waits_for_places(session)
        waits = stalled or session in self._queues
        searches = subscription.searching and not waits
        if searches and self._searches.advance(request, self._work.left):
            subjects = self._found(request, out)
        if subjects is not None:
            brought = 0
            for subject in () if waits else subjects[: self._settings.brought_at_once]:
                if self._full(out):
                    break
                self._bring_one(request, subject, now, out)
                brought += 1
            if brought == len(subjects):
                subscription.known = None
                return
            self._keep_pending(subscription, subjects[brought:])
        if stalled:
            self._stalled.setdefault(session, deque()).append(request)
        else:
            self._enqueue(session, (request,), now, out)

    def reach(self, group: int, place: int, now: int, out: list[Output]) -> None:
        """Note that this member has everything of a group up to a place."""
        for session in self._ahead.reach(group, place):
            self.pause(session, now, out)

    def compare_again(self, now: int, out: list[Output]) -> None:
        """Let those go on that know no more than this member does."""
        for session in self._ahead.reached_by():
            self.pause(session, now, out)

    def timed_out(self, session: Session, now: int, out: list[Output]) -> bool:
        """Return whether a session, whose timer is due, has waited too long for this member."""
        return self._ahead.timed_out(session, now, out)

    def busy(self, session: Session) -> bool:
        """Return whether something is still to be brought to a session, or waited for."""
        return bool(session in self._queues or session in self._stalled or session.ahead)

    def _full(self, out: list[Output]) -> bool:
        return self._work.left <= 0 or len(out) >= self._settings.brought_at_once

    def _keep_pending(self, subscription: Subscription, subjects: list[str]) -> None:
        # The last one is the next one: only that end of a dict is cheap to take from.
        subscription.pending = dict.fromkeys(reversed(subjects))
        if subscription.pattern is None:
            self._interest.subject_changed(subscription, subscription.subject)
        else:
            self._interest.pattern_changed(subscription)

    def _found(self, request: CatchUpRequest, out: list[Output]) -> list[str]:
        """End a search; returns the subjects that it found, which are to be brought now."""
        subscription = request.subscription
        search = self._searches.end(subscription)
        assert search is not None
        if search.foreign:
            reset = Reset(history=self._histories.current, subjects=search.foreign)
            out.append(Send(subscription.session.id, reset))
        self._interest.pattern_changed(subscription)
        return list(search.found)

    # -- Turn by turn ------------------------------------------------------------------------------

    def restart(
        self, subscription: Subscription, subjects: list[str], now: int, out: list[Output]
    ) -> None:
        """Bring the snapshots of these subjects to a subscription that is in place already.

        The caller has the interest find all audiences anew.
        """
        if subscription.searching:
            return  # it will find them
        if subscription.pending is None:
            self.start(CatchUpRequest(subscription, KnownPositions(), 0), now, out, subjects)
        else:
            # What it brings already waits in the queue: these wait there as well.
            subscription.pending.update(dict.fromkeys(subjects))

    def _enqueue(
        self, session: Session, requests: Iterable[CatchUpRequest], now: int, out: list[Output]
    ) -> None:
        if not self._queues:
            out.append(SetTimer(TIMER, now + STEP_PAUSE_MS * NS_PER_MS))
        self._queues.setdefault(session, deque()).extend(requests)

    def pause(self, session: Session, now: int, out: list[Output]) -> None:
        """Pause what a session is to be brought while it is congested, go on when it is not."""
        if session.congested or self._ahead.waits_for_places(session):
            queue = self._queues.pop(session, None)
            if queue is not None:
                self._stalled[session] = queue
        elif (stalled := self._stalled.pop(session, None)) is not None:
            self._enqueue(session, stalled, now, out)

    def caught_up(self, session: Session, pong: Pong, out: list[Output]) -> bool:
        """Send a pong when all that the session's subscriptions bring first has been sent.

        Return whether it is, or will be: only PINGS_WAITING_MAX may wait.
        """
        queue = self._queues.get(session) or self._stalled.get(session)
        if not queue:
            out.append(Send(session.id, pong))
            return True
        # A queue is worked off in its order, so the last request in it is the last to end.
        if sum(len(request.pongs) for request in queue) >= PINGS_WAITING_MAX:
            return False
        queue[-1].pongs.append(pong)
        return True

    def due(self, now: int, out: list[Output]) -> list[Session]:
        """Go on with those who wait, one subject of each session in turn.

        Returns the sessions for which nothing waits here any more.
        """
        done: list[Session] = []
        self._work.begin(out)
        turns = self._settings.brought_at_once
        while self._queues and turns and not self._full(out):
            session, queue = next(iter(self._queues.items()))
            del self._queues[session]
            request = queue[0]
            subscription = request.subscription
            if subscription.searching:
                if self._searches.advance(request, SEARCH_TURN):
                    self._keep_pending(subscription, self._found(request, out))
            else:
                turns -= 1
                if subscription.pending:
                    subject, _ = subscription.pending.popitem()
                    self._interest.subject_changed(subscription, subject)
                    self._bring_one(request, subject, now, out)
                if not subscription.pending:
                    subscription.pending = subscription.known = None
                    out.extend(Send(session.id, pong) for pong in queue.popleft().pongs)
            if queue:
                self._queues[session] = queue
            else:
                done.append(session)
        if self._queues:
            out.append(SetTimer(TIMER, now + STEP_PAUSE_MS * NS_PER_MS))
        return done

    def _bring_one(
        self, request: CatchUpRequest, subject: str, now: int, out: list[Output]
    ) -> None:
        subscription = request.subscription
        session, match = subscription.session, subscription.match
        before = self._interest.visited
        bringing = self._interest.bringing(session, subject)
        self._work.left -= 1 + self._interest.visited - before
        if bringing is not subscription:
            return  # a more exact subscription of the session brings it
        if session.ahead is not None and subject in session.ahead:
            self._ahead.release(session.ahead[subject])
        positions = request.known.positions
        after = positions.get(subject, positions.get(subscription.subject))
        state = self._cache.find(subject)
        if after is not None:
            self._recover(subscription, subject, after, now, out)
            if not request.known.replay:
                return
        elif request.known.places is not None and subscription.pattern is not None:
            place = request.known.places[self._histories.group(subject)]
            if place >= 0:
                self._recover_since(subscription, subject, place, now, out)
                return
        if state is not None and request.history:
            entries = list(self._cache.entries(state, now)[-request.history :])
            brought = deliveries(entries, MessageType.HISTORICAL, match)
            out.extend(Send(session.id, delivery) for delivery in brought)
        else:
            self._send_snapshot(session.id, state, match, now, out)

    def _send_snapshot(
        self,
        session: int,
        state: SubjectState | None,
        match: str | None,
        now: int,
        out: list[Output],
    ) -> None:
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
        state = self._cache.find(subject)
        entries = () if state is None else self._cache.entries(state, now)
        found = recover(state, entries, after)
        if isinstance(found, Ahead):
            wait = AheadWait(subscription, subject, after, now + AHEAD_WAIT_S * NS_PER_S)
            self._ahead.wait(wait, out)
        elif isinstance(found, Missed):
            self._send_missed(subscription, subject, found, after, out)
        else:
            self._send_lost(subscription, subject, found, now, out)

    def _recover_since(
        self, subscription: Subscription, subject: str, place: int, now: int, out: list[Output]
    ) -> None:
        state = self._cache.find(subject)
        entries = () if state is None else self._cache.entries(state, now)
        found = recover_since(state, entries, place)
        if isinstance(found, Lost):
            self._send_lost(subscription, subject, found, now, out)
        elif found.entries:  # most subjects of a pattern have none, and nothing is said of them
            self._send_missed(subscription, subject, found, None, out)

    def _send_missed(
        self,
        subscription: Subscription,
        subject: str,
        missed: Missed,
        after: Position | None,
        out: list[Output],
    ) -> None:
        session = subscription.session.id
        out.append(Send(session, Status(status=StatusName.DATA_SYNC, subject=subject)))
        brought = deliveries(missed.entries, MessageType.RECOVERED, subscription.match, after)
        out.extend(Send(session, delivery) for delivery in brought)

    def _send_lost(
        self, subscription: Subscription, subject: str, lost: Lost, now: int, out: list[Output]
    ) -> None:
        session = subscription.session.id
        out.append(Send(session, self._resync(subject, lost)))
        state = self._cache.find(subject)
        self._send_snapshot(session, state, subscription.match, now, out)

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
        """Bring subscribers up to a subject's state that was taken over from another member.

        `lost` is the range that this member missed, None if they were told of a reset.
        """
        for session, match in self._interest.audience(state.subject).all():
            if lost is not None:
                out.append(Send(session, self._resync(state.subject, lost)))
            self._send_snapshot(session, state, match, now, out)

    # -- Sessions that are ahead of this member ----------------------------------------------------

    def applied(self, state: SubjectState, now: int, out: list[Output]) -> list[Session]:
        """Go on with the sessions that waited for this subject to get where it is now.

        So do those whose position can never be reached (`forked`): they hear of the loss. Returns
        the sessions that went on.
        """
        released: list[Session] = []
        for wait in list(self.awaited.get(state.subject, {}).values()):
            if wait.after.seq <= state.seq or forked(state, wait.after):
                self._ahead.release(wait)
                self._recover(wait.subscription, state.subject, wait.after, now, out)
                released.append(wait.subscription.session)
        return released

    def owed(self, subscription: Subscription) -> dict[str, Position]:
        """Return the positions after which a subscription that ends has not brought anything yet.

        They are for `hand_over`: only those that it would have brought, and others of the session
        may bring now.
        """
        session = subscription.session
        if not session.patterns or (subscription.pattern is not None and len(session.patterns) < 2):
            return {}
        owed = {wait.subject: wait.after for wait in (subscription.ahead or {}).values()}
        positions = subscription.known.positions if subscription.known is not None else {}
        if positions:
            of_all = positions.get(subscription.subject)
            search = self._searches.get(subscription)
            found = subscription.pending if search is None else {**positions, **search.found}
            for subject in found or ():
                after = positions.get(subject, of_all)
                if after is not None and self._interest.chosen(session, subject) is subscription:
                    owed[subject] = after
        return owed

    def hand_over(
        self, session: Session, owed: dict[str, Position], now: int, out: list[Output]
    ) -> None:
        """Have other subscriptions of a session bring what follows these positions.

        Those that were to bring it have ended.
        """
        takers: dict[Subscription, dict[str, Position]] = {}
        for subject, after in owed.items():
            taker = self._interest.chosen(session, subject)
            if taker is not None:
                takers.setdefault(taker, {})[subject] = after
        for taker, positions in takers.items():
            if taker.known is None:
                known = KnownPositions()
                known.positions = positions
                self.start(CatchUpRequest(taker, known, 0), now, out, list(positions))
                continue
            # It waits in the queue for its turn: these subjects wait there as well.
            taker.known.positions = {**positions, **taker.known.positions}
            search = self._searches.get(taker)
            if search is not None:
                search.found.update(dict.fromkeys(positions))
            else:
                self._keep_pending(taker, [*positions, *reversed(taker.pending or ())])

    def cancel(self, subscription: Subscription) -> None:
        """Forget what was still to be brought for a subscription."""
        subscription.known = None
        if subscription.pending is not None:
            subscription.pending = None
            if subscription.pattern is None:
                self._interest.subject_changed(subscription, subscription.subject)
        if subscription.searching:
            self._searches.end(subscription)
        for wait in list((subscription.ahead or {}).values()):
            self._ahead.release(wait)

    def end(self, session: Session, out: list[Output]) -> None:
        """Forget what was still to be brought for a session."""
        self._queues.pop(session, None)
        self._stalled.pop(session, None)
        self._ahead.forget(session, out)

    def reset(
        self, session: Session, subjects: list[str], groups: dict[int, None], out: list[Output]
    ) -> None:
        """Tell a session that the numbering of these subscriptions' subjects starts anew.

        What it knew of the subjects in these groups says nothing any more.
        """
        if subjects:
            reset = Reset(history=self._histories.current, subjects=subjects)
            out.append(Send(session.id, reset))
        for wait in list((session.ahead or {}).values()):
            if self._histories.group(wait.subject) in groups:
                self._ahead.release(wait)
        queued = (*self._queues.get(session, ()), *self._stalled.get(session, ()))
        for known in {id(request.known): request.known for request in queued}.values():
            known.positions = {
                subject: after
                for subject, after in known.positions.items()
                if after.seq == 0 or self._histories.group(subject) not in groups
            }
            for group in groups if known.places is not None else ():
                known.places[group] = -1

    # -- Reading once ------------------------------------------------------------------------------

    def fetched(self, command: Fetch, now: int) -> Fetched:
        """Read a subject once, without a subscription: for the HTTP paths."""
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
