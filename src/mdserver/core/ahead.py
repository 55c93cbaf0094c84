"""Sessions that have seen more than this member has: they wait for it, for a bounded time.

A lower position would take them back. What they have seen more of is a subject, or the log of a
group.
"""

from collections.abc import Sequence

from mdserver.core.interest import Interest
from mdserver.core.outputs import CancelTimer, Output, SetTimer
from mdserver.core.session import AheadWait, KnownPositions, Session
from mdserver.limits import AHEAD_WAIT_S, NS_PER_S


class AheadWaits:
    """Who waits for this member, for what, and until when."""

    def __init__(self, groups: int, interest: Interest) -> None:
        self._interest = interest
        self.awaited: dict[str, dict[Session, AheadWait]] = {}
        """Subject -> the sessions that have seen more of it than this member has."""
        self.reached = [0] * groups
        """Of each group the place in its log up to which this member has everything."""
        self._places: dict[Session, tuple[list[int], int]] = {}
        """Sessions that know places beyond that, and until when (ns) they wait."""
        self._timed: dict[Session, None] = {}

    def compare(self, session: Session, known: KnownPositions, now: int, out: list[Output]) -> None:
        """Have a session wait whose client has seen more than this member."""
        if known.places is None or session in self._places or not self._lags(known.places):
            return
        until = now + AHEAD_WAIT_S * NS_PER_S
        self._places[session] = known.places, until
        self._time(session, out)

    def _lags(self, places: Sequence[int]) -> bool:
        return any(place > here for place, here in zip(places, self.reached, strict=True))

    def waits_for_places(self, session: Session) -> bool:
        """Return whether a session knows a place in the log of a group that is not here yet."""
        return session in self._places

    def reach(self, group: int, place: int) -> list[Session]:
        """Note that this member has everything of a group up to a place.

        Returns the sessions that know no more than that.
        """
        self.reached[group] = max(self.reached[group], place)
        return self.reached_by() if self._places else []

    def reached_by(self) -> list[Session]:
        """Return the sessions that waited for places which are all here; they wait no more."""
        there = [one for one, (places, _) in self._places.items() if not self._lags(places)]
        for session in there:
            del self._places[session]
        return there

    def wait(self, wait: AheadWait, out: list[Output]) -> None:
        """Keep a subject from a session until this member has got as far."""
        session = wait.subscription.session
        if session.ahead is None:
            session.ahead = {}
        session.ahead[wait.subject] = wait
        subscription = wait.subscription
        if subscription.ahead is None:
            subscription.ahead = {}
        subscription.ahead[wait.subject] = wait
        self.awaited.setdefault(wait.subject, {})[session] = wait
        self._interest.subject_changed(subscription, wait.subject)
        self._time(session, out)

    def release(self, wait: AheadWait) -> None:
        """End a wait for a subject."""
        subscription, subject = wait.subscription, wait.subject
        session = subscription.session
        assert session.ahead is not None
        assert subscription.ahead is not None
        del session.ahead[subject]
        if not session.ahead:
            session.ahead = None
        del subscription.ahead[subject]
        if not subscription.ahead:
            subscription.ahead = None
        awaiting = self.awaited[subject]
        del awaiting[session]
        if not awaiting:
            del self.awaited[subject]
        self._interest.subject_changed(subscription, subject)

    def _time(self, session: Session, out: list[Output]) -> None:
        """Set the timer for the next moment at which the session has waited for too long."""
        until = self._waits_until(session)
        if until is not None and session not in self._timed:
            self._timed[session] = None
            out.append(SetTimer(("broker", "ahead", session.id), until))

    def _waits_until(self, session: Session) -> int | None:
        """Return when the session will have waited for too long, None if it does not wait."""
        # All wait for the same time, so the first one has waited for longest.
        ends = [next(iter(session.ahead.values())).until] if session.ahead else []
        if session in self._places:
            ends.append(self._places[session][1])
        return min(ends, default=None)

    def timed_out(self, session: Session, now: int, out: list[Output]) -> bool:
        """Return whether a session, whose timer is due, has waited too long for this member."""
        self._timed.pop(session, None)
        until = self._waits_until(session)
        if until is not None and until <= now:
            return True
        self._time(session, out)
        return False

    def forget(self, session: Session, out: list[Output]) -> None:
        """Forget what an ended session waited for."""
        self._places.pop(session, None)
        for wait in list((session.ahead or {}).values()):
            self.release(wait)
        if session in self._timed:
            del self._timed[session]
            out.append(CancelTimer(("broker", "ahead", session.id)))
