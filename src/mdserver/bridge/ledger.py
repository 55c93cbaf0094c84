"""What a bridge has copied, in a topic of Kafka, and the transactions that make it exact.

A transaction holds what was written and how far that goes, so both are there or neither is. Each
direction of a bridge has a transactional id: a bridge that starts ends what an earlier one of the
same name had begun, and shuts it out. The topic is compacted, a row a key; it also holds the keys
that prove who published, so nobody else should be allowed to read it.
"""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from mdserver.cluster.kafka_records import ProducedRecord
from mdserver.errors import MdserverError
from mdserver.limits import KAFKA_BRIDGE_PATIENCE_S, KAFKA_CALL_TIMEOUT_S

SILENT = logging.getLogger("mdserver.bridge.librdkafka")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False  # what matters is raised
Rows = Mapping[str, Any]


def ignored(_: KafkaError) -> None:
    """Do nothing: the request that fails says what is wrong."""


def admin_client(properties: Mapping[str, str]) -> AdminClient:
    """Make a client that asks for topics."""
    given: dict[str, Any] = {**properties, "error_cb": ignored}
    return AdminClient(given, logger=SILENT)


class BridgeError(MdserverError):
    """A bridge cannot go on; the message says why. Started again it goes on where it was."""


def reason_of(error: KafkaException) -> str:
    """Return what Kafka said, in a few words."""
    told = error.args[0]
    return told.str() if isinstance(told, KafkaError) else str(told)


class Ledger:
    """The rows of one direction of a bridge. Its methods block."""

    def __init__(self, properties: Mapping[str, str], name: str, topic: str) -> None:
        self._properties = dict(properties)
        self._name = name
        self._topic = topic
        self._refused: list[str] = []
        self._producer = Producer(
            {
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
                "linger.ms": "2",
                **properties,
                "transactional.id": name,
                "error_cb": ignored,
            },
            logger=SILENT,
        )

    def load(self) -> dict[str, Any]:
        """Shut out earlier bridges of this name, and return the rows. Raises BridgeError."""
        try:
            self._create()
            self._producer.init_transactions(KAFKA_BRIDGE_PATIENCE_S)
            return self._read()
        except KafkaException as error:
            raise BridgeError(f"{self._topic}: {reason_of(error)}") from None

    def _create(self) -> None:
        admin = admin_client(self._properties)
        if self._topic in admin.list_topics(timeout=KAFKA_CALL_TIMEOUT_S).topics:
            return
        # Without a number of replicas the brokers' default is used.
        new = NewTopic(self._topic, 1, config={"cleanup.policy": "compact"})
        try:
            admin.create_topics([new])[self._topic].result(KAFKA_CALL_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _read(self) -> dict[str, Any]:
        consumer = Consumer(
            {
                **self._properties,
                "group.id": self._name,
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": "true",
                "isolation.level": "read_committed",
                "error_cb": ignored,
            },
            logger=SILENT,
        )
        rows: dict[str, Any] = {}
        try:
            consumer.assign([TopicPartition(self._topic, 0, 0)])
            deadline = time.monotonic() + KAFKA_BRIDGE_PATIENCE_S
            while True:
                message = consumer.poll(0.5)
                if message is None:
                    if time.monotonic() > deadline:
                        raise BridgeError(f"{self._topic}: Kafka does not answer")
                    continue
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return rows
                if error is not None:
                    raise KafkaException(error)
                owner, _, key = (message.key() or b"").decode().partition(" ")
                if owner == self._name:
                    rows[key] = json.loads(message.value() or b"null")
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
                self._producer.abort_transaction(KAFKA_BRIDGE_PATIENCE_S)
            else:
                return

    def _write(self, records: Sequence[ProducedRecord], rows: Rows) -> None:
        producer = self._producer
        producer.begin_transaction()
        for record in records:
            self._queue(record.topic, record.value, record.key, record.headers, record.time_ms)
        for key, value in rows.items():
            text = json.dumps(value, separators=(",", ":")).encode()
            self._queue(self._topic, text, f"{self._name} {key}".encode(), [], 0)

    def _queue(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        headers: list[tuple[str, bytes]],
        time_ms: int,
    ) -> None:
        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
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
