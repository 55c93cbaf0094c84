"""What Kafka says to a member, and what a member wants of Kafka."""

from collections.abc import Sequence

import msgspec
from attrs import frozen

from mdserver.cluster.kafka_progress import Partition, TopicSeen
from mdserver.cluster.kafka_records import KafkaRecord, ProducedRecord
from mdserver.core.outputs import ClusterOutput

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


@frozen
class RecordsLost:
    """Brokers lost the end of a partition, which now ends at `high`, before what was read.

    Or the topic was created again, which the next `TopicsSeen` tells.
    """

    partition: Partition
    high: int


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
    TopicsSeen
    | ReadingBegun
    | RecordsRead
    | RecordsRemoved
    | RecordsLost
    | ProductionReports
    | Reachability
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
    were made while this member ran; the others from where a start begins. Those of `ended` were
    deleted, and are read no more.
    """

    partitions: list[Partition]
    anew: bool
    whole: tuple[str, ...]
    ended: tuple[str, ...] = ()


@frozen
class KafkaCounts:
    """What a member counted since its start, and what it waits for."""

    records: int
    poison: int
    strays: int
    repeats: int
    waiting: int
    lag: int
