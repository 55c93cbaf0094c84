"""What a bridge has copied, in a topic of Kafka, and the transactions that make it exact.

A transaction holds what was written and how far that goes, so both are there or neither is. Each
direction of a bridge has a transactional id: a bridge that starts ends what an earlier one of the
same name had begun, and shuts it out. The topic is compacted, a row a key; it also holds the keys
that prove who published, so nobody else should be allowed to read it.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

from mdserver.cluster.kafka_records import ProducedRecord
from mdserver.errors import MdserverError
from mdserver.limits import (
    KAFKA_BRIDGE_PATIENCE_S,
    KAFKA_BRIDGE_TRANSACTION_S,
    KAFKA_CALL_TIMEOUT_S,
    KAFKA_POLL_S,
)

SILENT = logging.getLogger("mdserver.bridge.librdkafka")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False  # what matters is raised
Rows = Mapping[str, Any]


def ignored(_: KafkaError) -> None:
    """Do nothing: the request that fails says what is wrong."""


def admin_client(properties: Mapping[str, str]) -> AdminClient:
    """Make a client that asks for topics."""
    made: AdminClient = made_client(AdminClient, {**properties, "error_cb": ignored})
    return made


class BridgeError(MdserverError):
    """A bridge cannot go on; the message says why. Started again it goes on where it was."""


def reason_of(error: KafkaException) -> str:
    """Return what Kafka said, in a few words."""
    told = error.args[0]
    return told.str() if isinstance(told, KafkaError) else str(told)


def unfit(partitions: int, policy: str | None) -> str | None:
    """Return why a topic cannot keep rows; None if it can."""
    if partitions != 1:
        return f"it has {partitions} partitions: the topic of a bridge's state has one"
    if "compact" not in (policy or ""):
        return f"its cleanup.policy is {policy}: a bridge's state needs a compacted topic"
    if "delete" in (policy or ""):
        return f"its cleanup.policy is {policy}: retention would delete a bridge's state"
    return None


def row_key(name: str, key: bytes | None) -> str | None:
    """Return the key of a row of this direction; None if a record is a row of another one."""
    whole, owner = (key or b"").decode(errors="replace"), f"{name} "
    return whole.removeprefix(owner) if whole.startswith(owner) else None


def made_client(kind: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
    """Make a client of librdkafka. Raises BridgeError if it does not take the properties."""
    try:
        return kind(dict(settings), logger=SILENT)
    except (KafkaException, ValueError, TypeError) as error:
        said = reason_of(error) if isinstance(error, KafkaException) else str(error)
        raise BridgeError(f"--properties: {said}") from None


class Ledger:
    """The rows of one direction of a bridge. Its methods block."""

    def __init__(self, properties: Mapping[str, str], name: str, topic: str) -> None:
        self._properties = {
            key: value
            for key, value in properties.items()
            # Bounded by the transaction, with which librdkafka makes them agree.
            if key not in ("delivery.timeout.ms", "message.timeout.ms")
        }
        self._name = name
        self._topic = topic
        self._refused: list[str] = []
        self._producer: Producer = made_client(
            Producer,
            {
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
                "linger.ms": "2",
                **self._properties,
                "transactional.id": name,
                "transaction.timeout.ms": str(KAFKA_BRIDGE_TRANSACTION_S * 1000),
                "error_cb": ignored,
            },
        )

    def load(self) -> dict[str, Any]:
        """Shut out earlier bridges of this name, and return the rows. Raises BridgeError."""
        admin = admin_client(self._properties)
        try:
            self._require_topic(admin)
            self._producer.init_transactions(KAFKA_BRIDGE_PATIENCE_S)
            return self._read(self._end(admin))
        except KafkaException as error:
            raise BridgeError(f"{self._topic}: {reason_of(error)}") from None

    def _require_topic(self, admin: AdminClient) -> None:
        """Make the topic, or look whether the one that is there can keep rows."""
        if self._topic not in admin.list_topics(timeout=KAFKA_CALL_TIMEOUT_S).topics:
            # Without a number of replicas the brokers' default is used.
            new = NewTopic(self._topic, 1, config={"cleanup.policy": "compact"})
            try:
                admin.create_topics([new])[self._topic].result(KAFKA_CALL_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            else:
                return
        asked = admin.describe_topics(
            TopicCollection([self._topic]), request_timeout=KAFKA_CALL_TIMEOUT_S
        )
        resource = ConfigResource("topic", self._topic)
        configs = admin.describe_configs([resource], request_timeout=KAFKA_CALL_TIMEOUT_S)
        partitions = len(asked[self._topic].result(KAFKA_CALL_TIMEOUT_S).partitions)
        policy = configs[resource].result(KAFKA_CALL_TIMEOUT_S)["cleanup.policy"].value
        wrong = unfit(partitions, policy)
        if wrong is not None:
            raise BridgeError(f"{self._topic}: {wrong}")

    def _end(self, admin: AdminClient) -> int:
        """Return the offset behind all that was ever written, also by transactions still open."""
        place = TopicPartition(self._topic, 0)
        asked = admin.list_offsets(
            {place: OffsetSpec.latest()},  # type: ignore[no-untyped-call]
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=KAFKA_CALL_TIMEOUT_S,
        )
        return int(asked[place].result(KAFKA_CALL_TIMEOUT_S).offset)

    def _read(self, end: int) -> dict[str, Any]:
        """Return the rows of this direction that are before an offset.

        A transaction of another bridge that is open holds back what was committed after it, so the
        first end that the consumer meets may be too early. Such a transaction ends soon, or is
        aborted by the brokers after KAFKA_BRIDGE_TRANSACTION_S.
        """
        consumer: Consumer = made_client(
            Consumer,
            {
                **self._properties,
                "group.id": self._name,
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": "true",
                "isolation.level": "read_committed",
                "error_cb": ignored,
            },
        )
        rows: dict[str, Any] = {}
        try:
            consumer.assign([TopicPartition(self._topic, 0, 0)])
            deadline = time.monotonic() + KAFKA_BRIDGE_PATIENCE_S
            while True:
                message: Any = consumer.poll(KAFKA_POLL_S)
                error = None if message is None else message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    if message.offset() >= end:
                        return rows
                elif error is not None and not error.retriable():
                    raise KafkaException(error)
                elif message is not None and error is None:
                    key = row_key(self._name, message.key())
                    if key is not None:
                        rows[key] = json.loads(message.value() or b"null")
                if time.monotonic() > deadline:
                    raise BridgeError(
                        f"{self._topic}: could not be read up to offset {end}, at which a "
                        "transaction is open or Kafka does not answer"
                    )
        finally:
            consumer.close()

    def commit(self, records: Sequence[ProducedRecord], rows: Rows) -> None:
        """Write records and rows in one transaction. Raises BridgeError."""
        deadline = time.monotonic() + KAFKA_BRIDGE_PATIENCE_S
        while True:
            self._refused.clear()
            try:
                self._write(records, rows)
                self._finish(deadline)
            except KafkaException as error:
                told = error.args[0]
                if not told.txn_requires_abort() or time.monotonic() > deadline or self._refused:
                    raise BridgeError(self._said(told)) from None
                self._abort()
            else:
                return

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction(KAFKA_BRIDGE_PATIENCE_S)
        except KafkaException as error:
            raise BridgeError(self._said(error.args[0])) from None

    def _write(self, records: Sequence[ProducedRecord], rows: Rows) -> None:
        producer = self._producer
        producer.begin_transaction()
        for record in records:
            self._queue(record.topic, record.value, record.key, record.headers, record.time_ms)
        for key, value in rows.items():
            text = json.dumps(value, separators=(",", ":")).encode()
            self._queue(self._topic, text, f"{self._name} {key}".encode(), [], 0, 0)

    def _queue(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        headers: list[tuple[str, bytes]],
        time_ms: int,
        partition: int = -1,
    ) -> None:
        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery=self._told,
                    timestamp=time_ms,
                    headers=[*headers] or None,
                )
            except BufferError:
                self._producer.poll(1)
            else:
                return

    def _finish(self, deadline: float) -> None:
        while True:
            try:
                self._producer.commit_transaction(KAFKA_CALL_TIMEOUT_S)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return

    def _told(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and error.code() not in (
            KafkaError._PURGE_QUEUE,
            KafkaError._PURGE_INFLIGHT,
            KafkaError._MSG_TIMED_OUT,
        ):
            self._refused.append(f"{message.topic()}: {error.str()}")

    def _said(self, error: KafkaError) -> str:
        if error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED):
            return f"another bridge with the name {self._name} was started"
        return self._refused[0] if self._refused else f"Kafka: {error.str()}"
