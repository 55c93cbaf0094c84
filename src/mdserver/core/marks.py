"""Marks: places up to which a session received everything, for clients that keep no positions.

An entry has a place in the log of its subject group, the same at every member. Live messages come
in the order of these places, so the place of the latest one says how far the client got in all
subjects of the group. That is one number a group instead of one a subject.

It holds only as long as messages come in that order. They do not during the catch-up of a
subscription, under conflation, and while state is taken over from another member. So a session is
in one of two states. If it is settled, its latest mark holds. If it is not, the places mean nothing
until everything that is out of order has been sent (`_idle`); then a new mark names the places
reached, and the session is settled.
"""

from collections.abc import Sequence

from mdserver.core.catch_up import CatchUp
from mdserver.core.conflation import Conflation
from mdserver.core.events import Mark
from mdserver.core.outputs import Output, Send
from mdserver.core.session import Session, Subscription


class Marks:
    """The sessions that follow places, each with whether its latest mark still holds."""

    def __init__(self, catch_up: CatchUp, conflation: Conflation) -> None:
        self._catch_up = catch_up
        self._conflation = conflation
        self._settled: dict[Session, bool] = {}

    def follow(self, session: Session, out: list[Output]) -> None:
        """Send marks to a session from now on; only one with patterns needs them."""
        if session.patterns:
            self._settled.setdefault(session, False)
            self.settle((session,), out)

    def end(self, session: Session) -> None:
        """Stop sending marks to a session that ends."""
        self._settled.pop(session, None)

    def unsettle(self, out: list[Output]) -> None:
        """Tell all sessions that messages from here on do not come in the order of places."""
        for session, settled in self._settled.items():
            if settled:
                self._settled[session] = False
                out.append(Send(session.id, Mark(None)))

    def began_anew(self) -> None:
        """Unsettle all sessions after a new history id, which made their places meaningless.

        No mark is sent: the reset has told them.
        """
        self._settled = dict.fromkeys(self._settled, False)

    def settle(self, sessions: Sequence[Session] | None, out: list[Output]) -> None:
        """Send a mark to each of the sessions (None: all) that is unsettled and has everything."""
        for session in list(self._settled) if sessions is None else sessions:
            if self._settled.get(session) is False and self._idle(session):
                self._mark(session, out)

    def again(self, session: Session, out: list[Output]) -> None:
        """Send a settled session another mark, if nothing is on its way to it out of order."""
        if self._settled.get(session) and self._idle(session):
            self._mark(session, out)

    def sent(self, subscriptions: Sequence[Subscription], out: list[Output]) -> None:
        """Note that everything conflation held back for these subscriptions was sent."""
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
