"""`ClusterEngine = kafka`: the topics of a Kafka cluster are the log that members share.

A publication becomes a record (`mdserver.cluster.kafka_records`), and its publisher is answered
when Kafka has acknowledged it. Every member reads every topic, and what it reads is what
subscribers get, so all of them have the same messages under the same positions
(`mdserver.cluster.kafka_progress`). A publication with a number is answered only when its record
was read here: only then it is known whether it is a repeat (`mdserver.cluster.kafka_repeats`).

    state of a member      what happens                           to
    no topics known        the metadata come                      READING, new history id
    READING                everything was read that was there     READY
    READY                  further topics                         READING them, new history id
    any                    a topic was created again, or has      READING, new history id, empty
                           more partitions                        cache

This is the only one of the modes that numbers nothing. What is said of elections, votes and links
has no meaning here.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from attrs import frozen

from mdserver.cluster.kafka_progress import (
    Change,
    Consumption,
    Partition,
    TopicSeen,
    change,
    history_of,
    position_of,
)
from mdserver.cluster.kafka_records import (
    KafkaRecord,
    KeyPlace,
    Places,
    PoisonError,
    ProducedRecord,
    publication,
    record_of,
    split,
)
from mdserver.cluster.kafka_repeats import FORGOTTEN, Line, Repeats
from mdserver.core.message import Entry, Position, Qos
from mdserver.core.outputs import ClusterOutput
from mdserver.core.proposal import Origin, Outcome
from mdserver.limits import (
    KAFKA_COMPLAINTS_MAX,
    KAFKA_PENDING_BYTES_MAX,
    KAFKA_PENDING_MAX,
    NS_PER_S,
)

if TYPE_CHECKING:
    from mdserver.cluster.messages import Heartbeat, Hello
    from mdserver.cluster.mode import Sequencer
    from mdserver.cluster.outgoing import Outgoing
    from mdserver.cluster.pending import PendingPublications
    from mdserver.cluster.settings import ClusterSettings
    from mdserver.core.broker import Broker
    from mdserver.core.proposal import Proposal


# Inputs


@frozen
class TopicsSeen:
    """The configured topics that exist, and the id of their cluster."""

    cluster: str
    topics: tuple[TopicSeen, ...]
    missing: tuple[str, ...] = ()


@frozen
class ReadingBegun:
    """Partitions are read from these offsets on, and end at these: (start, end) of each."""

    offsets: dict[Partition, tuple[int, int]]


@frozen
class RecordsRead:
    """Records in the order of their partitions; everything before `reached` was read."""

    records: Sequence[KafkaRecord]
    reached: dict[Partition, int]


@frozen
class RecordsRemoved:
    """What would have been read next was removed by retention; a partition goes on at `low`."""

    partition: Partition
    low: int


class ProductionReport(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What became of a produced record: its place, or the reason why it has none."""

    ticket: int
    partition: int = 0
    offset: int = -1
    reason: str | None = None
    certain: bool = False


@frozen
class ProductionReports:
    """Reports of deliveries."""

    reports: Sequence[ProductionReport]


@frozen
class Reachability:
    """Kafka cannot be reached, for this reason; None: it can."""

    reason: str | None


KafkaInput = (
    TopicsSeen | ReadingBegun | RecordsRead | RecordsRemoved | ProductionReports | Reachability
)


# Outputs


@frozen
class Produce(ClusterOutput):
    """Produce these records, in order; each is answered by a `ProductionReport`."""

    records: list[ProducedRecord]


@frozen
class Consume(ClusterOutput):
    """Read these partitions, and say where with `ReadingBegun`.

    `anew`: stop reading all others. The topics of `whole` are read from their beginning, since they
    were made while this member ran; the others from where a start begins.
    """

    partitions: list[Partition]
    anew: bool
    whole: tuple[str, ...]


class Waiting(msgspec.Struct, gc=False):
    """A publication without a result: who waits for it, since when, its size, and its number."""

    origins: list[Origin]
    since: int
    size: int
    line: Line | None
    number: int


@frozen
class KafkaCounts:
    """What a member counted since its start, and what it waits for."""

    records: int
    poison: int
    strays: int
    repeats: int
    waiting: int
    lag: int


class KafkaMode:
    """The mode in which Kafka numbers. A `Mode`; it is given inputs of its own by `take`."""

    def __init__(
        self,
        settings: "ClusterSettings",
        broker: "Broker",
        outgoing: "Outgoing",
        pending: "PendingPublications",
        sequencer: "Sequencer",
        partitioner: str,
    ) -> None:
        self.sequencer = sequencer
        self.handlers: dict[type, Callable[[str, Any], None]] = {}
        self._settings = settings
        self._broker = broker
        self._outgoing = outgoing
        self._pending = pending
        self._topics: dict[str, TopicSeen] = {}
        self._partitions: dict[str, int] = {}
        self._places = Places(self._partitions, partitioner, broker.settings.groups)
        self._missing: tuple[str, ...] = ()
        self._consumption = Consumption()
        self._repeats = Repeats()
        self._ready = False
        self._away: str | None = "Kafka has not answered yet"
        self._next_ticket = 1
        self._waiting: dict[int, Waiting] = {}
        self._waiting_bytes = 0
        self._numbered: dict[tuple[Line, int], int] = {}
        """Numbers whose publication waits here -> its ticket."""
        self._records = self._poison = self._strays = self._repeated = 0
        self._complaints = 0
        self._takers: dict[type, Callable[[Any], None]] = {
            TopicsSeen: self._topics_seen,
            ReadingBegun: self._reading_begun,
            RecordsRead: self._records_read,
            RecordsRemoved: self._records_removed,
            ProductionReports: self._reported,
            Reachability: self._reachability,
        }

    def take(self, input: KafkaInput) -> None:  # noqa: A002 - as `Node.step`
        """Take what Kafka says."""
        self._takers[type(input)](input)

    def counts(self) -> KafkaCounts:
        """Return what was counted."""
        return KafkaCounts(
            self._records,
            self._poison,
            self._strays,
            self._repeated,
            len(self._waiting),
            self._consumption.lag(),
        )

    # Publications

    def propose(self, proposals: "Sequence[Proposal]") -> None:
        """Have publications produced, in order, or answer why not."""
        records: list[ProducedRecord] = []
        outcomes: list[Outcome] = []
        for proposal in proposals:
            origin = proposal.origin
            topic, key = split(proposal.publication.subject)
            refused = self._refusal(topic)
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
            self._resolve(outcomes)

    def _refusal(self, topic: str) -> str | None:
        if self._away is not None:
            return self._away
        if topic not in self._partitions:
            return f"there is no topic {topic} among those that this server consumes"
        if len(self._waiting) >= KAFKA_PENDING_MAX:
            return "too many publications wait for Kafka here"
        if self._waiting_bytes >= KAFKA_PENDING_BYTES_MAX:
            return "too many bytes wait for Kafka here"
        return None

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
            ticket = self._numbered.get((line, published.number))
            if ticket is not None:
                self._waiting[ticket].origins.append(origin)
                return None
        ticket = self._next_ticket
        record = record_of(ticket, place, published)
        self._next_ticket += 1
        size = len(published.content)
        self._waiting[ticket] = Waiting([origin], self._outgoing.now, size, line, published.number)
        self._waiting_bytes += size
        if line is not None:
            self._numbered[line, published.number] = ticket
        records.append(record)
        return None

    def _reported(self, reported: ProductionReports) -> None:
        """Answer publishers. A number waits until its record was read, or surely will not be."""
        outcomes: list[Outcome] = []
        for report in reported.reports:
            waiting = self._waiting.get(report.ticket)
            if waiting is None:
                continue  # it was given up, and answered
            if report.reason is not None:
                self._drop(report.ticket, waiting)
                outcomes += [
                    Outcome(origin, reason=report.reason, certain=report.certain)
                    for origin in waiting.origins
                ]
            elif waiting.line is None:
                self._drop(report.ticket, waiting)
                position = position_of(report.partition, report.offset)
                self._pending.commits.add(self._outgoing.now - waiting.since, 1)
                outcomes += [
                    Outcome(origin, position.epoch, position.seq) for origin in waiting.origins
                ]
        self._resolve(outcomes)

    def _drop(self, ticket: int, waiting: Waiting) -> None:
        del self._waiting[ticket]
        self._waiting_bytes -= waiting.size
        if waiting.line is not None:
            del self._numbered[waiting.line, waiting.number]

    def _resolve(self, outcomes: Sequence[Outcome]) -> None:
        self._broker.resolve(outcomes, self._outgoing.now, self._outgoing.out)

    # Records

    def _records_read(self, read: RecordsRead) -> None:
        """Show subscribers what was read, and answer the publishers of what has a number."""
        by_group: dict[int, list[Entry]] = {}
        outcomes: list[Outcome] = []
        spans = self._consumption.spans
        for record in read.records:
            span = spans.get((record.topic, record.partition))
            if span is None or record.offset < span.next:
                continue  # read before, or of a topic that is read anew by now
            span.next = record.offset + 1
            self._records += 1
            try:
                self._read_one(record, by_group, outcomes)
            except PoisonError as error:
                self._poison += 1
                if self._complains():
                    self._outgoing.log("poison record", **_found(record), reason=str(error))
        self._show(by_group)
        self._resolve(outcomes)
        for partition, following in read.reached.items():
            self._consumption.reach(partition, following)
        self._look_ready()

    def _read_one(
        self, record: KafkaRecord, by_group: dict[int, list[Entry]], outcomes: list[Outcome]
    ) -> None:
        place = self._places.of(record.topic, record.key)
        stray = place.partition != record.partition
        settings = self._broker.settings
        published = publication(record, place.subject, settings.message_bytes_max, stray=stray)
        position = position_of(record.partition, record.offset)
        if stray:
            self._strays += 1
            if self._complains():
                self._outgoing.log("stray record", **_found(record), expected=place.partition)
        elif published.number:
            line = (place.topic, place.partition, place.group, published.publisher)
            earlier = self._repeats.take(line, published.number, position)
            self._answer(line, published.number, position, earlier, outcomes)
            if earlier is not None:
                self._repeated += 1
                return
        if published.qos is Qos.STANDARD:
            position = FORGOTTEN
            if not self._ready:
                return  # at most once, and these were sent before this member began
        entry = Entry(position.epoch, position.seq, published)
        by_group.setdefault(place.group, []).append(entry)
        if record.value is None and not stray:
            self._show(by_group)
            self._broker.replica.forget_snapshot(place.subject)

    def _answer(
        self,
        line: Line,
        number: int,
        position: Position,
        earlier: Position | None,
        outcomes: list[Outcome],
    ) -> None:
        """Answer a publication with a number, if it waits here, now that its record was read."""
        ticket = self._numbered.get((line, number))
        if ticket is None:
            return
        waiting = self._waiting[ticket]
        self._drop(ticket, waiting)
        self._pending.commits.add(self._outgoing.now - waiting.since, 1)
        found = position if earlier is None else earlier
        # Whoever asked first made the record; those who asked again get the same position.
        outcomes += [
            Outcome(origin, found.epoch, found.seq, duplicate=bool(at) or earlier is not None)
            for at, origin in enumerate(waiting.origins)
        ]

    def _show(self, by_group: dict[int, list[Entry]]) -> None:
        if by_group:
            now, out = self._outgoing.now, self._outgoing.out
            self._broker.replica.committed_in(list(by_group.items()), now, out, ordered=False)
            by_group.clear()

    def _complains(self) -> bool:
        """Return whether a record that is not as it should be is logged: the first of a second."""
        self._complaints += 1
        return self._complaints <= KAFKA_COMPLAINTS_MAX

    def _records_removed(self, removed: RecordsRemoved) -> None:
        """Tell subscribers of a partition what they missed, because retention removed it."""
        topic, number = removed.partition
        if self._consumption.overtake(removed.partition, removed.low) is None:
            return
        at = position_of(number, removed.low - 1)
        self._outgoing.log("records removed", topic=topic, partition=number, low=removed.low)
        beginning = f"/{topic}"
        for subject in self._broker.replica.subjects():
            of_topic = subject == beginning or subject.startswith(beginning + "/")
            if of_topic and self._places.of(*split(subject)).partition == number:
                self._broker.replica.missed(subject, at, self._outgoing.now, self._outgoing.out)
        self._look_ready()

    def stand_for(self, subject: str, after: Position) -> None:
        """Prepare for a client that comes with a position of a subject under this numbering.

        The subject may be unknown here although this member has read beyond the position: nothing
        came after it, or retention removed what it names. The client must not wait for it then.
        """
        topic, key = split(subject)
        if topic not in self._partitions:
            return
        try:
            place = self._places.of(topic, key)
        except PoisonError:
            return
        span = self._consumption.spans.get((topic, place.partition))
        if span is None or after.epoch != place.partition + 1:
            return
        known = span.known_up_to(after.seq)
        if known is not None:
            at = Position(after.epoch, known)
            self._broker.replica.note_absent(subject, at, span.start, self._outgoing.now)

    # Topics

    def _topics_seen(self, seen: TopicsSeen) -> None:
        """Compare the topics with those that are read, and read what is new."""
        topics = {topic.name: topic for topic in seen.topics}
        self._missing = seen.missing
        what = change(self._topics, topics) if self._topics else Change.RENUMBERED
        if what is Change.NONE or not topics:
            self._look_ready()
            return
        now, out, first = self._outgoing.now, self._outgoing.out, not self._topics
        fresh = [topic for topic in seen.topics if topic.name not in self._topics]
        whole = (
            ()
            if first
            else tuple(
                topic.name
                for topic in seen.topics
                if topic.name not in self._topics or self._topics[topic.name].id != topic.id
            )
        )
        # A topic that was deleted goes with the next renumbering: nobody could begin to read it.
        self._topics = {**self._topics, **topics} if what is Change.ADDED else topics
        self._partitions.clear()
        self._partitions.update({name: topic.partitions for name, topic in self._topics.items()})
        self._places.forget()
        history = history_of(seen.cluster, self._topics.values())
        if what is Change.ADDED:
            self._broker.rename(history, range(self._broker.settings.groups), now, out)
            partitions = _partitions(fresh)
        else:
            self._consumption.clear()
            self._repeats.clear()
            self._ready = False
            self._broker.reset(history, None, now, out)
            self._give_up("the topic was created anew or got more partitions")
            partitions = _partitions(self._topics.values())
        self._outgoing.log("topics", topics=len(self._topics), change=what.value, history=history)
        self._consumption.expect(partitions)
        out.append(Consume(partitions, anew=what is not Change.ADDED, whole=whole))

    def _reading_begun(self, begun: ReadingBegun) -> None:
        for partition, (start, end) in begun.offsets.items():
            if partition[1] < self._partitions.get(partition[0], 0):
                self._consumption.begin(partition, start, end)
        self._look_ready()

    def _look_ready(self) -> None:
        if self._ready or not self._topics or self._missing:
            return
        if self._consumption.behind() is None:
            self._ready = True
            self._outgoing.log("joined", groups=self._broker.settings.groups)

    def _reachability(self, reachability: Reachability) -> None:
        """Refuse publications while Kafka is away; subscribers are served from the cache."""
        before, self._away = self._away, reachability.reason
        self._broker.publications.refusing = self._away
        if self._away is not None and before is None:
            self._outgoing.log("kafka away", reason=self._away)
        elif self._away is None and before is not None and self._topics:
            self._outgoing.log("kafka back")

    def _give_up(self, reason: str) -> None:
        """Answer all that waits: nobody knows whether it was taken."""
        outcomes = [
            Outcome(origin, reason=reason, certain=False)
            for waiting in self._waiting.values()
            for origin in waiting.origins
        ]
        self._waiting.clear()
        self._numbered.clear()
        self._waiting_bytes = 0
        self._resolve(outcomes)

    # `Mode`

    def tick(self) -> None:
        """Give up publications that wait for too long; called once a second."""
        self._complaints = 0
        now, timeout = self._outgoing.now, self._settings.publish_timeout
        outcomes: list[Outcome] = []
        while self._waiting:
            ticket, waiting = next(iter(self._waiting.items()))
            if waiting.since + timeout > now:
                break
            self._drop(ticket, waiting)
            reason = f"Kafka did not acknowledge it within {timeout // NS_PER_S} s"
            outcomes += [
                Outcome(origin, reason=reason, certain=False) for origin in waiting.origins
            ]
        self._resolve(outcomes)

    def unready(self) -> str | None:
        """Return why this member serves no clients now; None if it does."""
        if self._ready:
            return None
        if self._missing:
            return f"there is no topic {self._missing[0]}: create it, or correct `topics`"
        if not self._topics:
            return self._away or "no topic matches `topics.regex`"
        return self._consumption.behind()

    def greeted(self, peer: str, hello: "Hello") -> None:
        """Do nothing: members have no links."""

    def outdated(self, peer: str, hello: "Hello") -> None:
        """Do nothing: members have no links."""

    def heartbeat(self, peer: str, heartbeat: "Heartbeat") -> None:
        """Do nothing: members have no links."""

    def link_lost(self, peer: str) -> None:
        """Do nothing: members have no links."""

    def member_unreachable(self) -> None:
        """Do nothing: members have no links."""

    def rebalance(self) -> None:
        """Do nothing: members have no groups to hand over."""


def _partitions(topics: Iterable[TopicSeen]) -> list[Partition]:
    return [(topic.name, number) for topic in topics for number in range(topic.partitions)]


def _found(record: KafkaRecord) -> dict[str, str | int | bool | None]:
    """Return where a record is, for the server log."""
    return {"topic": record.topic, "partition": record.partition, "offset": record.offset}
