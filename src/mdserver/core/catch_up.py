"""Catch-up: what a subscription receives of each of its subjects before the live messages.

That is the snapshot, the last messages (`history`), or, if the client named a position, everything
that it missed since (`mdserver.core.backfill`). Until then no live message of the subject goes to
the subscription. Live messages have higher positions than what is still to be brought, so holding
them back is what keeps the order of each subject.

A new subscription enters the first of these states that applies to it, and skips those that do not
(`Subscription.catch_up_state`):

- SEARCHING: the subjects of a pattern are being looked up, in the cache and among the positions of
  the command. Any subject of the pattern may turn out to be one of them, so none has live messages
  yet. The end of the search leads to PENDING, or on from there if this step has room for them all.
- PENDING: the subjects are known, and those in `pending` have not had their turn yet. Live messages
  of the other subjects are delivered. When `pending` is empty, the subscription is AHEAD or LIVE.
- AHEAD: every subject had its turn, but the client has seen more of those in `ahead` than this
  member has. Nothing of them is sent, because a lower position would take the client back. As soon
  as the member has caught up with a subject, what follows the client's position is sent, and the
  subject leaves `ahead` (`applied`). After AHEAD_WAIT_S the session is moved to another member.
- LIVE: every message is delivered when it is committed.

`restart` and `hand_over` take a subscription through PENDING again, for some of its subjects.

A subscription that renews a live one of the same name is the exception: while it is SEARCHING or
PENDING it goes on with the live messages, unless the command named a position for the subject, or
places (`Subscription.waits`).

A client may also name places in the logs of subject groups instead of positions. If this member
has not reached one of them, the whole queue of the session waits, under the same deadline.

The invariant is that a session gets the messages of a subject once and in the order of their
positions. It holds because at any time at most one subscription of a session brings a subject
(`Interest.bringing`), and because a subject is removed from `pending` or `ahead` in the same step
in which what was missed of it is sent, so that the next live message follows it without a gap.

A pattern may match every subject there is, and a client may have many patterns. So one step does a
bounded amount of work, counted in the subjects and branches that it looks at (`work_at_once`) and
in messages (`brought_at_once`). Later steps continue with one subject of each session in turn, so
that no session starves another. Only the first request in the queue of a session searches, so each
subject of the cache waits at most once for a session, however many patterns the session has. The
queue of a session whose client takes no more bytes is paused: the cache holds what the session
waits for in any case, and in an outbox it would take memory a second time.
"""

from collections import deque
from collections.abc import Iterable

import msgspec

from mdserver.core.ahead import AheadWaits
from mdserver.core.backfill import Backfill
from mdserver.core.cache import Cache, SubjectState
from mdserver.core.events import Reset
from mdserver.core.histories import Histories
from mdserver.core.interest import Interest
from mdserver.core.message import Position
from mdserver.core.outputs import Output, Send, SetTimer
from mdserver.core.recovery import forked
from mdserver.core.searching import Searches, Work
from mdserver.core.session import AheadWait, CatchUpRequest, KnownPositions, Session, Subscription
from mdserver.core.settings import BrokerSettings
from mdserver.core.statistics import (
    CatchUpStatistics,
    SessionStatistics,
    SubscriptionStatistics,
)
from mdserver.limits import (
    AHEAD_WAIT_S,
    NS_PER_MS,
    NS_PER_S,
    PINGS_WAITING_MAX,
    STEP_PAUSE_MS,
    SUBJECTS_PER_COMMAND_MAX,
)

TIMER = ("broker", "catch-up")
SEARCH_TURN = 256
"""The units of `Work` that a session may spend on a search before the turn of the next session."""


class CatchUp:
    """The subscriptions that are not live yet; the module's docstring has the theory."""

    def __init__(
        self,
        settings: BrokerSettings,
        cache: Cache,
        interest: Interest,
        histories: Histories,
        backfill: Backfill,
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._interest = interest
        self._histories = histories
        self._backfill = backfill
        self._queues: dict[Session, deque[CatchUpRequest]] = {}
        self._stalled: dict[Session, deque[CatchUpRequest]] = {}
        """Paused queues: the client takes no more bytes, or knows places not reached here yet."""
        self._ahead = AheadWaits(settings.groups, interest)
        self.awaited, self.reached = self._ahead.awaited, self._ahead.reached
        self._work = Work(settings.work_at_once)
        self._searches = Searches(settings, cache, interest, self._work)

    def statistics(self) -> CatchUpStatistics:
        """Return the state of all catch-ups as a snapshot."""
        return CatchUpStatistics(
            searches=len(self._searches), awaited=tuple(self.awaited), worked=self._work.done
        )

    def session_statistics(self, session: Session) -> SessionStatistics:
        """Return the state of a session, with its catch-up, as a snapshot."""
        return SessionStatistics(
            number=session.id,
            state=session.state,
            subscriptions=tuple(
                SubscriptionStatistics(
                    subject=one.subject,
                    catch_up_state=one.catch_up_state,
                    pending=len(one.pending or ()),
                    ahead=tuple(one.ahead or ()),
                )
                for one in session.subscriptions.values()
            ),
            busy=self.busy(session),
            ahead=tuple(session.ahead or ()),
            ended=tuple(session.ended or ()),
        )

    def start(
        self,
        request: CatchUpRequest,
        now: int,
        out: list[Output],
        subjects: list[str] | None = None,
    ) -> None:
        """Begin the catch-up of a subscription, and do as much of it as this step has room for.

        `subjects` are the subjects to bring; None stands for all of the subscription, which are
        searched for if it has a pattern.
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
        # Only the first request of a session holds a list of found subjects. If all its patterns
        # searched at the same time, a subject could wait once for each of them.
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
        """Note that this member has every entry of a group's log up to a place."""
        self.reached[group] = max(self.reached[group], place)
        if self._ahead.places:  # rarely: sessions that come from a member that was further ahead
            for session in self._ahead.reached_in(group):
                self.pause(session, now, out)

    def compare_again(self, now: int, out: list[Output]) -> None:
        """Resume the sessions whose known places this member has reached.

        This is called when the known places themselves change, because a new history makes them
        meaningless (`reset`).
        """
        for session in self._ahead.reached_anywhere():
            self.pause(session, now, out)

    def timed_out(self, session: Session, now: int, out: list[Output]) -> bool:
        """Return whether a session whose timer is due has waited too long for this member."""
        return self._ahead.timed_out(session, now, out)

    def busy(self, session: Session) -> bool:
        """Return whether something is still to be brought to a session, or waited for."""
        return bool(session in self._queues or session in self._stalled or session.ahead)

    def _full(self, out: list[Output]) -> bool:
        """Return whether this step has done as much as one step may."""
        return self._work.left <= 0 or len(out) >= self._settings.brought_at_once

    def _keep_pending(self, subscription: Subscription, subjects: list[str]) -> None:
        """Note the subjects of a subscription that it is still to get, and is not live in."""
        # Reversed, so that `popitem` takes the first subject: taking the first key of a large dict
        # over and over skips all the slots that were freed before it.
        subscription.pending = dict.fromkeys(reversed(subjects))
        if subscription.pattern is None:
            self._interest.subject_changed(subscription, subscription.subject)
        else:
            self._interest.pattern_changed(subscription)

    def _found(self, request: CatchUpRequest, out: list[Output]) -> list[str]:
        """End a search, and return the subjects that it found, which are to be brought now."""
        subscription = request.subscription
        search = self._searches.end(subscription)
        assert search is not None
        if search.foreign:
            reset = Reset(history=self._histories.current, subjects=search.foreign)
            out.append(Send(subscription.session.id, reset))
        self._backfill.tell_forgotten(request, out)
        self._interest.pattern_changed(subscription)
        return list(search.found)

    # -- Turn by turn ------------------------------------------------------------------------------

    def restart(
        self, subscription: Subscription, subjects: list[str], now: int, out: list[Output]
    ) -> None:
        """Bring the snapshots of these subjects to a subscription that exists already.

        The caller invalidates the audiences (`Interest.changed`).
        """
        if subscription.searching:
            return  # The search that is under way finds these subjects as well.
        if subscription.pending is None:
            self.start(CatchUpRequest(subscription, KnownPositions(), 0), now, out, subjects)
        else:
            # Its request is in the queue already and works through `pending`.
            subscription.pending.update(dict.fromkeys(subjects))

    def _enqueue(
        self, session: Session, requests: Iterable[CatchUpRequest], now: int, out: list[Output]
    ) -> None:
        """Add requests to the queue of a session, and start the timer if no queue was there."""
        if not self._queues:
            out.append(SetTimer(TIMER, now + STEP_PAUSE_MS * NS_PER_MS))
        self._queues.setdefault(session, deque()).extend(requests)

    def pause(self, session: Session, now: int, out: list[Output]) -> None:
        """Pause or resume the queue of a session, as its state demands."""
        if session.congested or self._ahead.waits_for_places(session):
            queue = self._queues.pop(session, None)
            if queue is not None:
                self._stalled[session] = queue
        elif (stalled := self._stalled.pop(session, None)) is not None:
            self._enqueue(session, stalled, now, out)

    def caught_up(self, session: Session, t: msgspec.Raw, out: list[Output]) -> bool:
        """Answer a ping as soon as the catch-up of all the session's subscriptions has been sent.

        Returns False if PINGS_WAITING_MAX pongs wait already; this one is then not sent.
        """
        queue = self._queues.get(session) or self._stalled.get(session)
        if not queue:
            out.append(Send(session.id, session.pong(t, self._histories.current)))
            return True
        # Requests are carried out in their order, so the last one in the queue ends last.
        if sum(len(request.pongs) for request in queue) >= PINGS_WAITING_MAX:
            return False
        queue[-1].pongs.append(t)
        return True

    def due(self, now: int, out: list[Output]) -> list[Session]:
        """Continue with the queued requests, one subject of each session in turn.

        Returns the sessions whose queue became empty.
        """
        done: list[Session] = []
        self._work.begin(out)
        turns = self._settings.brought_at_once
        while self._queues and turns and not self._full(out):
            # Sessions take turns: the first one is taken out, and put back as the last one below.
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
                    history = self._histories.current
                    answers = [session.pong(t, history) for t in queue.popleft().pongs]
                    out.extend(Send(session.id, pong) for pong in answers)
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
        """Send what precedes the live messages of a subject, if this request is to bring it.

        That is what was missed since the subject's position; without one, what was missed since the
        place in the log of its group; without that, the last `history` messages, or the snapshot.
        With `replay`, history or snapshot also follow what was missed since a position. Both wait
        if the position is ahead of this member, whose snapshot would take the client back.
        """
        subscription = request.subscription
        session = subscription.session
        before = self._interest.visited
        bringing = self._interest.bringing(session, subject)
        self._work.left -= 1 + self._interest.visited - before
        if bringing is not subscription:
            return  # Another subscription of the session brings it: a message goes out once.
        if session.ahead is not None and subject in session.ahead:
            # This request decides anew how far the client is, so an earlier wait ends.
            self._ahead.release(session.ahead[subject])
        positions = request.known.positions
        # A position under the text of a pattern counts for every subject without one of its own.
        after = positions.get(subject, positions.get(subscription.subject))
        if after is not None:
            replayed = request.history if request.known.replay else None
            self._recover(subscription, subject, after, replayed, now, out)
            return
        if request.known.places is not None and subscription.pattern is not None:
            place = request.known.places[self._histories.group(subject)]
            if place >= 0:
                self._backfill.send_since(subscription, subject, place, now, out)
                return
        sent = len(out)
        self._backfill.send_latest(subscription, subject, request.history, now, out)
        if len(out) == sent:
            self._tell_begun(subscription, subject)

    def _tell_begun(self, subscription: Subscription, subject: str) -> None:
        """Have a client told where a subject stood that had nothing to bring.

        Without that it has no position before the first message comes, and what it misses until
        then would be lost without a word. Nothing is told if messages before this position may be
        on their way: those of a subscription that is renewed, or in the windows of a pattern.
        """
        session = subscription.session
        if subscription.pattern is not None or subscription.renews:
            return
        patterns = session.patterns or {}
        # A session may have a thousand patterns, and ask for ten times as many subjects.
        self._work.left -= len(patterns)
        if any(pattern.conflation for pattern in patterns.values()):
            return
        at = self._backfill.newest(subject)
        if at is None:
            return
        begun = session.begun = {} if session.begun is None else session.begun
        if len(begun) < SUBJECTS_PER_COMMAND_MAX:
            begun[subject] = at

    def _recover(
        self,
        subscription: Subscription,
        subject: str,
        after: Position,
        replayed: int | None,
        now: int,
        out: list[Output],
    ) -> None:
        """Send what was missed of a subject since a position, or wait if that is ahead.

        `replayed` is how many messages of its history follow, 0 for its snapshot, None for neither.
        """
        if not self._backfill.send_after(subscription, subject, after, now, out):
            until = now + AHEAD_WAIT_S * NS_PER_S
            self._ahead.wait(AheadWait(subscription, subject, after, until, replayed), out)
        elif replayed is not None:
            self._backfill.send_latest(subscription, subject, replayed, now, out)

    # -- Sessions that are ahead of this member ----------------------------------------------------

    def applied(self, state: SubjectState, now: int, out: list[Output]) -> list[Session]:
        """Resume the sessions that waited for this subject to reach its present position.

        Sessions whose position can never be reached (`forked`) resume too, and are sent the range
        that is lost. Returns the sessions that resumed.
        """
        released: list[Session] = []
        for wait in list(self.awaited.get(state.subject, {}).values()):
            if wait.after.seq <= state.seq or forked(state, wait.after):
                self._ahead.release(wait)
                self._recover(wait.subscription, state.subject, wait.after, wait.replayed, now, out)
                released.append(wait.subscription.session)
        return released

    def floor_rose(self, group: int, now: int, out: list[Output]) -> list[Session]:
        """Resume sessions that waited for a position which no subject of the group has any more.

        They wait for subjects that this member does not know, because it forgot them.
        Returns the sessions that resumed.
        """
        released: list[Session] = []
        floor = self._cache.floors[group]
        for subject in [one for one in self.awaited if self._histories.group(one) == group]:
            state = self._cache.find(subject)
            if state is not None and state.seq:
                continue
            for wait in list(self.awaited.get(subject, {}).values()):
                if wait.after.seq <= floor.seq:
                    self._ahead.release(wait)
                    self._recover(wait.subscription, subject, wait.after, wait.replayed, now, out)
                    released.append(wait.subscription.session)
        return released

    def owed(self, subscription: Subscription) -> dict[str, Position]:
        """Return the positions after which a subscription that ends has not brought anything yet.

        They are for `hand_over`, and are limited to subjects that this subscription would have
        brought and that another subscription of the session may bring now. Without that a client
        would miss what came after a position which it named, although it is still subscribed.
        """
        # Only a less exact subscription can take a subject over, and that is always a pattern.
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

        The subscriptions that were to bring it have ended (`owed`).
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
            # Its request is in the queue already. A position that it knows itself takes precedence.
            taker.known.positions = {**positions, **taker.known.positions}
            search = self._searches.get(taker)
            if search is not None:
                search.found.update(dict.fromkeys(positions))
            else:
                self._keep_pending(taker, [*positions, *reversed(taker.pending or ())])

    def cancel(self, subscription: Subscription) -> None:
        """Drop what was still to be brought for a subscription.

        A request in the queue stays there; with nothing pending its turn is empty and sends pongs.
        """
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
        """Drop what was still to be brought for a session."""
        self._queues.pop(session, None)
        self._stalled.pop(session, None)
        self._ahead.forget(session, out)

    def reset(
        self, session: Session, subjects: list[str], groups: dict[int, None], out: list[Output]
    ) -> None:
        """Tell a session that the numbering of these subscriptions' subjects starts anew.

        The positions and places that it named in these groups are dropped: they mean nothing under
        another history id.
        """
        if subjects:
            reset = Reset(history=self._histories.current, subjects=subjects)
            out.append(Send(session.id, reset))
        for wait in list((session.ahead or {}).values()):
            if self._histories.group(wait.subject) in groups:
                self._ahead.release(wait)
        if session.begun is not None:
            for subject in [s for s in session.begun if self._histories.group(s) in groups]:
                del session.begun[subject]
        queued = (*self._queues.get(session, ()), *self._stalled.get(session, ()))
        # All requests of a command share one object, so each is changed once.
        for known in {id(request.known): request.known for request in queued}.values():
            # seq 0 means "from the beginning", which is true of every history.
            known.positions = {
                subject: after
                for subject, after in known.positions.items()
                if after.seq == 0 or self._histories.group(subject) not in groups
            }
            for group in groups if known.places is not None else ():
                known.places[group] = -1
