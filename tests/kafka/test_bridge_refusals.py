"""Records that Kafka refuses for good: the bridge leaves them out, and copies the others."""

import random
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from mdserver.bridge.ledger import BridgeError, Ledger
from mdserver.cluster.kafka_records import ProducedRecord
from tests.kafka.conftest import needed
from tests.kafka.talking import PATIENCE_S, new_topic
from tests.live_kafka import LiveKafka, live_kafka

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]
BYTES_MAX = 2_000
RIGHTS = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
    "allow.everyone.if.no.acl.found=true\n"
)


def record(topic: str, key: bytes, size: int) -> ProducedRecord:
    value = random.Random(size).randbytes(size)  # nothing that compression makes small
    return ProducedRecord(0, topic, -1, key, value, [], 0)


def small_topic(kafka: LiveKafka, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    topic = NewTopic(name, 1, config={"max.message.bytes": str(BYTES_MAX)})
    admin.create_topics([topic])[name].result(PATIENCE_S)
    return name


def test_what_kafka_refuses_for_good_is_left_out_and_the_rest_is_written(kafka: LiveKafka) -> None:
    topic = new_topic(kafka, 1)
    small = small_topic(kafka, f"{topic}-small")
    ledger = Ledger({"bootstrap.servers": kafka.servers}, "a", f"{topic}-state")
    ledger.load()
    records = [
        record(topic, b"0", 10),
        record(small, b"1", 10),
        record(small, b"2", BYTES_MAX * 2),
        record(topic, b"3", 2_000_000),  # the client refuses it at once
        record(small, b"4", 10),
        record(small, b"5", BYTES_MAX * 3),
        record("..", b"6", 10),
        record(topic, b"7", 10),
    ]
    left_out = ledger.commit(records, {"x": 1})
    assert sorted(left_out) == [2, 3, 5, 6]
    assert "too large" in left_out[2].lower()
    assert ledger.commit(records[:1], {"x": 2}) == {}
    again = Ledger({"bootstrap.servers": kafka.servers}, "a", f"{topic}-state")
    assert again.load() == {"x": 2}
    assert kept(kafka, topic) == [b"0", b"7", b"0"]
    assert kept(kafka, small) == [b"1", b"4"]


def test_a_batch_that_is_too_large_is_no_fault_of_its_records(kafka: LiveKafka) -> None:
    """All are to be written: none is named as long as each can be written alone."""
    topic = new_topic(kafka, 1)
    small = small_topic(kafka, f"{topic}-small")
    ledger = Ledger({"bootstrap.servers": kafka.servers}, "a", f"{topic}-state")
    ledger.load()
    records = [record(small, b"%d" % n, 900) for n in range(8)]
    large = record(small, b"large", BYTES_MAX * 2)
    left_out = ledger.commit([*records, large, *records], {"x": 1}, whole=True)
    assert list(left_out) == [8]
    assert ledger.commit(records, {"x": 2}, whole=True) == {}
    assert kept(kafka, small) == [each.key for each in records]
    again = Ledger({"bootstrap.servers": kafka.servers}, "a", f"{topic}-state")
    assert again.load() == {"x": 2}


def test_a_row_that_kafka_refuses_is_an_error(kafka: LiveKafka) -> None:
    topic = new_topic(kafka, 1)
    ledger = Ledger({"bootstrap.servers": kafka.servers}, "a", f"{topic}-state")
    ledger.load()
    with pytest.raises(BridgeError, match="too large"):
        ledger.commit((), {"x": "y" * 2_000_000})


def test_a_topic_to_which_the_bridge_may_not_write_is_left_out(tmp_path: Path) -> None:
    with needed(), live_kafka(tmp_path, more=RIGHTS) as kafka:
        topic, closed = new_topic(kafka, 1), new_topic(kafka, 1)
        rule = AclBinding(
            ResourceType.TOPIC,
            closed,
            ResourcePatternType.LITERAL,
            "User:ANONYMOUS",
            "*",
            AclOperation.DESCRIBE,
            AclPermissionType.ALLOW,
        )
        kafka.admin.create_acls([rule])[rule].result(PATIENCE_S)
        ledger = Ledger({"bootstrap.servers": kafka.servers}, "a", f"{topic}-state")
        ledger.load()
        left_out = ledger.commit([record(closed, b"0", 10), record(topic, b"1", 10)], {"x": 1})
        assert left_out == {0: f"{closed}: there is no right to write to it"}
        assert kept(kafka, topic) == [b"1"]


def kept(kafka: LiveKafka, topic: str) -> list[bytes]:
    """Return the keys of a topic's committed records."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.servers,
            "group.id": "kept",
            "isolation.level": "read_committed",
            "enable.partition.eof": "true",
        }
    )
    found: list[bytes] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message: Any = consumer.poll(PATIENCE_S)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                return found
            found.append(message.key())
    finally:
        consumer.close()
