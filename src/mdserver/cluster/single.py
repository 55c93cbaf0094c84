"""The short way of publications through the logs of a single server.

A single server is a cluster of one seed, so a publication could go the way that it goes in any
cluster: a ticket in the queue of its group, a message to the coordinator, a number, an ack, a
commit, and the result read off the log. On a server that is its own majority nothing can come
between the first of these and the last, unless something waits: for the disk, for an earlier
publication, or for a look at what its publisher numbered before. If nothing does, an entry is
committed as it gets its place, in the same order and at the same places, and the publications of
all groups that a step brings are delivered and answered together.

Whatever waits takes the way of a cluster (`Group.propose`), with all publications of its step. So
does everything in a server whose steps are traced, since a trace names the steps of that way.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mdserver.cluster.coordinator import CoordinatorState
from mdserver.core.outputs import Committed
from mdserver.core.proposal import Outcome

if TYPE_CHECKING:
    from mdserver.cluster.group import Group
    from mdserver.cluster.outgoing import Outgoing
    from mdserver.cluster.pending import PendingPublications
    from mdserver.cluster.settings import ClusterSettings
    from mdserver.cluster.wal import WalBuffer
    from mdserver.core.broker import Broker
    from mdserver.core.message import Entry
    from mdserver.core.proposal import Proposal

_ACTIVE = CoordinatorState.ACTIVE


class ShortWay:
    """Commits publications that their publishers did not number, at once."""

    def __init__(
        self,
        groups: "Sequence[Group]",
        settings: "ClusterSettings",
        broker: "Broker",
        outgoing: "Outgoing",
        pending: "PendingPublications",
        wal: "WalBuffer",
    ) -> None:
        self._groups = groups
        self._hold_bytes = settings.hold_bytes
        self._broker = broker
        self._outgoing = outgoing
        self._pending = pending
        self._wal = wal
        self._allowed = settings.single and not settings.trace and not wal.acks_wait

    @property
    def open(self) -> bool:
        """Whether publications may go this way now: a single server, and no disk to wait for."""
        wal = self._wal
        if not wal.enabled:
            return self._allowed
        return self._allowed and not wal.held_back and wal.unsynced_bytes <= self._hold_bytes

    def publish(self, by_group: "Mapping[int, Sequence[Proposal]]") -> None:
        """Commit publications, deliver them, and answer their publishers.

        No other place but this and `Group.commit` shows entries of a log (invariants I7 and I8).
        """
        committed: list[tuple[int, list[Entry]]] = []
        outputs: list[Committed] = []
        outcomes: list[Outcome] = []
        for index, proposals in by_group.items():
            group = self._groups[index]
            entries = self._append(group, proposals)
            if entries is None:
                group.propose(proposals)
                continue
            committed.append((index, entries))
            outputs.append(Committed(index, group.history, entries))
            for proposal, entry in zip(proposals, entries, strict=True):
                outcomes.append(Outcome(proposal.origin, entry.epoch, entry.seq))
        if outcomes:
            now, out = self._outgoing.now, self._outgoing.out
            self._pending.commits.add(0, len(outcomes))
            self._broker.replica.committed_in(committed, now, out)
            out += outputs
            self._broker.resolve(outcomes, now, out)

    def _append(self, group: "Group", proposals: "Sequence[Proposal]") -> "list[Entry] | None":
        """Append publications to the log of a group, and commit them; None if something waits."""
        coordinator, log = group.coordinator, group.log
        if (
            coordinator is None
            or coordinator.state is not _ACTIVE
            or not group.leadership.active
            or group.queue.proposals
            or log.committed != log.length
        ):
            return None
        entries = log.append_committed(coordinator.epoch, proposals)
        if self._wal.enabled:
            self._wal.appended_committed(group, entries)
        return entries
