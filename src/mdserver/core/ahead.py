"""Sessions that have seen more than this member has: they wait for it, for a bounded time.

A client that reconnects may come from a member that was further ahead. The older state of this
member would take the client back, so the session waits until this member has applied as much. A
client says what it has seen either of one subject (`AheadWait`, a position that it named) or of the
log of a subject group (a place in it).

Every wait lasts AHEAD_WAIT_S at most; then the session is moved to another member. A session has
one timer, however many waits it has. Since all waits are equally long, they end in the order in
which they began, and the timer is set for the oldest one. If that wait is over early, the timer
stays: when it is due, `timed_out` finds the next end and sets it again.
"""

from collections.abc import Sequence

from attrs import define

from mdserver.core.interest import Interest
from mdserver.core.outputs import CancelTimer, Output, SetTimer
from mdserver.core.session import AheadWait, KnownPositions, Session
from mdserver.limits import AHEAD_WAIT_S, NS_PER_S


@define(slots=True)
class PlacesWait:
    """A wait for places in the logs of groups, until a time (ns).

    `group` is one in which this member has not reached the place. Only the progress of that group
    is looked at, because clients choose places: if each wait were compared in every group with each
    commit, a thousand that never end would slow down everybody.
    """

    places: list[int]
    until: int
    group: int


class AheadWaits:
    """The sessions that wait for this member, what they wait for, and until when."""

    def __init__(self, groups: int, interest: Interest) -> None:
        self._interest = interest
        self.awaited: dict[str, dict[Session, AheadWait]] = {}
        """Subject -> the sessions that have seen more of it than this member has."""
        self.reached = [0] * groups
        """By group: the place in its log up to which this member has every entry."""
        self.places: dict[Session, PlacesWait] = {}
        """Sessions that know places beyond that."""
        self._in_group: dict[int, dict[Session, None]] = {}
        """The same sessions by the group of their wait."""
        self._timed: dict[Session, None] = {}
        """Sessions whose timer is set."""

    def compare(self, session: Session, known: KnownPositions, now: int, out: list[Output]) -> None:
        """Make a session wait if its client knows a place that this member has not reached."""
        if known.places is None or session in self.places:
            return
        group = self._lags_in(known.places)
        if group is None:
            return
        self.places[session] = PlacesWait(known.places, now + AHEAD_WAIT_S * NS_PER_S, group)
        self._in_group.setdefault(group, {})[session] = None
        self._time(session, out)

    def _lags_in(self, places: Sequence[int]) -> int | None:
        """Return the first group in which a place is not reached here, None if there is none."""
        pairs = enumerate(zip(places, self.reached, strict=True))
        return next((group for group, (place, here) in pairs if place > here), None)

    def waits_for_places(self, session: Session) -> bool:
        """Return whether a session waits for a place that this member has not reached."""
        return session in self.places

    def reached_in(self, group: int) -> list[Session]:
        """End the waits that end with what was reached in a group, and return their sessions."""
        here = self.reached[group]
        waiting = self._in_group.get(group, {})
        return self._compared([one for one in waiting if self.places[one].places[group] <= here])

    def reached_anywhere(self) -> list[Session]:
        """End the waits for places that are all reached by now, and return their sessions."""
        return self._compared(list(self.places))

    def _compared(self, sessions: Sequence[Session]) -> list[Session]:
        """Compare waits anew: end those that are over, and file the others under a group."""
        there = []
        for session in sessions:
            wait = self.places[session]
            group = self._lags_in(wait.places)
            self._unfile(session, wait)
            if group is None:
                del self.places[session]
                there.append(session)
            else:
                wait.group = group
                self._in_group.setdefault(group, {})[session] = None
        return there

    def _unfile(self, session: Session, wait: PlacesWait) -> None:
        waiting = self._in_group[wait.group]
        del waiting[session]
        if not waiting:
            del self._in_group[wait.group]

    def wait(self, wait: AheadWait, out: list[Output]) -> None:
        """Withhold a subject from a session until this member has reached the session's position.

        The wait is found from three sides: the session (its live messages and its deadline), the
        subscription (its end), and the subject (its progress). `release` removes all three.
        """
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
        """Set the timer of a session for the end of its oldest wait, unless it is set already."""
        until = self._waits_until(session)
        if until is not None and session not in self._timed:
            self._timed[session] = None
            out.append(SetTimer(("broker", "ahead", session.id), until))

    def _waits_until(self, session: Session) -> int | None:
        """Return when the oldest wait of a session ends (ns), None if it does not wait."""
        # All waits are equally long, so the first one in the dict is the first to end.
        ends = [next(iter(session.ahead.values())).until] if session.ahead else []
        if session in self.places:
            ends.append(self.places[session].until)
        return min(ends, default=None)

    def timed_out(self, session: Session, now: int, out: list[Output]) -> bool:
        """Return whether a session whose timer is due has waited too long for this member.

        If it has not, the timer is set again for what it still waits for.
        """
        self._timed.pop(session, None)
        until = self._waits_until(session)
        if until is not None and until <= now:
            return True
        self._time(session, out)
        return False

    def forget(self, session: Session, out: list[Output]) -> None:
        """Drop what an ended session waited for."""
        waited = self.places.pop(session, None)
        if waited is not None:
            self._unfile(session, waited)
        for wait in list((session.ahead or {}).values()):
            self.release(wait)
        if session in self._timed:
            del self._timed[session]
            out.append(CancelTimer(("broker", "ahead", session.id)))
