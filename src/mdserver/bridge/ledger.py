"""What a bridge has copied, in a topic of Kafka, and the transactions that make it exact.

A transaction holds what was written and how far that goes, so both are there or neither is. Each
direction of a bridge has a transactional id: a bridge that starts ends what an earlier one of the
same name had begun, and shuts it out. The topic is compacted, a row a key; it also holds the keys
that prove who published, so nobody else should be allowed to read it.
"""

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
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
    AclOperation,
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

from mdserver.bridge.complaints import SILENCE, BrokerComplaints
from mdserver.cluster.kafka_records import ProducedRecord
from mdserver.errors import MdserverError
from mdserver.limits import (
    KAFKA_BRIDGE_PATIENCE_S,
    KAFKA_BRIDGE_TRANSACTION_S,
    KAFKA_CALL_TIMEOUT_S,
    KAFKA_POLL_S,
    KAFKA_STATE_ROWS,
    KAFKA_STATE_SEGMENT_BYTES,
    KAFKA_TOPICS_KNOWN_MAX,
)

SILENT = logging.getLogger("mdserver.bridge.librdkafka")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False  # what matters is raised
Rows = Mapping[str, Any]
PROPERTIES = "--properties"
REFUSED_FOR_GOOD = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
)
"""Errors of a record that it gets each time it is written."""
AWAITED = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)
"""Errors of reading after which librdkafka goes on by itself, although none is `retriable`."""
_UNKNOWN = (
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)
"""What is said of a topic that was made just now."""
KEPT_SMALL = {
    "segment.ms": "600000",
    "segment.bytes": str(KAFKA_STATE_SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.1",
}
"""Settings of the topic of the state: each start reads all that is not compacted, and by default
Kafka compacts only segments of 1 GB or a week."""
_NOT_TO_BE_SET = (KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION)
_WRITTEN_AGAIN = (
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._INVALID_DIFFERENT_RECORD,
)
"""Errors of a record that are not about it."""


def ignored(_: KafkaError) -> None:
    """Do nothing: the request that fails says what is wrong."""


def admin_client(
    properties: Mapping[str, str],
    option: str = PROPERTIES,
    heard: Callable[[KafkaError], None] = ignored,
) -> AdminClient:
    """Make a client that asks for topics; `heard` is called in its `poll` with what goes wrong.

    Raises BridgeError as `made_client` does.
    """
    made: AdminClient = made_client(AdminClient, {**properties, "error_cb": heard}, option)
    return made


class BridgeError(MdserverError):
    """A bridge cannot go on; the message says why. Started again it goes on where it was."""


def reason_of(error: KafkaException) -> str:
    """Return what Kafka said, in a few words."""
    told = error.args[0]
    return told.str() if isinstance(told, KafkaError) else str(told)


@contextmanager
def bridge_errors(topic: str, complaints: BrokerComplaints | None = None) -> Iterator[None]:
    """Raise what Kafka says of a topic, or that it is silent and why, as a BridgeError."""
    silence = "Kafka does not answer"
    try:
        yield
    except KafkaException as error:
        if complaints is None or error.args[0].code() not in SILENCE:
            raise BridgeError(f"{topic}: {reason_of(error)}") from None
        raise BridgeError(f"{topic}: {silence}{complaints.said()}") from None
    except TimeoutError:
        why = "" if complaints is None else complaints.said()
        raise BridgeError(f"{topic}: {silence}{why}") from None


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


def made_client(
    kind: Callable[..., Any], settings: Mapping[str, Any], option: str = PROPERTIES
) -> Any:
    """Make a client of librdkafka.

    Raises BridgeError if it does not take the properties, which the user gave with `option`.
    """
    try:
        return kind(dict(settings), logger=SILENT)
    except (KafkaException, ValueError, TypeError) as error:
        said = reason_of(error) if isinstance(error, KafkaException) else str(error)
        raise BridgeError(f"{option}: {said}") from None


class Ledger:
    """The rows of one direction of a bridge, each of the type `row`. Its methods block."""

    def __init__(
        self,
        properties: Mapping[str, str],
        name: str,
        topic: str,
        row: Any = Any,
        *,
        what: str = "bridge with the name",
        option: str = PROPERTIES,
    ) -> None:
        self._what = what
        self._option = option
        self._rows = msgspec.json.Decoder(row)
        self._properties = {
            key: value
            for key, value in properties.items()
            # Bounded by the transaction, with which librdkafka makes them agree.
            if key not in ("delivery.timeout.ms", "message.timeout.ms")
        }
        self._name = name
        self._topic = topic
        self._open: set[str] = set()
        """Topics to which this user may write."""
        self._refused: dict[int, str] = {}
        """Places of records that were refused for good in this transaction, and why."""
        self._failures: list[str] = []
        """What else went wrong in it."""
        self._producer: Producer = made_client(
            Producer,
            {
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
                "linger.ms": "2",
                # Below the transaction's time, so that a topic that is not there is told as such.
                "topic.metadata.propagation.max.ms": "5000",
                **self._properties,
                "transactional.id": name,
                "transaction.timeout.ms": str(KAFKA_BRIDGE_TRANSACTION_S * 1000),
                "error_cb": ignored,
            },
            option,
        )

    def load(self) -> dict[str, Any]:
        """Shut out earlier bridges of this name, and return the rows. Raises BridgeError."""
        admin = admin_client(self._properties, self._option)
        with bridge_errors(self._topic):
            self._require_topic(admin)
            self._producer.init_transactions(KAFKA_BRIDGE_PATIENCE_S)
            return self._read(self._end(admin))

    def _require_topic(self, admin: AdminClient) -> None:
        """Make the topic, or look whether the one that is there can keep rows."""
        if self._topic not in admin.list_topics(timeout=KAFKA_CALL_TIMEOUT_S).topics:
            try:
                self._make_topic(admin)
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

    def _make_topic(self, admin: AdminClient) -> None:
        """Make the topic, with as much of KEPT_SMALL as the brokers let a user set."""
        for more in (KEPT_SMALL, {}):
            # Without a number of replicas the brokers' default is used.
            new = NewTopic(self._topic, 1, config={"cleanup.policy": "compact", **more})
            try:
                admin.create_topics([new])[self._topic].result(KAFKA_CALL_TIMEOUT_S)
            except KafkaException as error:
                if not more or error.args[0].code() not in _NOT_TO_BE_SET:
                    raise
            else:
                return

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
            self._option,
        )
        try:
            consumer.assign([TopicPartition(self._topic, 0, 0)])
            return self._read_to(consumer, end)
        finally:
            consumer.close()

    def _read_to(self, consumer: Consumer, end: int) -> dict[str, Any]:
        rows: dict[str, Any] = {}
        deadline = time.monotonic() + KAFKA_BRIDGE_PATIENCE_S
        while True:
            message: Any
            for message in consumer.consume(KAFKA_STATE_ROWS, KAFKA_POLL_S):
                error = message.error()
                if error is None or error.code() == KafkaError._PARTITION_EOF:
                    if message.offset() >= end:
                        return rows
                elif error.code() not in (*AWAITED, *_UNKNOWN):
                    raise KafkaException(error)
                if error is None:
                    # However many rows the topic has, Kafka is waited for only when it gives none.
                    deadline = time.monotonic() + KAFKA_BRIDGE_PATIENCE_S
                    key = row_key(self._name, message.key())
                    if key is not None:
                        self._take(rows, key, message)
            if time.monotonic() > deadline:
                raise BridgeError(
                    f"{self._topic}: could not be read up to offset {end}, at which a "
                    "transaction is open or Kafka does not answer"
                )

    def _take(self, rows: dict[str, Any], key: str, message: Any) -> None:
        """Take a row as it was read. Raises BridgeError if no bridge wrote it."""
        text = message.value()
        if text is None:
            rows.pop(key, None)
            return
        try:
            self._rows.decode(text)
            rows[key] = json.loads(text)
        except (msgspec.MsgspecError, ValueError):
            raise BridgeError(
                f"{self._topic}@{message.offset()}: the row of {key} is not one that a bridge wrote"
            ) from None

    def commit(
        self, records: Sequence[ProducedRecord], rows: Rows, *, whole: bool = False
    ) -> dict[int, str]:
        """Write records and rows in one transaction.

        Returns the places of the records that Kafka refused for good and why; the others were
        written without them. With `whole` nothing was written then. Raises BridgeError.
        """
        deadline = time.monotonic() + KAFKA_BRIDGE_PATIENCE_S
        left_out = self._without_right(records)
        alone: set[int] = set()
        while True:
            if whole and left_out:
                return left_out
            self._refused.clear()
            self._failures.clear()
            try:
                self._write(records, rows, left_out, alone)
                if whole and left_out:
                    self._abort()
                    return left_out
                self._finish(deadline)
            except KafkaException as error:
                self._end_failed(error.args[0], deadline)
                self._judge(records, left_out, alone)
            else:
                return left_out

    def _end_failed(self, told: KafkaError, deadline: float) -> None:
        """Abort a transaction that failed, to write it again. Raises BridgeError if it ends all."""
        # A transaction that failed in between takes no further records, which is _STATE.
        again = told.txn_requires_abort() or told.code() == KafkaError._STATE
        if not again or (time.monotonic() > deadline and not self._refused):
            raise BridgeError(self._said(told))
        self._abort()
        self._producer.poll(0)
        if self._failures:
            raise BridgeError(self._said(told))

    def _judge(
        self, records: Sequence[ProducedRecord], left_out: dict[int, str], alone: set[int]
    ) -> None:
        """Leave out what was refused for good.

        A batch of the producer is refused as a whole. If several records of a topic were, each is
        to be written alone, which shows whether it is meant.
        """
        counts = Counter(records[at].topic for at in self._refused)
        for at, reason in self._refused.items():
            if at in alone or counts[records[at].topic] == 1:
                left_out[at] = reason
            else:
                alone.add(at)

    def _without_right(self, records: Sequence[ProducedRecord]) -> dict[int, str]:
        """Return the places of records of topics to which this user may not write, and why.

        In a transaction Kafka does not say which topic it is, and the producer is of no use after.
        """
        names = [name for name in dict.fromkeys(r.topic for r in records) if name not in self._open]
        if not names:
            return {}
        closed: dict[str, str] = {}
        # A name: what nobody holds answers nothing.
        admin = admin_client(self._properties, self._option)
        asked = admin.describe_topics(
            TopicCollection(names),
            include_authorized_operations=True,
            request_timeout=KAFKA_CALL_TIMEOUT_S,
        )
        for name in names:
            try:
                rights = asked[name].result(KAFKA_CALL_TIMEOUT_S).authorized_operations
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    closed[name] = f"{name}: {reason_of(error)}"
            except TimeoutError:
                break  # the transaction waits for Kafka, and says if it does not come back
            else:
                if rights and AclOperation.WRITE not in rights:
                    closed[name] = f"{name}: there is no right to write to it"
                elif len(self._open) < KAFKA_TOPICS_KNOWN_MAX:
                    self._open.add(name)
        return {at: closed[one.topic] for at, one in enumerate(records) if one.topic in closed}

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction(KAFKA_BRIDGE_PATIENCE_S)
        except KafkaException as error:
            raise BridgeError(self._said(error.args[0])) from None

    def _write(
        self,
        records: Sequence[ProducedRecord],
        rows: Rows,
        left_out: dict[int, str],
        alone: set[int],
    ) -> None:
        """Begin a transaction with records and rows; add to `left_out` what is refused at once."""
        self._producer.begin_transaction()
        for at, record in enumerate(records):
            if at in left_out:
                continue
            if at in alone:
                self._producer.flush(KAFKA_CALL_TIMEOUT_S)
            try:
                self._queue(record, at)
            except KafkaException as error:
                if error.args[0].code() not in REFUSED_FOR_GOOD:
                    raise
                left_out[at] = f"{record.topic}: {reason_of(error)}"
            else:
                if at in alone:
                    self._producer.flush(KAFKA_CALL_TIMEOUT_S)
        for key, value in rows.items():
            text = json.dumps(value, separators=(",", ":")).encode()
            name = f"{self._name} {key}".encode()
            self._queue(ProducedRecord(0, self._topic, 0, name, text, [], 0), None)

    def _queue(self, record: ProducedRecord, at: int | None) -> None:
        """Give the producer a record: that at a place, or a row."""
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    record.partition,
                    on_delivery=partial(self._told, at),
                    timestamp=record.time_ms,
                    headers=[*record.headers] or None,
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

    def _told(self, at: int | None, error: KafkaError | None, message: Any) -> None:
        """Note what became of a record; `at` is its place, None that of a row."""
        if error is None or error.code() in _WRITTEN_AGAIN:
            return
        said = f"{message.topic()}: {error.str()}"
        if at is not None and error.code() in REFUSED_FOR_GOOD:
            self._refused[at] = said
        else:
            self._failures.append(said)

    def _said(self, error: KafkaError) -> str:
        if error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED):
            return f"another {self._what} {self._name} was started"
        return self._failures[0] if self._failures else f"Kafka: {error.str()}"
