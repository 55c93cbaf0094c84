"""A record of a client in Java, between records of ours."""

import subprocess
from pathlib import Path

import pytest
import trio

from mdserver.core.message import Position
from tests.kafka.conftest import Members
from tests.kafka.talking import client, contents, new_topic, take
from tests.live_kafka import JARS, LiveKafka, java

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]
SOURCE = Path(__file__).with_name("WriteRecord.java")


def write_record(kafka: LiveKafka, *words: str) -> tuple[int, int]:
    """Run the source file; return partition and offset of its record."""
    command = [java(), "-Xmx128m", "-cp", f"{JARS}/broker/*", str(SOURCE), kafka.servers, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    partition, offset = done.stdout.split()
    return int(partition), int(offset)


async def test_a_record_of_a_java_client_stands_in_the_order_of_its_subject(
    kafka: LiveKafka, members: Members
) -> None:
    """Keys that are no ASCII too, of which other clients of librdkafka choose other partitions."""
    topic, key = new_topic(kafka, 13), "camion/n\u00b0 7"
    subject = f"/{topic}/{key}"
    with members.start(kafka, f"topics={topic}") as here:
        async with client(here) as it, it.subscribe(subject) as subscription:
            await it.connected()
            ours = await it.publish(subject, "ours")
            place = await trio.to_thread.run_sync(write_record, kafka, topic, key, "of Java")
            last = await it.publish(subject, "ours again")
            messages = await take(subscription, 3)
    assert contents(messages) == ["ours", "of Java", "ours again"]
    assert messages[1].fields == {"unit": "km/h"}
    assert [message.position for message in messages] == [
        Position(ours.epoch, ours.seq),
        Position(1, place[1] + 1),
        Position(last.epoch, last.seq),
    ]
    assert "stray record" not in here.log.read_text(encoding="utf-8")
