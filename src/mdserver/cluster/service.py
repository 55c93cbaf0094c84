"""Whether this member serves clients, and where they go when it does not.

    serving     nothing prevents it              clients come and stay
    unserved    something does (`unready`)       no clients come, and those that are here stay: a
                                                 link that breaks and is dialled anew should cost
                                                 them nothing
    moving      for a suspicion time             clients are sent to other members, and their
                                                 sessions closed

The reason says where to. If this member lacks groups that others have, clients go to those others
(`rebalance`); otherwise to any other member (`no-quorum`), which may see more than this one.

A worker follows the state of its member without waiting: the member has waited already, and tells
it what to do with their clients (`ServerState`).
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from attrs import define, field

from mdserver.cluster.messages import ServerState
from mdserver.cluster.part import MemberPart
from mdserver.core.events import Move
from mdserver.core.outputs import Disconnect, Send
from mdserver.limits import CLOSE_NO_QUORUM

if TYPE_CHECKING:
    from mdserver.cluster.following import Following
    from mdserver.cluster.workers import Workers
    from mdserver.core.broker import Broker

MOVE_DELAY_MS = 200


@define(eq=False)
class Service(MemberPart):
    """Serves the clients of this member, or sends them to others.

    `_sessions` are the sessions that are open here, by number; `_unready` returns why this member
    serves no clients now, None if it does. `told` is what the member of which this is a worker says
    of itself. `_unserved` is since when clients are here and not served (ns), 0 if they are.
    """

    _broker: "Broker"
    _following: "Following"
    _workers: "Workers"
    _sessions: Iterable[int]
    _unready: Callable[[], str | None]
    told: ServerState = field(init=False, factory=ServerState)
    _unserved: int = field(init=False, default=0)

    def drained(self) -> str | None:
        """Return why no further clients should come, though present ones are served; or None."""
        if self._members.weight or self._settings.learner:
            return self.told.drained
        return "drained by an operator (`mdserver cluster drain --undo` takes that back)"

    def elsewhere(self) -> list[str]:
        """Return the client addresses of the other members, to which clients can go instead."""
        if self._settings.learner:
            return list(self.told.elsewhere)
        return [peer.client for peer in self._members.peers.values() if peer.client]

    def look(self) -> None:
        """Send clients elsewhere if they have not been served for too long."""
        reason = self._unready()
        if reason is None or not (self._sessions or self._workers.contacts):
            self._unserved = 0
            return
        self._unserved = self._unserved or self._outgoing.now
        why, servers = self._move()
        if not why:
            return
        for session in self._sessions:
            event = Move(delay_ms=MOVE_DELAY_MS, reason=why, servers=servers or None)
            self._outgoing.out.append(Send(session, event))
            self._outgoing.out.append(Disconnect(session, CLOSE_NO_QUORUM, reason))

    def _move(self) -> tuple[str, list[str]]:
        """Return for which reason clients have to go now, "" if they stay, and where to."""
        if self.told.move:
            return self.told.move, list(self.told.targets)
        if not self._unserved or self._outgoing.now - self._unserved < self._settings.suspect:
            return "", []
        if self._unready() == self._following.unready():
            return "rebalance", self._following.servers()
        return "no-quorum", self.elsewhere()

    def tell_workers(self) -> None:
        """Tell the workers what concerns their clients."""
        if not self._settings.workers:
            return
        move, targets = self._move()
        state = ServerState(
            self._unready(),
            move,
            targets,
            self.elsewhere(),
            self.drained(),
            self._broker.publications.refusing,
        )
        self._workers.tell(state, joined=self._members.joined)

    def take(self, _: str, state: ServerState) -> None:
        """Take what the member of this worker says of itself."""
        self.told = state
        self._broker.publications.refusing = state.refusing
        self.look()
