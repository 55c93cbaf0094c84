"""All subject groups of one member, and what has to be done to many of them at once.

Clients know one history id of a server as long as all groups have the same, so groups get a new one
together. And a seed has one vote record for all its groups: it is lost, taken back and counted on
by others as a whole, although each group has a standing of its own.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mdserver.cluster.acceptor import AcceptorEvent, Standing
from mdserver.cluster.group import Group
from mdserver.cluster.settings import delay

if TYPE_CHECKING:
    import random

    from mdserver.cluster.membership import Membership
    from mdserver.cluster.outgoing import Outgoing
    from mdserver.cluster.settings import ClusterSettings
    from mdserver.cluster.stable_storage import StableStorage
    from mdserver.cluster.wal import WalBuffer
    from mdserver.core.broker import Broker


def new_history(rng: "random.Random", age: int = 0) -> str:
    """Return a history id that was never used; ids of a greater age sort behind (`Histories`)."""
    return f"{age:012x}{rng.getrandbits(64):016x}"


class Groups(list[Group]):
    """All groups of a member by their numbers, and what has to be done to many of them at once."""

    def __init__(
        self,
        groups: Iterable[Group],
        settings: "ClusterSettings",
        broker: "Broker",
        members: "Membership",
        outgoing: "Outgoing",
        storage: "StableStorage",
        wal: "WalBuffer",
        rng: "random.Random",
    ) -> None:
        super().__init__(groups)
        self._settings = settings
        self._broker = broker
        self._members = members
        self._outgoing = outgoing
        self._storage = storage
        self._wal = wal
        self._rng = rng
        self._histories_told = 0

    # History ids

    def reset(self, history: str, groups: Sequence[int]) -> None:
        """Put groups under a new history id: all that is held of them here is void."""
        for index in groups:
            self[index].clear()
        whole = len(groups) == len(self)
        told = self._note_history(history, groups)
        self._broker.reset(told, None if whole else groups, self._outgoing.now, self._outgoing.out)
        for index in groups:
            self._wal.replaced(self[index], 0, [], [], None)

    def rename(self, history: str, groups: Sequence[int]) -> None:
        """Put groups under a new history id of which what is held here is the beginning."""
        told = self._note_history(history, groups)
        self._broker.rename(told, groups, self._outgoing.now, self._outgoing.out)

    def _note_history(self, history: str, groups: Sequence[int]) -> str:
        """Note a history id; return the one that clients are told.

        Without votes members may differ in what a history holds: clients are then told an id of
        this member's own, so that no other member takes a position in it for one of its own.
        """
        for index in groups:
            self[index].history = history
            self[index].leadership.active = False
        self._outgoing.log("new history", history=history, groups=len(groups))
        if self._settings.guaranteed:
            return history
        self._histories_told += 1
        return new_history(self._rng, self._histories_told)

    # The standings of this seed over all groups

    @property
    def not_voting(self) -> list[int]:
        """Return the groups in which this seed does not vote; none if it is no seed."""
        return [
            group.index
            for group in self
            if group.acceptor is not None and group.acceptor.standing is not Standing.NORMAL
        ]

    @property
    def record_lost(self) -> bool:
        """Return whether this seed lost its vote record, and waits for an operator."""
        return any(group.acceptor and group.acceptor.standing is Standing.LOST for group in self)

    @property
    def returning(self) -> bool:
        """Return whether an operator takes this seed back, and it does not vote everywhere yet."""
        return any(
            group.acceptor and group.acceptor.standing is Standing.RETURNING for group in self
        )

    @property
    def doubted(self) -> bool:
        """Return whether a log here is as the disk had it, and may be an older copy."""
        return any(group.acceptor and group.acceptor.doubted for group in self)

    @property
    def standing_known(self) -> bool:
        """Return whether this seed knows if others know of it: its record or all others say so.

        Without that it promises no cold start: it would not know afterwards whether they know what
        it is now, or what it was before it lost its record.
        """
        settings = self._settings
        if (
            self._storage.votes.admitted
            or not settings.is_seed
            or self.record_lost
            or self.returning
        ):
            return True
        peers = self._members.peers
        return all(peers[seed].greeted for seed in settings.seeds if seed != settings.me)

    def admit(self) -> bool:
        """Have others count on this vote record once every group took this seed in; return if so.

        The caller stores the record.
        """
        votes = self._storage.votes
        if not self._settings.is_seed or votes.admitted or self.not_voting:
            return False
        votes.admitted = True
        return True

    def lose(self) -> None:
        """Stop voting until readmitted: others know more of this seed than its record does.

        What an operator said of this loss holds for all groups.
        """
        returning = self.returning
        for group in self:
            if group.acceptor is not None:
                group.acceptor.transition(AcceptorEvent.LOSE)
        if returning:
            self.readmit()

    def readmit(self) -> None:
        """Take this seed back, by an operator's word, in the groups in which it waits for that."""
        for group in self:
            if group.acceptor is not None and group.acceptor.standing is Standing.LOST:
                group.acceptor.transition(AcceptorEvent.READMIT)

    # Coordinators

    def depose(self, index: int, epoch: int = 0) -> None:
        """Stop being a group's candidate or coordinator, and wait a little before a new try.

        `epoch` is the newer one that is the reason, if there is one.
        """
        group = self[index]
        coordinator, group.coordinator = group.coordinator, None
        group.newest_epoch = max(group.newest_epoch, epoch)
        if coordinator is not None:
            coordinator.stop()
            group.trace("Stop", coordinator.epoch)
            group.retry_at = self._outgoing.now + delay(self._settings, self._rng, 0)

    @property
    def coordinated(self) -> list[Group]:
        """Return the groups that this member coordinates, or is a candidate for."""
        return [group for group in self if group.coordinator is not None]
