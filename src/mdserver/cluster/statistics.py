"""What tests, the simulator and embedding programs may ask of a node, as values.

The classes below are snapshots: nothing in them changes afterwards, and nothing done to them
changes the node. What operators see is made apart from them (`mdserver.cluster.admin`), since its
form is part of the product's interface.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from attrs import frozen

from mdserver.cluster.acceptor import Standing
from mdserver.cluster.coordinator import CoordinatorState
from mdserver.cluster.log import Run

if TYPE_CHECKING:
    from mdserver.cluster.group import Group
    from mdserver.cluster.votes import VoteRecord


@frozen
class GroupStatistics:
    """One subject group, as one member has it.

    `coordinator` and `epoch`: who coordinates it as far as this member knows, "" and 0 if nobody;
    `active`: its log is established, and this member follows it. `coordinator_state`: of the
    candidate or coordinator on this member, None if it is neither; `own_epoch`: its epoch, and
    `acked`: up to where each seed then holds the log.

    `log_epoch`, `base`, `length` and `committed`: the epoch in which the log was last extended, and
    how many of its entries are gone, there, and committed. `numbering`: the last number of each
    subject, and `publishers` of each publisher. `runs`: what was forwarded together.

    `standing`: of this seed in the group, None if it is none; `votes`: it counts in majorities;
    `doubted`: what it holds may be an older copy.
    """

    index: int
    history: str
    coordinator: str
    epoch: int
    active: bool
    coordinator_state: CoordinatorState | None
    own_epoch: int
    acked: Mapping[str, int]
    log_epoch: int
    base: int
    length: int
    committed: int
    numbering: Mapping[str, int]
    publishers: Mapping[str, int]
    runs: tuple[Run, ...]
    standing: Standing | None
    votes: bool
    doubted: bool

    @property
    def coordinates(self) -> bool:
        """Whether this member is a candidate or the coordinator."""
        return self.coordinator_state is not None


@frozen
class NodeStatistics:
    """One member.

    `incarnation`: of its vote record; `admitted`: the other seeds count on it; `known`: the least
    incarnation that it takes from other seeds. `linked`: the members with which it has a link.
    `waiting`: how many publications of its clients wait for their results.
    """

    incarnation: int
    admitted: bool
    known: Mapping[str, int]
    linked: tuple[str, ...]
    waiting: int
    groups: tuple[GroupStatistics, ...]

    @property
    def histories(self) -> list[str]:
        """The history ids of all groups, in their order."""
        return [group.history for group in self.groups]

    @property
    def not_voting(self) -> list[int]:
        """The groups in which this seed does not vote."""
        seeds = (group for group in self.groups if group.standing is not None)
        return [group.index for group in seeds if not group.votes]

    @property
    def record_lost(self) -> bool:
        """Whether this seed lost its vote record, and waits for an operator."""
        return any(group.standing is Standing.LOST for group in self.groups)

    @property
    def returning(self) -> bool:
        """Whether an operator takes this seed back, and it does not vote everywhere yet."""
        return any(group.standing is Standing.RETURNING for group in self.groups)

    @property
    def doubted(self) -> bool:
        """Whether a log here is as the disk had it, and may be an older copy."""
        return any(group.doubted for group in self.groups)

    @property
    def coordinated(self) -> list[int]:
        """The groups that this member coordinates, or is a candidate for."""
        return [group.index for group in self.groups if group.coordinates]


def group_statistics(group: "Group") -> GroupStatistics:
    """Return what a member holds of a group now."""
    leadership, log, acceptor = group.leadership, group.log, group.acceptor
    coordinator = group.coordinator
    return GroupStatistics(
        index=group.index,
        history=group.history,
        coordinator=leadership.coordinator,
        epoch=leadership.epoch,
        active=leadership.active,
        coordinator_state=None if coordinator is None else coordinator.state,
        own_epoch=0 if coordinator is None else coordinator.epoch,
        acked={} if coordinator is None else dict(coordinator.acked),
        log_epoch=log.epoch,
        base=log.base,
        length=log.length,
        committed=log.committed,
        numbering=dict(log.numbering),
        publishers={name: known.last for name, known in log.publishers.table.items()},
        runs=tuple(log.runs),
        standing=None if acceptor is None else acceptor.standing,
        votes=group.votes_here,
        doubted=acceptor is not None and acceptor.doubted,
    )


def node_statistics(
    groups: "Iterable[Group]",
    votes: "VoteRecord",
    linked: Iterable[str],
) -> NodeStatistics:
    """Return what a member holds now."""
    return NodeStatistics(
        incarnation=votes.incarnation,
        admitted=votes.admitted,
        known=dict(votes.known),
        linked=tuple(linked),
        waiting=sum(len(group.queue.proposals) for group in groups),
        groups=tuple(group_statistics(group) for group in groups),
    )
