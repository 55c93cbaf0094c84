"""All subject groups of one member, and what has to be done to many of them at once.

Two things belong to a member as a whole although each group has a state of its own:

- *History ids.* Clients know one history id of a server as long as all groups have the same, so
  groups that get a new one in the same step get it together, and clients hear of it once.
- *The vote record.* A seed has one for all its groups: it is lost, taken back and relied on by
  others as a whole, and each group's standing follows from that (`mdserver.cluster.acceptor`).

docs/cluster.md, "Lost memory" and "Vote file".
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mdserver.cluster.acceptor import AcceptorEvent, Standing
from mdserver.cluster.group import Group

if TYPE_CHECKING:
    import random

    from mdserver.cluster.membership import Membership
    from mdserver.cluster.outgoing import Outgoing
    from mdserver.cluster.settings import ClusterSettings
    from mdserver.cluster.stable_storage import StableStorage
    from mdserver.cluster.wal import WalBuffer
    from mdserver.core.broker import Broker


def new_history(rng: "random.Random", age: int = 0) -> str:
    """Return a history id that was never used; ids of a greater age sort behind (`Histories`).

    `age` is an epoch that no seed promised before, so that the id of a later cold start sorts
    behind those of all earlier ones.
    """
    return f"{age:012x}{rng.getrandbits(64):016x}"


class Groups(list[Group]):
    """All groups of a member by their numbers, and what has to be done to many of them at once.

    `anew`: this member lost the record of a time when it was a seed, is to become one again, and
    took an incarnation above those of that time (`Relisting.forgot`).
    """

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
        self.anew = False
        storage.groups = self

    # History ids

    def reset(self, history: str, groups: Sequence[int]) -> None:
        """Put groups under a new history id, and drop everything that is held of them here."""
        for index in groups:
            self[index].clear()
        whole = len(groups) == len(self)
        told = self._note_history(history, groups)
        self._broker.reset(told, None if whole else groups, self._outgoing.now, self._outgoing.out)
        for index in groups:
            self._wal.replaced(self[index], 0, [], [], None)

    def rename(self, history: str, groups: Sequence[int]) -> None:
        """Put groups under a new history id, and keep what is held: it is how that one begins."""
        told = self._note_history(history, groups)
        self._broker.rename(told, groups, self._outgoing.now, self._outgoing.out)

    def _note_history(self, history: str, groups: Sequence[int]) -> str:
        """Note a history id; return the one to show to clients.

        Without votes members may differ in what a history holds. Clients of this member then get an
        id that is this member's own, so that no other member takes their positions for its own.
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
        """Return the groups in which this seed does not vote; none if it is no seed.

        All of them if it has just noted that it is one, and does not take part yet.
        """
        if self[0].acceptor is None:
            return [*range(len(self))] if self._members.seeds.include_me else []
        normal = Standing.NORMAL  # looked up once: asked a few times in each tick, of all groups
        return [
            group.index
            for group in self
            if group.acceptor is not None and group.acceptor.standing is not normal
        ]

    @property
    def record_lost(self) -> bool:
        """Return whether this seed lost its vote record, and waits for an operator."""
        lost = Standing.LOST  # asked a few times in each tick, of all groups: no call for each
        return lost in [group.acceptor.standing for group in self if group.acceptor is not None]

    @property
    def returning(self) -> bool:
        """Return whether an operator takes this seed back, and it does not vote everywhere yet."""
        return any(
            group.acceptor and group.acceptor.standing is Standing.RETURNING for group in self
        )

    @property
    def unverified(self) -> bool:
        """Return whether a log here is as the disk had it, and may be an older copy."""
        return True in [group.acceptor.unverified for group in self if group.acceptor is not None]

    @property
    def standing_known(self) -> bool:
        """Return whether this seed knows if others rely on promises of it.

        It knows if its record says that it was admitted, if it lost its record, or once all other
        seeds said Hello, in which they name the incarnations that they know. Until then its record
        may be an empty one after a loss that it has not noticed, and it promises no cold start
        (`Guard.PREPARE_COLD_EARLY`).
        """
        if (
            self._storage.votes.admitted
            or not self._members.seeds.include_me
            or self.record_lost
            or self.returning
        ):
            return True
        peers = self._members.peers
        return all(peers[seed].greeted for seed in self._members.seeds.others)

    def lose(self) -> None:
        """Stop voting until readmitted: others know more of this seed than its record does.

        If an operator takes this seed back already, that holds for all groups: the loss is the one
        that the operator was asked about.
        """
        returning, self.anew = self.returning, False
        for group in self:
            if group.acceptor is not None:
                group.acceptor.transition(AcceptorEvent.LOSE)
        if returning:
            self.readmit()

    def readmit(self) -> None:
        """Let this seed recover in the groups in which it is LOST: an operator ordered that."""
        for group in self:
            if group.acceptor is not None and group.acceptor.standing is Standing.LOST:
                group.acceptor.transition(AcceptorEvent.READMIT)

    # Coordinators

    @property
    def coordinated(self) -> list[Group]:
        """Return the groups that this member coordinates, or is a candidate for."""
        return [group for group in self if group.coordinator is not None]
