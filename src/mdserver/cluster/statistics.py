"""Statistics of a node, as values for tests, the simulator and embedding programs.

The classes are snapshots: nothing in them changes afterwards, and nothing done to them changes the
node. The idea is trio's `statistics()`: the state that an invariant is about can be read without
reaching into the objects that hold it. What operators see is made apart from this
(`mdserver.cluster.admin`), since its form is part of the product's interface.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from attrs import frozen

from mdserver.cluster.acceptor import Standing
from mdserver.cluster.coordinator import CoordinatorState
from mdserver.cluster.log import Run

if TYPE_CHECKING:
    from mdserver.cluster.group import Group
    from mdserver.cluster.seeds import Seeds
    from mdserver.cluster.votes import VoteRecord


@frozen
class GroupStatistics:
    """One subject group, as one member has it.

    Of the leadership: `coordinator` and `epoch` are the member that coordinates the group, and its
    epoch, as far as this member knows, "" and 0 if there is none. `active`: its log is established,
    and this member follows it. Of the candidate or coordinator on this member: `coordinator_state`,
    None if there is none; `own_epoch`, its epoch, or 0; `acked`, up to which length each seed acked
    its log.

    Of the log: `history` is its history id, and `log_epoch` the epoch of the coordinator whose log
    it is a prefix of (the accepted epoch). `length` counts all its entries from the first one on,
    `committed` those that are committed, `base` those that were dropped from memory. `numbering`
    has the last sequence number of each subject, `publishers` the last number of each publisher.
    `runs` are the entries that came from one contact together.

    Of the acceptor: `standing` is that of this seed in the group, None if it is no seed. `votes`:
    it counts in majorities. `unverified`: its log was read from a disk that may be an older copy.
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
    unverified: bool

    @property
    def coordinates(self) -> bool:
        """Return whether this member is a candidate or the coordinator."""
        return self.coordinator_state is not None


@frozen
class NodeStatistics:
    """One member.

    Of its vote record: `incarnation`; `admitted`, whether the other seeds rely on the record;
    `known`, the least incarnation that counts of each other seed. `linked` are the members with
    which it has a link, `waiting` the number of publications of its clients without a result.

    Of the seeds: `list_number` is that of the present list, `seeds` are its members, `next_seeds`
    the list that this seed has named to follow it. `settled`: each group has an epoch by it.
    """

    incarnation: int
    admitted: bool
    known: Mapping[str, int]
    linked: tuple[str, ...]
    waiting: int
    groups: tuple[GroupStatistics, ...]
    list_number: int = 1
    seeds: tuple[str, ...] = ()
    next_seeds: tuple[str, ...] = ()
    settled: bool = False

    @property
    def histories(self) -> list[str]:
        """Return the history ids of all groups, in the order of the groups."""
        return [group.history for group in self.groups]

    @property
    def not_voting(self) -> list[int]:
        """Return the groups in which this seed does not vote; none if it is no seed."""
        seeds = (group for group in self.groups if group.standing is not None)
        return [group.index for group in seeds if not group.votes]

    @property
    def record_lost(self) -> bool:
        """Return whether this seed lost its vote record, and waits for an operator."""
        return any(group.standing is Standing.LOST for group in self.groups)

    @property
    def returning(self) -> bool:
        """Return whether an operator takes this seed back, and it does not vote everywhere yet."""
        return any(group.standing is Standing.RETURNING for group in self.groups)

    @property
    def unverified(self) -> bool:
        """Return whether a log here was read from a disk that may be an older copy."""
        return any(group.unverified for group in self.groups)

    @property
    def coordinated(self) -> list[int]:
        """Return the groups that this member coordinates, or is a candidate for."""
        return [group.index for group in self.groups if group.coordinates]


def group_statistics(group: "Group") -> GroupStatistics:
    """Return a snapshot of what a member holds of a group."""
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
        unverified=acceptor is not None and acceptor.unverified,
    )


def node_statistics(
    groups: "Iterable[Group]",
    votes: "VoteRecord",
    linked: Iterable[str],
    seeds: "Seeds",
    *,
    settled: bool,
) -> NodeStatistics:
    """Return a snapshot of a member, with all its groups."""
    return NodeStatistics(
        incarnation=votes.incarnation,
        admitted=votes.admitted,
        known=dict(votes.known),
        linked=tuple(linked),
        waiting=sum(len(group.queue.proposals) for group in groups),
        groups=tuple(group_statistics(group) for group in groups),
        list_number=seeds.number,
        seeds=seeds.names,
        next_seeds=seeds.next,
        settled=settled,
    )
