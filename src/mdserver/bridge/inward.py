"""Copies topics to subjects: each record once.

Each partition has a publisher of its own, so the numbers of its publications follow from the order
of its records. After each batch the next offset and the last numbers are kept together (`Ledger`).
A bridge that starts publishes what came after that again, under the same numbers, and the cluster
takes each number once.

A record that servers refuse for good (`PUBLISH_DENIED`, too large) is left out and told. Those that
they could not take just then are published again a little later; what was taken behind them is kept
by offset (`Copied.beyond`), since the numbers do not follow from the order any more.
"""

import hashlib
from collections.abc import Callable, Container
from typing import Any, TypeVar

import attrs
import trio
from attrs import define, field
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]
from msgspec import structs

from mdserver.bridge.beginning import Beginning, PartitionNow, beginning, removed
from mdserver.bridge.ledger import (
    AWAITED,
    BridgeError,
    Ledger,
    admin_client,
    ignored,
    made_client,
    reason_of,
)
from mdserver.bridge.rules import CLOSURE, Rules
from mdserver.client import Client
from mdserver.client.core.values import PublishResult
from mdserver.cluster.kafka_records import KafkaRecord, PoisonError, headers_of
from mdserver.core.commands import Publish
from mdserver.core.events import StatusName
from mdserver.core.message import Publication, Qos
from mdserver.limits import (
    CLOSURE_BYTES_MAX,
    KAFKA_BRIDGE_CLOSE_S,
    KAFKA_BRIDGE_PATIENCE_S,
    KAFKA_BRIDGE_RECORDS,
    KAFKA_BRIDGE_RETRY_S,
    KAFKA_CALL_TIMEOUT_S,
    KAFKA_POLL_S,
    NS_PER_MS,
)

T = TypeVar("T")
Partition = tuple[str, int]
Tell = Callable[[str], None]
OpenClient = Callable[..., Client]
Watch = Callable[[Client], Any]
_REFUSED_FOR_GOOD = (StatusName.PUBLISH_DENIED, StatusName.MESSAGE_SIZE_LIMIT_EXCEEDED)


@define
class Copied:
    """How far one partition was copied, and by which publisher.

    `offset` is the next one; of those behind it `beyond` were copied already.
    """

    topic_id: str
    offset: int
    client: Client
    beyond: frozenset[int] = frozenset()


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
    _failing: dict[Partition, float] = field(factory=dict, init=False)
    """Partitions of which reading failed -> since when."""
    _keeping: trio.Lock = field(factory=trio.Lock, init=False)

    async def run(self) -> None:
        """Copy until cancelled. Raises BridgeError."""
        rows = await asked(self.ledger.load)
        parts = await asked(self._partitions)
        async with trio.open_nursery() as nursery:
            for one in parts:
                start = beginning(one, rows, self._digest(), from_beginning=self.from_beginning)
                if start.told is not None:
                    self.tell(start.told)
                await nursery.start(self._hold, one, start)
            # Before the first publication: whoever repeats it has to be the same publisher.
            await self._keep(list(self._copied))
            await self._read_on()

    async def _hold(
        self, one: PartitionNow, start: Beginning, task_status: trio.TaskStatus[None]
    ) -> None:
        """Keep the client of a partition open."""
        client = self.open_client(numbering=start.numbering)
        copied = Copied(one.topic_id, start.offset, client, start.beyond)
        self._copied[one.topic, one.number] = copied
        async with client, trio.open_nursery() as nursery:
            nursery.start_soon(self.watch, client)
            await client.connected()
            task_status.started()
            await trio.sleep_forever()

    def _digest(self) -> str:
        text = f"{self.rules.subjects} {sorted(self.rules.where.items())} {self.bytes_max}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _partitions(self) -> list[PartitionNow]:
        """Return all partitions of the topics as they are now."""
        admin = admin_client(self.properties)
        names = list(dict.fromkeys(rule.topic for rule in self.rules.subjects))
        described = admin.describe_topics(
            TopicCollection(names), request_timeout=KAFKA_CALL_TIMEOUT_S
        )
        topics = {}
        for name in names:
            try:
                topics[name] = described[name].result(KAFKA_CALL_TIMEOUT_S)
            except KafkaException as error:
                raise BridgeError(f"{name}: {reason_of(error)}") from None
        every = [(name, number) for name in names for number in range(len(topics[name].partitions))]
        ends = self._ends(every)
        return [PartitionNow(*one, str(topics[one[0]].topic_id), *ends[one]) for one in every]

    def _ends(self, partitions: list[Partition]) -> dict[Partition, tuple[int, int]]:
        """Return the first offset of each partition, and the one after the last."""
        admin = admin_client(self.properties)
        found = []
        earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
        for wanted in (earliest, latest):
            asking = admin.list_offsets(
                {TopicPartition(*one): wanted for one in partitions},
                request_timeout=KAFKA_CALL_TIMEOUT_S,
            )
            found.append(
                {
                    (place.topic, place.partition): int(it.result(KAFKA_CALL_TIMEOUT_S).offset)
                    for place, it in asking.items()
                }
            )
        lows, highs = found
        return {one: (lows[one], highs[one]) for one in partitions}

    async def _read_on(self) -> None:
        settings = {
            "isolation.level": "read_committed",
            **self.properties,
            "group.id": self.rules.name,
            "enable.auto.commit": "false",
            "auto.offset.reset": "error",
            "error_cb": ignored,
        }
        consumer: Consumer = made_client(Consumer, settings)
        try:
            self._assign(consumer)
            while True:
                await self._copy(consumer)
        except KafkaException as error:
            raise BridgeError(f"Kafka: {reason_of(error)}") from None
        finally:
            with trio.move_on_after(KAFKA_BRIDGE_CLOSE_S, shield=True):
                await trio.to_thread.run_sync(consumer.close, abandon_on_cancel=True)

    def _assign(self, consumer: Consumer) -> None:
        consumer.assign([TopicPartition(*one, it.offset) for one, it in self._copied.items()])

    async def _copy(self, consumer: Consumer) -> None:
        """Copy one batch, and keep how far it went."""
        by_partition: dict[Partition, list[Any]] = {}
        # Never abandoned: a consumer that is closed must not be in use. It takes KAFKA_POLL_S.
        for message in await trio.to_thread.run_sync(_read, consumer):
            one = message.topic(), message.partition()
            error = message.error()
            if error is None:
                by_partition.setdefault(one, []).append(message)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                await self._skip_removed(one)
                self._assign(consumer)
                return
            elif error.code() in AWAITED:
                self._failing.setdefault(one, trio.current_time())
            else:  # a topic that is not there as well: it may be made again, as another one
                raise BridgeError(f"{one[0]}/{one[1]}: {error.str()}")
        await self._look_at_failing(by_partition)
        if not by_partition:
            return
        async with trio.open_nursery() as nursery:
            for one, messages in by_partition.items():
                nursery.start_soon(self._publish, one, messages)
        await self._keep(list(by_partition))

    async def _look_at_failing(self, read: Container[Partition]) -> None:
        """Ask for partitions that failed and gave nothing since. Raises BridgeError."""
        for one, since in list(self._failing.items()):
            if one in read:
                del self._failing[one]
            elif trio.current_time() > since + KAFKA_BRIDGE_PATIENCE_S:
                await asked(self._ends, [one])  # they may be well, and empty
                del self._failing[one]

    async def _skip_removed(self, one: Partition) -> None:
        """Go on behind what retention removed. Raises BridgeError if records were lost."""
        copied = self._copied[one]
        low, high = (await asked(self._ends, [one]))[one]
        if copied.offset > high:
            raise BridgeError(
                f"{one[0]}/{one[1]}: Kafka has lost records, or the topic was made again: start "
                "the bridge again"
            )
        told = removed(PartitionNow(*one, copied.topic_id, low, high), copied.offset)
        if told is not None:
            self.tell(told)
        copied.offset = max(copied.offset, low)

    async def _publish(self, one: Partition, messages: list[Any]) -> None:
        """Publish the records of a partition in their order, until each has its result."""
        copied = self._copied[one]
        waiting = [message for message in messages if message.offset() not in copied.beyond]
        deadline = trio.current_time() + KAFKA_BRIDGE_PATIENCE_S
        while failed := await self._publish_once(copied.client, waiting):
            waiting = [message for message, _ in failed]
            first, reason = failed[0]
            # The others were taken, under numbers that do not follow from their order: a bridge
            # that starts must not number them again.
            copied.offset = first.offset()
            offsets = {message.offset() for message in messages} | copied.beyond
            offsets -= {message.offset() for message in waiting}
            copied.beyond = frozenset(at for at in offsets if at > copied.offset)
            await self._keep([one])
            if trio.current_time() > deadline:
                raise BridgeError(f"{place_of(first)}: {reason}")
            await trio.sleep(KAFKA_BRIDGE_RETRY_S)
        copied.offset = messages[-1].offset() + 1
        copied.beyond = frozenset(at for at in copied.beyond if at >= copied.offset)

    async def _publish_once(self, client: Client, messages: list[Any]) -> list[tuple[Any, str]]:
        """Publish records; return those that servers could not take just now, and why.

        Raises BridgeError if nobody knows whether one was taken.
        """
        open_ones = []
        for message in messages:
            made = self._made(message)
            if made is not None:
                open_ones.append((message, made, await client.submit_command(command_of(made))))
        await client.settled()
        failed = []
        for message, made, publication in open_ones:
            result = publication.result
            if result is not None and result.status is StatusName.PUBLISH_OK:
                continue
            reason = "no result" if result is None else f"{result.status.value}: {result.reason}"
            if left_out(result, made.qos):
                self.tell(f"{place_of(message)} left out: {reason}")
            elif result is not None and result.certain:
                failed.append((message, reason))
            else:
                raise BridgeError(f"{place_of(message)}: {reason}")
        return failed

    def _made(self, message: Any) -> Publication | None:
        """Return what is published for a record; None if nothing is. Poison is told."""
        try:
            made = self.rules.published(_record(message), self.bytes_max)
            closure = f"{CLOSURE}{place_of(message)}"
            if len(closure) > CLOSURE_BYTES_MAX:
                raise PoisonError("the name of its topic is too long for a closure")
        except PoisonError as error:
            self.tell(f"{place_of(message)} left out: {error}")
            return None
        return None if made is None else structs.replace(made, closure=closure)

    async def _keep(self, partitions: list[Partition]) -> None:
        async with self._keeping:  # partitions that wait for servers keep theirs beside the others
            rows = {}
            for one in partitions:
                copied = self._copied[one]
                rows[f"{one[0]}/{one[1]}"] = {
                    "topic": copied.topic_id,
                    "offset": copied.offset,
                    "beyond": sorted(copied.beyond),
                    "rules": self._digest(),
                    "numbering": attrs.asdict(copied.client.numbering),
                }
            await asked(self.ledger.commit, (), rows)


async def asked(function: Callable[..., T], *arguments: Any) -> T:
    """Call what waits for Kafka in a thread, which is left alone if this task is cancelled.

    Raises BridgeError.
    """
    try:
        return await trio.to_thread.run_sync(function, *arguments, abandon_on_cancel=True)
    except KafkaException as error:
        raise BridgeError(f"Kafka: {reason_of(error)}") from None
    except TimeoutError:
        raise BridgeError("Kafka does not answer") from None


def left_out(result: PublishResult | None, qos: Qos) -> bool:
    """Return whether a publication that was not taken is never repeated."""
    if result is None:
        return False
    return qos is Qos.STANDARD or (result.certain and result.status in _REFUSED_FOR_GOOD)


def command_of(made: Publication) -> Publish:
    """Return the command that publishes."""
    return Publish(
        made.subject,
        made.content.decode() if made.text else None,
        None if made.text else made.content,
        made.fields,
        made.closure,
        made.retained,
        made.qos,
        made.compressed,
        made.reply_subject,
    )


def place_of(message: Any) -> str:
    """Return the name of a record in lines for the user."""
    return f"{message.topic()}/{message.partition()}@{message.offset()}"


def _read(consumer: Consumer) -> list[Any]:
    first = consumer.poll(KAFKA_POLL_S)
    return [] if first is None else [first, *consumer.consume(KAFKA_BRIDGE_RECORDS - 1, 0)]


def _record(message: Any) -> KafkaRecord:
    """Return a record as the rules take it. Raises PoisonError."""
    return KafkaRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1] * NS_PER_MS,
        message.key(),
        message.value(),
        headers_of(message),
    )
