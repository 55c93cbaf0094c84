"""Publications of QoS STANDARD: members that are in sight when one comes get it, nobody later.

They have no place in a log, so no coordinator numbers them and no seed acknowledges them. The
member that takes one delivers it to its own clients, and hands it to the members and workers that
are linked to it. What comes from a worker goes on to the members and the other workers, what comes
from a member to workers only. So it comes once to each, or not at all. What the server itself
announces goes the same way.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mdserver.cluster.messages import StandardBatch
from mdserver.core.message import Entry, Publication
from mdserver.core.outputs import Announced
from mdserver.core.subjects import STATISTICS, group_of

if TYPE_CHECKING:
    from mdserver.cluster.outgoing import Outgoing
    from mdserver.cluster.workers import Workers
    from mdserver.core.broker import Broker


class AtMostOnce:
    """Delivers publications of QoS STANDARD here, and sends them on."""

    def __init__(self, broker: "Broker", outgoing: "Outgoing", workers: "Workers") -> None:
        self._broker = broker
        self._outgoing = outgoing
        self._workers = workers

    def publish(self, publications: list[Publication]) -> None:
        """Deliver publications of this member's clients, and send them to the other members."""
        self._deliver(publications)
        outgoing = self._outgoing
        outgoing.send((*outgoing.linked, *outgoing.workers), StandardBatch(publications))

    def take(self, peer: str, batch: StandardBatch) -> None:
        """Deliver what clients of another member published, or what that member announces."""
        self._deliver(batch.publications)
        outgoing = self._outgoing
        if outgoing.workers:  # they have no links to others, nor to each other
            members = outgoing.linked if peer in self._workers.contacts else ()
            others = [name for name in outgoing.workers if name != peer]
            outgoing.send((*members, *others), batch)
        # The first publication suffices: a member sends announcements in batches of their own, and
        # clients cannot publish to their subjects.
        if batch.publications and batch.publications[0].subject.startswith(STATISTICS):
            outgoing.out.append(Announced(peer, batch.publications))

    def _deliver(self, publications: Sequence[Publication]) -> None:
        """Deliver publications to clients here; without a place in a log, epoch and seq are 0."""
        broker, outgoing = self._broker, self._outgoing
        groups = broker.settings.groups
        for publication in publications:
            group = group_of(publication.subject, groups)
            broker.committed(group, [Entry(0, 0, publication)], outgoing.now, outgoing.out)
