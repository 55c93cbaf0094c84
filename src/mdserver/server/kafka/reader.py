"""Reads all partitions, in one thread with one consumer, and gives the records to the node."""

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

from mdserver.cluster.kafka_messages import (
    Consume,
    ReadingBegun,
    RecordsLost,
    RecordsRead,
    RecordsRemoved,
)
from mdserver.cluster.kafka_records import Headers, KafkaRecord, PoisonError, headers_of
from mdserver.limits import (
    KAFKA_BATCH_RECORDS_MAX,
    KAFKA_CALL_TIMEOUT_S,
    KAFKA_LOOK_S,
    KAFKA_POLL_S,
    NS_PER_MS,
)
from mdserver.server.kafka import clients
from mdserver.server.kafka.decoding import DecoderSettings, Decoding
from mdserver.server.kafka.thread import EngineThread

if TYPE_CHECKING:
    from mdserver.cluster.kafka_progress import Partition
    from mdserver.server.engine import Engine
    from mdserver.server.kafka.properties import KafkaSettings

log = structlog.get_logger()


class Reader(EngineThread):
    """The thread that reads; `consume` says what, from the thread of the server."""

    def __init__(
        self,
        settings: "KafkaSettings",
        engine: "Engine",
        doubt: Callable[[], None],
        decoder: DecoderSettings | None = None,
    ) -> None:
        super().__init__(engine)
        self._decoding = None if decoder is None else Decoding(decoder, self._stopping)
        self._settings = settings
        self._doubt = doubt
        """Called when a topic may be another one than it was."""
        self._wanted: deque[Consume] = deque()
        self._next: dict[Partition, int] = {}
        """The partitions that are read -> the next offset of each."""
        self._leaders: dict[Partition, tuple[int, int]] = {}
        """The offset after the last record of a partition, and the leader epoch of that record."""
        self.lag: dict[str, int] = {}
        """Partitions (`topic/number`) -> how many offsets are not read yet, as last looked at."""
        self.assignments = 0
        """How often the consumer was told what to read, and from where on."""
        self._look_at = 0.0
        self._again_at = 0.0
        """Until when nothing is assigned, since Kafka did not say where to begin."""

    def consume(self, output: Consume) -> None:
        """Read partitions, instead of all others or beside them."""
        self._wanted.append(output)

    def work(self) -> None:
        """Read until the server ends."""
        consumer = clients.consumer(self._settings)
        try:
            while not self._stopping.is_set():
                if self._wanted:
                    self._begin(consumer)
                if time.monotonic() >= self._look_at:
                    self._look_at = time.monotonic() + KAFKA_LOOK_S
                    self._look(consumer)
                # `consume` alone would wait until its batch is full, or for all of its time.
                first = consumer.poll(KAFKA_POLL_S)
                if first is not None:
                    self._take(consumer, [first, *consumer.consume(KAFKA_BATCH_RECORDS_MAX - 1, 0)])
        finally:
            if self._decoding is not None:
                self._decoding.close()
            consumer.close()

    # Where to begin

    def _begin(self, consumer: Consumer) -> None:
        """Assign the partitions that are wanted, or try again a little later."""
        if time.monotonic() < self._again_at:
            return
        while len(self._wanted) > 1 and any(later.anew for later in list(self._wanted)[1:]):
            self._wanted.popleft()  # its topics may not be there any more
        wanted = self._wanted[0]
        try:
            offsets = self._offsets(consumer, wanted)
        except (KafkaException, TimeoutError) as error:
            self.errors += 1
            log.warning("kafka offsets unknown", reason=clients.described(error))
            self._again_at = time.monotonic() + KAFKA_LOOK_S
            return
        self._wanted.popleft()
        kept = () if wanted.anew else self._next.items()
        following = {one: at for one, at in kept if one[0] not in wanted.ended}
        following |= {one: start for one, (start, _) in offsets.items()}
        self._next = following
        self._leaders = {one: at for one, at in self._leaders.items() if one not in offsets}
        self.give(ReadingBegun(offsets))
        self._assign(consumer)

    def _offsets(self, consumer: Consumer, wanted: Consume) -> "dict[Partition, tuple[int, int]]":
        """Return where to begin with each partition, and where it ends.

        Raises KafkaException and TimeoutError.
        """
        compacted = self._compacted([topic for topic, _ in wanted.partitions])
        since: list[TopicPartition] = []
        found: dict[Partition, tuple[int, int]] = {}
        recover_ms = self._settings.recover_ms
        for one in wanted.partitions:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(*one), timeout=KAFKA_CALL_TIMEOUT_S
            )
            whole = one[0] in wanted.whole or one[0] in compacted
            found[one] = (low if whole else high, high)
            if not whole and recover_ms is not None:
                at = max(0, time.time_ns() // NS_PER_MS - recover_ms)
                since.append(TopicPartition(*one, at))
        for place in consumer.offsets_for_times(since, KAFKA_CALL_TIMEOUT_S) if since else ():
            if place.error is not None:
                raise KafkaException(place.error)
            if place.offset >= 0:  # -1: everything is older
                one = place.topic, place.partition
                found[one] = (place.offset, found[one][1])
        return found

    def _compacted(self, topics: list[str]) -> dict[str, None]:
        """Return the topics that are compacted: they are snapshots, and read from the beginning."""
        if not topics:
            return {}
        admin = clients.admin(self._settings)
        asked = admin.describe_configs(
            [ConfigResource("topic", name) for name in dict.fromkeys(topics)],
            request_timeout=KAFKA_CALL_TIMEOUT_S,
        )
        found: dict[str, None] = {}
        for resource, answer in asked.items():
            policy = answer.result(KAFKA_CALL_TIMEOUT_S)["cleanup.policy"].value
            if "compact" in policy:
                found[resource.name] = None
        return found

    def _look(self, consumer: Consumer) -> None:
        """Note how far this member is behind, by what the last fetches said of the ends."""
        lag: dict[str, int] = {}
        for (topic, number), following in self._next.items():
            try:
                ends = consumer.get_watermark_offsets(TopicPartition(topic, number), cached=True)
            except KafkaException:
                continue  # the topic was deleted
            # An end that is not known yet is negative.
            lag[f"{topic}/{number}"] = max(0, ends[1] - following) if ends else 0
        self.lag = lag

    # Records

    def _take(self, consumer: Consumer, messages: list[Any]) -> None:
        """Give the node what was read."""
        records: list[KafkaRecord] = []
        reached: dict[Partition, int] = {}
        leaders: dict[Partition, tuple[int, int]] = {}
        failed: list[Any] = []
        for message in messages:
            one = message.topic(), message.partition()
            error = message.error()
            if error is None:
                offset = message.offset()
                reached[one] = offset + 1
                leader_epoch = message.leader_epoch() or 0
                leaders[one] = offset + 1, leader_epoch
                records.append(
                    KafkaRecord(
                        *one,
                        offset,
                        message.timestamp()[1] * NS_PER_MS,
                        message.key(),
                        message.value(),
                        _headers(message),
                        leader_epoch=leader_epoch,
                    )
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                reached[one] = message.offset()
            else:
                failed.append(message)
        if self._decoding is not None and records:
            decoded = self._decoding.decoded(records)
            if decoded is None:
                return
            records = decoded
        self._next |= reached
        self._leaders |= leaders
        if reached:
            self.give(RecordsRead(records, reached))
        for message in failed:
            self._fail(consumer, message)

    def _fail(self, consumer: Consumer, message: Any) -> None:
        """Handle an error of a partition: what comes next may have been removed by retention."""
        self.errors += 1
        error, one = message.error(), (message.topic(), message.partition())
        if error.code() in _GONE and one in self._next:
            self._go_on(consumer, one, truncated=_TRUNCATION in error.str())
        elif error.code() not in _LOOKED_AT:
            log.warning("kafka consumer", reason=error.str(), topic=one[0], partition=one[1])

    def _go_on(self, consumer: Consumer, one: "Partition", *, truncated: bool) -> None:
        """Go on with a partition of which the next offset is not there, or is another record's."""
        try:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(*one), timeout=KAFKA_CALL_TIMEOUT_S
            )
        except KafkaException as error:
            log.warning("kafka offsets unknown", reason=clients.described(error))
            low = high = self._next[one]
        if truncated and low <= self._next[one] <= high:
            # Lost, and grown again since: where it was cut off is not known, but the last record
            # that was read is not there any more.
            high = max(low, self._next[one] - 1)
        if self._next[one] < low:
            self._next[one] = low
            self.give(RecordsRemoved(one, low))
        elif self._next[one] > high:
            self._next[one] = high
            self.give(RecordsLost(one, high))
            self._doubt()
        self._assign(consumer)

    def _assign(self, consumer: Consumer) -> None:
        """Have the consumer read the partitions of `_next`, each from its offset on."""
        self.assignments += 1
        wanted: list[TopicPartition] = []
        for one, offset in self._next.items():
            place = TopicPartition(*one, offset)
            at, leader_epoch = self._leaders.get(one, (-1, 0))
            if at == offset:  # otherwise what is before it may be of a later leader
                place = TopicPartition(*one, offset, leader_epoch=leader_epoch)
            wanted.append(place)
        consumer.assign(wanted)


_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION)
_TRUNCATION = "log truncation detected"
"""What librdkafka says in its text when another leader has less of what was read than the last."""
_LOOKED_AT = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)
"""Errors about which `Watcher` says more, and those of a leader that changes."""


def _headers(message: Any) -> Headers | None:
    """Return the headers of a record; none if one has a name that is no UTF-8."""
    try:
        return headers_of(message)
    except PoisonError:
        return None
