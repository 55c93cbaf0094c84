"""Publications on their way to Kafka: from what publishers ask for to their results.

    refused     no such topic, too much waits, Kafka is away and nothing is held   a certain failure
    a repeat    a record with its number was read here                             its position
    waiting     its record is to be produced, or was (`Waiting`)
      reported    Kafka has it, and it has no number                               its position
      reported    Kafka refuses it                                                 a failure
      read        its record was read here, and it has a number                    its position
      overdue     neither came in time                                             uncertain
      given up    what is read now is numbered anew                                uncertain

A publication with a number is answered only when its record was read here: only then is it known
whether it is a repeat (`mdserver.cluster.kafka_repeats`). One that is repeated while it waits makes
no second record; all who asked get the position of the first.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from mdserver.cluster.kafka_messages import Produce, ProductionReports
from mdserver.cluster.kafka_progress import Partition, position_of
from mdserver.cluster.kafka_records import (
    KeyPlace,
    Places,
    PoisonError,
    ProducedRecord,
    record_of,
    size_of,
    split,
)
from mdserver.cluster.kafka_waiting import Waiting, WaitingPublications
from mdserver.core.proposal import Outcome
from mdserver.limits import NS_PER_S

if TYPE_CHECKING:
    from mdserver.cluster.kafka_progress import Consumption
    from mdserver.cluster.kafka_repeats import Line, Repeats
    from mdserver.cluster.outgoing import Outgoing
    from mdserver.cluster.pending import PendingPublications
    from mdserver.core.broker import Broker
    from mdserver.core.message import Position
    from mdserver.core.proposal import Proposal


class Producing:
    """The publications of this member's clients; its length is how many have no result yet.

    `partitions` are the topics that are read, with their numbers of partitions.
    """

    def __init__(
        self,
        broker: "Broker",
        outgoing: "Outgoing",
        pending: "PendingPublications",
        partitions: Mapping[str, int],
        places: Places,
        consumption: "Consumption",
        repeats: "Repeats",
    ) -> None:
        self._broker = broker
        self._outgoing = outgoing
        self._pending = pending
        self._partitions = partitions
        self._places = places
        self._consumption = consumption
        self._repeats = repeats
        self._waiting = WaitingPublications()

    def __len__(self) -> int:
        return len(self._waiting)

    def propose(self, proposals: "Sequence[Proposal]", refusing: str | None) -> None:
        """Have publications produced, in order, or answer why not.

        `refusing`: why none are taken at all; None if they are.
        """
        records: list[ProducedRecord] = []
        outcomes: list[Outcome] = []
        for proposal in proposals:
            origin = proposal.origin
            topic, key = split(proposal.publication.subject)
            refused = refusing or self._refusal(topic)
            if refused is None:
                try:
                    place = self._places.of(topic, key)
                    outcome = self._propose(proposal, place, records)
                except PoisonError as error:
                    refused = str(error)
                else:
                    if outcome is not None:
                        outcomes.append(outcome)
            if refused is not None:
                outcomes.append(Outcome(origin, reason=refused))
        if records:
            self._outgoing.out.append(Produce(records))
        if outcomes:
            self.resolve(outcomes)

    def _refusal(self, topic: str) -> str | None:
        """Return why a publication to a topic is refused; None if it is not."""
        if topic not in self._partitions:
            return f"there is no topic {topic} among those that this server consumes"
        return self._waiting.full()

    def _propose(
        self, proposal: "Proposal", place: KeyPlace, records: list[ProducedRecord]
    ) -> Outcome | None:
        """Add the record of a publication to those to be produced, unless it is a repeat."""
        origin, published = proposal.origin, proposal.publication
        line: Line | None = None
        if published.number:
            line = (place.topic, place.partition, place.group, published.publisher)
            earlier = self._repeats.find(line, published.number)
            if earlier is not None:
                return Outcome(origin, earlier.epoch, earlier.seq, duplicate=True)
            waiting = self._waiting.of_number(line, published.number)
            if waiting is not None:
                waiting.origins.append(origin)
                return None
        record = record_of(self._waiting.next_ticket, place, published)
        partition, number = (place.topic, place.partition), published.number
        since, size = self._outgoing.now, size_of(record)
        self._waiting.add(Waiting(partition, [origin], since, size, line, number))
        records.append(record)
        return None

    def reported(self, reported: ProductionReports) -> None:
        """Answer publishers. A number waits until its record was read, or surely will not be."""
        outcomes: list[Outcome] = []
        for report in reported.reports:
            self._waiting.reported(report.ticket)
            waiting = self._waiting.find(report.ticket)
            if waiting is None:
                continue  # it was given up, and answered
            if report.reason is not None:
                self._waiting.pop(report.ticket)
                outcomes += [
                    Outcome(origin, reason=report.reason, certain=report.certain)
                    for origin in waiting.origins
                ]
            elif waiting.line is None:
                self._waiting.pop(report.ticket)
                position = self._position(waiting.partition, report.offset)
                self._pending.commits.add(self._outgoing.now - waiting.since, 1)
                outcomes += [
                    Outcome(origin, position.epoch, position.seq) for origin in waiting.origins
                ]
        self.resolve(outcomes)

    def _position(self, partition: Partition, offset: int) -> "Position":
        """Return the position of a record that was produced.

        If it was not read yet, its leader is taken to be the one of the records before it.
        """
        span = self._consumption.spans.get(partition)
        leader = -1 if span is None else span.leader_of(offset)
        return position_of(max(0, leader), offset)

    def read(
        self, line: "Line", number: int, position: "Position", earlier: "Position | None"
    ) -> list[Outcome]:
        """Return the outcomes of a publication with a number whose record was read at a position.

        `earlier` is the position of the record that counts, if this one is a repeat.
        """
        waiting = self._waiting.pop_number(line, number)
        if waiting is None:
            return []
        self._pending.commits.add(self._outgoing.now - waiting.since, 1)
        found = position if earlier is None else earlier
        # Whoever asked first made the record; those who asked again get the same position.
        return [
            Outcome(origin, found.epoch, found.seq, duplicate=bool(at) or earlier is not None)
            for at, origin in enumerate(waiting.origins)
        ]

    def give_up_overdue(self, timeout: int) -> None:
        """Answer what waits for longer than a timeout (ns): nobody knows whether it is taken."""
        reason = f"Kafka did not acknowledge it within {timeout // NS_PER_S} s"
        self._give_up(self._waiting.overdue(self._outgoing.now - timeout), reason)

    def give_up(self, reason: str) -> None:
        """Answer all that waits: nobody knows whether it was taken."""
        self._give_up(self._waiting.clear(), reason)

    def _give_up(self, given_up: Iterable[Waiting], reason: str) -> None:
        outcomes = [
            Outcome(origin, reason=reason, certain=False)
            for waiting in given_up
            for origin in waiting.origins
        ]
        self.resolve(outcomes)

    def resolve(self, outcomes: Sequence[Outcome]) -> None:
        """Give publishers their results."""
        self._broker.resolve(outcomes, self._outgoing.now, self._outgoing.out)
