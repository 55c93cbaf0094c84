"""`mdserver bridge kafka` between a broker and a server with a log of its own."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import NewPartitions

from mdserver.client import Client
from tests.kafka.talking import PATIENCE_S, client, new_topic, take
from tests.live import LiveServer, live_server
from tests.live_kafka import LiveKafka

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]
KILLS = 3


@contextmanager
def bridge(
    kafka: LiveKafka, server: LiveServer, folder: Path, name: str, *words: str
) -> Iterator[None]:
    """Run a bridge, and kill it at the end."""
    file = folder / "kafka.properties"
    file.write_text(f"bootstrap.servers={kafka.servers}\n")
    command = [sys.executable, "-m", "mdserver.cli.main", "bridge", "kafka"]
    command += ["--properties", str(file), "--name", name, "--server", server.url, *words]
    with (folder / "bridge.log").open("a") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            yield
            assert process.poll() is None, (folder / "bridge.log").read_text()
        finally:
            process.kill()
            process.wait()


def records(kafka: LiveKafka, topic: str) -> list[tuple[str, bytes]]:
    """Return key and value of all committed records of a topic of one partition."""
    settings = {
        "bootstrap.servers": kafka.servers,
        "group.id": "test",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    found: list[tuple[str, bytes]] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return found
            assert error is None, error
            found.append(((message.key() or b"").decode(), message.value() or b""))
    finally:
        consumer.close()
    raise AssertionError("Kafka did not answer")


async def copied(kafka: LiveKafka, topic: str, count: int) -> list[tuple[str, bytes]]:
    """Wait until a topic has so many records, and return them."""
    with trio.fail_after(PATIENCE_S):
        while True:
            found = await trio.to_thread.run_sync(records, kafka, topic)
            if len(found) >= count:
                return found


async def test_both_directions_and_nothing_in_a_circle(kafka: LiveKafka, tmp_path: Path) -> None:
    topic = new_topic(kafka, 1)
    words = ("--to-subjects", f"{topic}=/{topic}/{{key}}", "--to-topics", f"/{topic}/**={topic}")
    with live_server(tmp_path) as server:
        async with client(server) as it, it.subscribe(f"/{topic}/**") as subscription:
            await it.connected()
            kafka.produce(topic, [("a/1", b"from Kafka"), ("a//1", b"poison"), ("a/2", b"too")])
            with bridge(kafka, server, tmp_path, topic, *words, "--from-beginning"):
                there = await take(subscription, 2)
                assert [(one.subject, one.content) for one in there] == [
                    (f"/{topic}/a/1", "from Kafka"),
                    (f"/{topic}/a/2", "too"),
                ]
                await it.publish(f"/{topic}/b/1", "from here")
                assert (await copied(kafka, topic, 4))[3:] == [("b/1", b"from here")]
                kafka.produce(topic, [("a/3", b"last")])
                # What was published here, then what comes last: nothing came back between.
                assert [one.content for one in await take(subscription, 2)] == ["from here", "last"]
                assert len(await copied(kafka, topic, 5)) == 5


async def test_new_partitions_and_a_topic_that_was_made_again_are_copied_from_their_beginning(
    kafka: LiveKafka, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 1)
    keys = [f"{number}" for number in range(8)]
    rule = ("--to-subjects", f"{topic}=/{topic}/{{key}}")
    with live_server(tmp_path) as server:
        async with client(server) as it, it.subscribe(f"/{topic}/*") as subscription:
            await it.connected()
            kafka.produce(topic, [("0", b"first")])
            with bridge(kafka, server, tmp_path, topic, *rule, "--from-beginning"):
                assert [one.content for one in await take(subscription, 1)] == ["first"]
            more = kafka.admin.create_partitions([NewPartitions(topic, 3)])
            more[topic].result(PATIENCE_S)
            kafka.produce(topic, [(key, b"second") for key in keys])
            with bridge(kafka, server, tmp_path, topic, *rule):
                there = await take(subscription, len(keys))
            assert sorted(one.subject for one in there) == [f"/{topic}/{key}" for key in keys]
            kafka.delete(topic)
            kafka.create(topic, 1)
            kafka.produce(topic, [("0", b"third")])
            with bridge(kafka, server, tmp_path, topic, *rule):
                assert [one.content for one in await take(subscription, 1)] == ["third"]
    told = (tmp_path / "bridge.log").read_text()
    assert f"{topic} was created again: copied from its beginning" in told


@pytest.mark.soak
async def test_a_bridge_to_subjects_that_is_killed_copies_each_record_once(
    kafka: LiveKafka, tmp_path: Path
) -> None:
    topic, count, rounds = new_topic(kafka, 2), 3000, KILLS + 1
    keys = [f"k/{number}" for number in range(6)]
    rule = ("--to-subjects", f"{topic}=/copy/{{key}}", "--from-beginning")
    got: dict[str, list[int]] = {f"/copy/{key}": [] for key in keys}
    with live_server(tmp_path) as server:
        async with client(server) as it, it.subscribe("/copy/**") as subscription:
            await it.connected()
            for turn in range(rounds):
                batch = range(turn * count, (turn + 1) * count)
                kafka.produce(
                    topic, [(keys[number % len(keys)], str(number).encode()) for number in batch]
                )
                with bridge(kafka, server, tmp_path, topic, *rule):
                    # Killed while it copies, and only at the last time once it has copied all.
                    wanted = (turn + 1) * count if turn == KILLS else turn * count + count // 2
                    have = sum(map(len, got.values()))
                    for message in await take(subscription, max(0, wanted - have)):
                        got[message.subject].append(int(str(message.content)))
    for number, key in enumerate(keys):
        assert got[f"/copy/{key}"] == list(range(number, rounds * count, len(keys)))


@pytest.mark.soak
async def test_a_bridge_to_topics_that_is_killed_copies_each_message_once(
    kafka: LiveKafka, tmp_path: Path
) -> None:
    topic, count = new_topic(kafka, 1), 2000
    subjects = [f"/out/{number}" for number in range(5)]
    rule = ("--to-topics", f"/out/**={topic}")
    with live_server(tmp_path) as server:
        async with client(server) as it:
            await it.connected()
            for subject in subjects:
                await it.publish(subject, "first")
            with bridge(kafka, server, tmp_path, topic, *rule):
                await copied(kafka, topic, len(subjects))
            for turn in range(KILLS):
                before = len(await copied(kafka, topic, 0))
                async with trio.open_nursery() as nursery:
                    with bridge(kafka, server, tmp_path, topic, *rule):
                        nursery.start_soon(publish_all, it, subjects, turn * count, count)
                        await copied(kafka, topic, before + count // 4)
            with bridge(kafka, server, tmp_path, topic, *rule):
                total = len(subjects) + KILLS * count
                found = await copied(kafka, topic, total)
    assert len(found) == total
    for number, subject in enumerate(subjects):
        mine = [value for key, value in found if f"/out/{key}" == subject]
        expected = range(number, KILLS * count, len(subjects))
        assert mine == [b"first", *(str(one).encode() for one in expected)]


async def publish_all(it: Client, subjects: list[str], first: int, count: int) -> None:
    for number in range(first, first + count):
        await it.submit(subjects[number % len(subjects)], str(number))
        if number % 20 == 0:
            await trio.sleep(0.005)
    await it.settled()
