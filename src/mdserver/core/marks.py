"""Places up to which a session was given everything, for clients that note no single positions.

An entry has a place in the log of its subject group, the same at every member. Live messages come
in the order of these places, so the place of the latest one says how far the client got in all
subjects of the group. Where messages come in another order (what a new subscription brings, what is
conflated, what is taken over from another member) a `Mark` says so, and another one follows once
everything up to the places that it names has been given out.
"""

from collections.abc import Sequence

from mdserver.core.catch_up import CatchUp
from mdserver.core.conflation import Conflation
from mdserver.core.events import Mark
from mdserver.core.outputs import Output, Send
from mdserver.core.session import Session, Subscription


class Marks:
    """The sessions that are told places, each with whether the latest mark still holds."""

    def __init__(self, catch_up: CatchUp, conflation: Conflation) -> None:
        self._catch_up = catch_up
        self._conflation = conflation
        self._settled: dict[Session, bool] = {}

    def follow(self, session: Session, out: list[Output]) -> None:
        """Tell a session places from now on."""
        if session.patterns:
            self._settled.setdefault(session, False)
            self.settle((session,), out)

    def end(self, session: Session) -> None:
        """The session ends."""
        self._settled.pop(session, None)

    def unsettle(self, out: list[Output]) -> None:
        """What comes from here on is in no order of places."""
        for session, settled in self._settled.items():
            if settled:
                self._settled[session] = False
                out.append(Send(session.id, Mark(None)))

    def began_anew(self) -> None:
        """Sessions were told a new history id: no place that they know says anything."""
        self._settled = dict.fromkeys(self._settled, False)

    def settle(self, sessions: Sequence[Session] | None, out: list[Output]) -> None:
        """Tell the places to those of the sessions (None: of all) that got everything by now."""
        for session in list(self._settled) if sessions is None else sessions:
            if self._settled.get(session) is False and self._idle(session):
                self._mark(session, out)

    def again(self, session: Session, out: list[Output]) -> None:
        """Tell a session the places anew, if nothing is on its way to it out of their order."""
        if self._settled.get(session) and self._idle(session):
            self._mark(session, out)

    def sent(self, subscriptions: Sequence[Subscription], out: list[Output]) -> None:
        """Everything that was held back for these subscriptions was given out."""
        if self._settled:
            for session in dict.fromkeys(one.session for one in subscriptions):
                self.again(session, out)
                self.settle((session,), out)

    def _idle(self, session: Session) -> bool:
        return not self._catch_up.busy(session) and not any(
            subscription.conflation and self._conflation.holds(subscription)
            for subscription in session.subscriptions.values()
        )

    def _mark(self, session: Session, out: list[Output]) -> None:
        self._settled[session] = True
        ordered = not any(one.conflation for one in session.subscriptions.values())
        out.append(Send(session.id, Mark(tuple(self._catch_up.reached), ordered)))
