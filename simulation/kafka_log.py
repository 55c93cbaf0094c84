"""A Kafka cluster and its members without I/O: a log with retention, compaction and retries."""

import random
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from attrs import define, field

from mdserver.cluster.kafka_messages import (
    Consume,
    Produce,
    ProductionReport,
    ProductionReports,
    Reachability,
    ReadingBegun,
    RecordsLost,
    RecordsRead,
    RecordsRemoved,
    TopicsSeen,
)
from mdserver.cluster.kafka_node import KafkaNode
from mdserver.cluster.kafka_progress import Partition, TopicSeen
from mdserver.cluster.kafka_records import KafkaRecord, ProducedRecord
from mdserver.cluster.kafka_sweep import SWEEP
from mdserver.cluster.settings import alone
from mdserver.core.commands import Connect, Publish, Subscribe
from mdserver.core.entitlement import Policy
from mdserver.core.events import Delivery, Status
from mdserver.core.inputs import Opened, Received, TimerDue
from mdserver.core.outputs import Deliver, Log, Output, Send, SetTimer
from mdserver.core.settings import BrokerSettings

CLIENT = 1
PARTITIONS = 2


@define
class SimulatedLog:
    """Topics of one cluster; `records` are those that were not removed, `ends` where each ends."""

    topics: dict[str, TopicSeen] = field(factory=dict)
    records: dict[Partition, list[KafkaRecord]] = field(factory=dict)
    ends: dict[Partition, int] = field(factory=dict)
    lows: dict[Partition, int] = field(factory=dict)
    leaders: Counter[Partition] = field(factory=Counter)
    """The leader epoch of each partition."""

    def create(self, topic: str, id: str = "first", partitions: int = PARTITIONS) -> None:  # noqa: A002
        """Make a topic, or make it again, or give it more partitions under the same id."""
        known = self.topics.get(topic)
        self.topics[topic] = TopicSeen(topic, id, partitions)
        for number in range(partitions):
            at = topic, number
            if known is None or known.id != id or at not in self.ends:
                self.records[at], self.ends[at], self.lows[at] = [], 0, 0

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> int:
        """Append a record; return its offset."""
        at = topic, partition
        offset = self.ends[at]
        self.ends[at] += 1
        self.records[at].append(
            KafkaRecord(
                topic, partition, offset, 0, key, value, headers, leader_epoch=self.leaders[at]
            )
        )
        return offset

    def produce(self, record: ProducedRecord) -> int:
        """Append what a member produces; return its offset."""
        return self.append(record.topic, record.partition, record.key, record.value, record.headers)

    def retain(self, at: Partition, low: int) -> None:
        """Remove the records before an offset."""
        self.lows[at] = max(self.lows[at], min(low, self.ends[at]))
        self.records[at] = [one for one in self.records[at] if one.offset >= self.lows[at]]

    def lose(self, at: Partition, high: int) -> None:
        """Lose the records from an offset on, as brokers do that lose their disks."""
        self.elect(at)
        self.ends[at] = min(high, self.ends[at])
        self.records[at] = [one for one in self.records[at] if one.offset < high]

    def elect(self, at: Partition) -> None:
        """Have another broker lead a partition."""
        self.leaders[at] += 1

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        del self.topics[topic]
        for at in [at for at in self.records if at[0] == topic]:
            del self.records[at], self.ends[at], self.lows[at]

    def compact(self, at: Partition) -> None:
        """Keep the last record of each key only; the last record of all stays where it is."""
        latest = {record.key: record.offset for record in self.records[at]}
        self.records[at] = [one for one in self.records[at] if latest[one.key] == one.offset]


class SimulatedMember:
    """A member that reads the log when it is told to, with one subscriber."""

    def __init__(
        self, log: SimulatedLog, name: str = "m", *, holds: bool = False, **settings: Any
    ) -> None:
        self.log = log
        self.now = 1
        self.node = KafkaNode(
            BrokerSettings(
                member=name,
                groups=4,
                policy=Policy.NONE,
                subject_segments_min=1,
                publisher_secret=b"the same at all members",
                **settings,
            ),
            random.Random(1),
            alone(name),
            "murmur2_random",
            holds=holds,
        )
        self.at: dict[Partition, int] = {}
        self.produced: list[ProducedRecord] = []
        self.delivered: list[Delivery] = []
        self.statuses: list[Status] = []
        self.sent: list[object] = []
        self.logged: list[Log] = []
        self.sweeping = False
        self.later: list[ReadingBegun] = []
        self.step(Reachability(None))
        self.look()

    def step(self, given: object) -> list[Output]:
        """Give the node an input, and keep what it says."""
        self.now += 1
        outputs = self.node.step(given, self.now)
        for output in outputs:
            match output:
                case Consume():
                    self._consume(output)
                case Produce():
                    self.produced += output.records
                case Deliver():
                    self.delivered.append(output.delivery)
                case Send():
                    self.sent.append(output.event)
                    if isinstance(output.event, Delivery):
                        self.delivered.append(output.event)
                    elif isinstance(output.event, Status):
                        self.statuses.append(output.event)
                case Log():
                    self.logged.append(output)
                case SetTimer(timer=timer) if timer == SWEEP:
                    self.sweeping = True
        return outputs

    def sweep(self, most: int = 1_000_000) -> None:
        """Let the work on all subjects go on, for at most so many steps."""
        while self.sweeping and most:
            most -= 1
            self.sweeping = False
            self.step(TimerDue(SWEEP))

    def _consume(self, output: Consume) -> None:
        if output.anew:
            self.at.clear()
        self.at = {one: at for one, at in self.at.items() if one[0] not in output.ended}
        self.at |= {one: self.log.lows[one] for one in output.partitions}
        begun = {one: (self.log.lows[one], self.log.ends[one]) for one in output.partitions}
        self.later.append(ReadingBegun(begun))

    def look(self, *missing: str, without: Collection[str] = ()) -> None:
        """Look at the metadata, of a broker that does not know some topics yet."""
        self.later.clear()
        seen = tuple(topic for name, topic in self.log.topics.items() if name not in without)
        self.step(TopicsSeen("cluster", seen, missing))
        for begun in list(self.later):
            self.step(begun)

    def read(self, most: int = 1_000_000) -> None:
        """Read at most so many records of each partition."""
        batch: list[KafkaRecord] = []
        reached: dict[Partition, int] = {}
        for one, at in self.at.items():
            if one not in self.log.lows:
                continue
            low = self.log.lows[one]
            if at > self.log.ends[one]:
                at = self.log.ends[one]  # noqa: PLW2901
                self.step(RecordsLost(one, at))
            if at < low:
                self.step(RecordsRemoved(one, low))
                at = low  # noqa: PLW2901
            found = [record for record in self.log.records[one] if record.offset >= at]
            batch += found[:most]
            reached[one] = found[most].offset if len(found) > most else self.log.ends[one]
        self.at |= reached
        self.step(RecordsRead(batch, reached))

    def deliver(self, *, report: bool = True, again: bool = False) -> None:
        """Have what was produced appended; `again`: a retry appends it a second time."""
        produced, self.produced = self.produced, []
        reports = []
        for record in produced:
            offset = self.log.produce(record)
            if again:
                self.log.produce(record)
            reports.append(ProductionReport(record.ticket, record.partition, offset))
        if report:
            self.step(ProductionReports(reports))

    def connect(
        self, session: int = CLIENT, publisher: str | None = None, key: str | None = None
    ) -> None:
        """Have a client connect."""
        self.step(Opened(session, "127.0.0.1"))
        self.step(Received(session, [Connect(publisher=publisher, publisher_key=key)]))

    def subscribe(self, *subjects: str, session: int = CLIENT, **options: object) -> None:
        """Have the client subscribe."""
        command = Subscribe(subjects=list(subjects), **options)  # type: ignore[arg-type]
        self.step(Received(session, [command]))

    def publish(self, subject: str, content: str, session: int = CLIENT, **more: object) -> None:
        """Have the client publish; its closure is the content."""
        command = Publish(subject=subject, content=content, closure=content, **more)  # type: ignore[arg-type]
        self.step(Received(session, [command]))

    def tick(self, seconds: int = 0) -> None:
        """Let time pass, and do the periodic work."""
        self.now += seconds * 1_000_000_000
        self.step(TimerDue(("cluster", "tick")))

    @property
    def contents(self) -> list[str]:
        """What the client got, in order."""
        return [one.entry.publication.content.decode() for one in self.delivered]
