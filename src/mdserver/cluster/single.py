"""A shortcut for publications to a single server: append and commit them in one go.

A single server is a cluster of one seed. A publication to it could take the full path of a cluster:
a ticket in the queue of its group, a forward to the coordinator, a sequence number, an ack, a
commit, and an outcome that is read from the log. All of these steps take place on one member, which
is its own majority. So nothing can come between the first and the last of them, unless a
publication has to wait: for the disk, for an earlier publication of its group, or for the check of
its publisher's numbers. If it has to wait for none of these, both paths give it the same position
and the same outcome, and the shortcut takes it: its entry is committed as soon as it has a place.

The shortcut is closed to

- a server that writes its logs down, because its acks wait for the disk, and nothing is committed
  before it is acked;
- all publications of a step if one of them has a number, because it may be a repeat;
- a group in which an earlier publication waits or is not committed, because publications of one
  group are taken in order;
- a server with workers, which are given what `Group.commit` commits, and the shortcut passes that
  by;
- a server that writes traces, because a trace names the steps of the full path (`Group.propose`).

Invariants I2 (agreement), I4 (numbering), I7 (delivery) and I8 (ack truth) hold for the reasons for
which they hold on the full path: only the ACTIVE coordinator of an epoch appends, at the end of a
log that is wholly committed, and subscribers and publishers hear of an entry only when it is
committed.
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
    from mdserver.core.broker import Broker
    from mdserver.core.message import Entry
    from mdserver.core.proposal import Proposal

_ACTIVE = CoordinatorState.ACTIVE


class ShortWay:
    """The shortcut of one server; it takes publications without a number, if it is `open`."""

    def __init__(
        self,
        groups: "Sequence[Group]",
        settings: "ClusterSettings",
        broker: "Broker",
        outgoing: "Outgoing",
        pending: "PendingPublications",
    ) -> None:
        self._groups = groups
        self._broker = broker
        self._outgoing = outgoing
        self._pending = pending
        self.open = settings.single and not (
            settings.trace or settings.writes_wal or settings.workers
        )

    def publish(self, by_group: "Mapping[int, Sequence[Proposal]]") -> None:
        """Commit publications, deliver them, and answer their publishers.

        `by_group` has the publications of each group in their order. Those of a group in which
        something waits take the full path. Only this method and `Group.commit` show entries of a
        log to subscribers and publishers (invariants I7 and I8).
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
        """Append publications to the log of a group as committed entries, and return these.

        Returns None, and changes nothing, if something in the group waits.
        """
        coordinator, log = group.coordinator, group.log
        if (
            coordinator is None
            or coordinator.state is not _ACTIVE
            or not group.leadership.active
            or group.queue.proposals
            or log.committed != log.length
        ):
            return None
        return log.append_committed(coordinator.epoch, proposals)
