"""Copies topics to subjects: each record once.

Each partition has a publisher of its own, so the numbers of its publications follow from the order
of its records. After each batch the next offset and the last numbers are kept together (`Ledger`).
A bridge that starts publishes what came after that again, under the same numbers, and the cluster
takes each number once.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import attrs
import trio
from attrs import define, field
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition

from mdserver.bridge.ledger import (
    SILENT,
    BridgeError,
    Ledger,
    admin_client,
    ignored,
    reason_of,
)
from mdserver.bridge.rules import CLOSURE, Rules
from mdserver.client import Client, Numbering
from mdserver.cluster.kafka_records import KafkaRecord, PoisonError
from mdserver.core.commands import Publish
from mdserver.core.events import StatusName
from mdserver.limits import (
    KAFKA_BRIDGE_RECORDS,
    KAFKA_CALL_TIMEOUT_S,
    KAFKA_POLL_S,
    NS_PER_MS,
)

Partition = tuple[str, int]
Tell = Callable[[str], None]
OpenClient = Callable[..., Client]
Watch = Callable[[Client], Any]


@define
class Copied:
    """How far one partition was copied, and by which publisher."""

    topic_id: str
    offset: int
    client: Client
    row: dict[str, Any] = field(factory=dict)


@define
class Inward:
    """One direction of a bridge; `run` ends only by an error."""

    rules: Rules
    properties: dict[str, str]
    ledger: Ledger
    open_client: OpenClient
    watch: Watch
    tell: Tell
    bytes_max: int
    from_beginning: bool
    _copied: dict[Partition, Copied] = field(factory=dict, init=False)

    async def run(self) -> None:
        """Copy until cancelled. Raises BridgeError."""
        rows = await trio.to_thread.run_sync(self.ledger.load)
        consumer = Consumer(
            {
                "isolation.level": "read_committed",
                **self.properties,
                "group.id": self.rules.name,
                "enable.auto.commit": "false",
                "auto.offset.reset": "error",
                "error_cb": ignored,
            },
            logger=SILENT,
        )
        try:
            starts = await trio.to_thread.run_sync(self._starts, consumer, rows)
            async with trio.open_nursery() as nursery:
                for one, (topic_id, offset, numbering) in starts.items():
                    client = self.open_client(numbering=numbering)
                    self._copied[one] = Copied(topic_id, offset, client)
                    await nursery.start(self._hold, client)
                # Before the first publication: whoever repeats it has to be the same publisher.
                await self._keep(list(starts))
                places = [TopicPartition(*one, it.offset) for one, it in self._copied.items()]
                consumer.assign(places)
                while True:
                    await self._copy(consumer)
        except KafkaException as error:
            raise BridgeError(f"Kafka: {reason_of(error)}") from None
        finally:
            consumer.close()

    async def _hold(self, client: Client, task_status: trio.TaskStatus[None]) -> None:
        """Keep a client open."""
        async with client, trio.open_nursery() as nursery:
            nursery.start_soon(self.watch, client)
            await client.connected()
            task_status.started()
            await trio.sleep_forever()

    def _digest(self) -> str:
        text = f"{self.rules.subjects} {sorted(self.rules.where.items())}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _starts(
        self, consumer: Consumer, rows: dict[str, Any]
    ) -> dict[Partition, tuple[str, int, Numbering | None]]:
        """Return where each partition begins, and under which numbers."""
        admin = admin_client(self.properties)
        names = list(dict.fromkeys(rule.topic for rule in self.rules.subjects))
        asked = admin.describe_topics(TopicCollection(names), request_timeout=KAFKA_CALL_TIMEOUT_S)
        found: dict[Partition, tuple[str, int, Numbering | None]] = {}
        for name in names:
            try:
                topic = asked[name].result(KAFKA_CALL_TIMEOUT_S)
            except KafkaException as error:
                raise BridgeError(f"{name}: {reason_of(error)}") from None
            for number in range(len(topic.partitions)):
                low, high = consumer.get_watermark_offsets(
                    TopicPartition(name, number), timeout=KAFKA_CALL_TIMEOUT_S
                )
                row = rows.get(f"{name}/{number}")
                offset = low if self.from_beginning or row is not None else high
                numbering = None
                if row is not None and row["topic"] != str(topic.topic_id):
                    self.tell(f"{name} was created again: copied from its beginning")
                elif row is not None:
                    offset = self._within(name, number, row["offset"], low)
                    if row["rules"] == self._digest():
                        numbering = _numbering(row)
                    else:
                        self.tell(
                            f"the rules are others than before: up to {KAFKA_BRIDGE_RECORDS} "
                            f"records of {name}/{number} may be copied twice"
                        )
                found[name, number] = str(topic.topic_id), offset, numbering
        return found

    def _within(self, topic: str, number: int, offset: int, low: int) -> int:
        if offset < low:
            self.tell(
                f"{topic}/{number}: retention removed the records from {offset} to {low - 1} "
                "before they were copied"
            )
        return max(offset, low)

    async def _copy(self, consumer: Consumer) -> None:
        """Copy one batch, and keep how far it went."""
        by_partition: dict[Partition, list[Any]] = {}
        for message in await trio.to_thread.run_sync(_read, consumer):
            one = message.topic(), message.partition()
            error = message.error()
            if error is None:
                by_partition.setdefault(one, []).append(message)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                low, _ = await trio.to_thread.run_sync(
                    lambda: consumer.get_watermark_offsets(TopicPartition(*one), timeout=10)  # noqa: B023
                )
                self._copied[one].offset = self._within(*one, self._copied[one].offset, low)
                consumer.assign(
                    [TopicPartition(*each, it.offset) for each, it in self._copied.items()]
                )
                return
            elif not error.retriable():
                raise BridgeError(f"{one[0]}/{one[1]}: {error.str()}")
        if not by_partition:
            return
        async with trio.open_nursery() as nursery:
            for one, messages in by_partition.items():
                nursery.start_soon(self._publish, self._copied[one], messages)
        await self._keep(list(by_partition))

    async def _publish(self, copied: Copied, messages: list[Any]) -> None:
        """Publish the records of a partition in their order, and wait for all results."""
        open_ones = []
        for message in messages:
            record = _record(message)
            try:
                made = self.rules.published(record, self.bytes_max)
            except PoisonError as error:
                self.tell(f"{record.topic}/{record.partition}@{record.offset} left out: {error}")
                continue
            if made is None:
                continue
            command = Publish(
                made.subject,
                made.content.decode() if made.text else None,
                None if made.text else made.content,
                made.fields,
                f"{CLOSURE}{record.topic}/{record.partition}@{record.offset}",
                made.retained,
                made.qos,
                made.compressed,
                made.reply_subject,
            )
            open_ones.append((made.subject, await copied.client.submit_command(command)))
        await copied.client.settled()
        for subject, publication in open_ones:
            result = publication.result
            if result is None or result.status is not StatusName.PUBLISH_OK:
                reason = (
                    "no result" if result is None else f"{result.status.value}: {result.reason}"
                )
                raise BridgeError(f"{subject}: {reason}")
        copied.offset = messages[-1].offset() + 1

    async def _keep(self, partitions: list[Partition]) -> None:
        rows = {}
        for one in partitions:
            copied = self._copied[one]
            rows[f"{one[0]}/{one[1]}"] = {
                "topic": copied.topic_id,
                "offset": copied.offset,
                "rules": self._digest(),
                "numbering": attrs.asdict(copied.client.numbering),
            }
        await trio.to_thread.run_sync(self.ledger.commit, (), rows)


def _read(consumer: Consumer) -> list[Any]:
    first = consumer.poll(KAFKA_POLL_S)
    return [] if first is None else [first, *consumer.consume(KAFKA_BRIDGE_RECORDS - 1, 0)]


def _record(message: Any) -> KafkaRecord:
    return KafkaRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1] * NS_PER_MS,
        message.key(),
        message.value(),
        message.headers(),
    )


def _numbering(row: dict[str, Any]) -> Numbering:
    kept = row["numbering"]
    taken = {int(group): number for group, number in kept["taken"].items()}
    return Numbering(kept["groups"], taken, kept["publisher"], kept["publisher_key"])
