"""Members that share nothing but a real Kafka broker, seen by their clients."""

import json
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from websockets.sync.client import connect

from mdserver.client import Client, Message, PublishError, ReconnectSettings
from mdserver.cluster.kafka_records import murmur2
from mdserver.core.message import MessageType, Position
from tests.kafka.conftest import Members
from tests.live import LiveServer, post, wait_for_line
from tests.live_kafka import LiveKafka

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]
PATIENCE_S = 60
AT_ONCE = ReconnectSettings(quick_initial_delay_s=0.05, time_interval_s=0.05, max_delay_s=0.5)


def new_topic(kafka: LiveKafka, partitions: int = 2) -> str:
    name = f"t{uuid.uuid4().hex[:8]}"
    kafka.create(name, partitions)
    return name


def client(*servers: LiveServer, **options: Any) -> Client:
    return Client([server.url for server in servers], reconnect=AT_ONCE, **options)


async def take(subscription: Any, count: int) -> list[Message]:
    """Wait for so many messages."""
    found: list[Message] = []
    with trio.fail_after(PATIENCE_S):
        while len(found) < count:
            found.append(await subscription.__anext__())
    return found


async def produce(kafka: LiveKafka, topic: str, *records: tuple[str, bytes | None]) -> None:
    """Append records, as a producer that knows nothing of mdserver."""
    await trio.to_thread.run_sync(kafka.produce, topic, records)


def contents(messages: Sequence[Message]) -> list[object]:
    return [message.content for message in messages]


async def publish(publisher: Client, subject: str, numbers: range, pause_s: float = 0) -> None:
    """Publish numbers as contents, many in flight, and wait for their results."""
    for number in numbers:
        await publisher.submit(subject, str(number))
        if pause_s:
            await trio.sleep(pause_s)
    with trio.fail_after(PATIENCE_S):
        await publisher.settled()


async def test_a_message_reaches_a_member_that_knows_only_the_broker(
    kafka: LiveKafka, members: Members
) -> None:
    topic = new_topic(kafka)
    with (
        members.start(kafka, f"topics={topic}") as here,
        members.start(kafka, f"topics={topic}") as there,
    ):
        async with client(here) as publisher, client(there) as subscriber:
            exact, pattern = f"/{topic}/truck/7", f"/{topic}"
            async with subscriber.subscribe(exact) as one, subscriber.subscribe(pattern) as other:
                await subscriber.connected()
                first = await publisher.publish(exact, "hello", fields={"unit": "km/h"})
                [message] = await take(one, 1)
                assert (message.content, message.fields) == ("hello", {"unit": "km/h"})
                assert message.position == Position(first.epoch, first.seq)
                expected = (murmur2(b"truck/7") & 0x7FFFFFFF) % 2 + 1
                assert message.position.epoch == expected
                await publisher.publish(pattern, "without a key")
                assert contents(await take(other, 1)) == ["without a key"]


async def test_records_of_another_producer_tombstones_and_poison(
    kafka: LiveKafka, members: Members
) -> None:
    topic = new_topic(kafka)
    with members.start(kafka, f"topics={topic}") as here:
        async with client(here) as subscriber:
            async with subscriber.subscribe(f"/{topic}/k") as subscription:
                await subscriber.connected()
                await produce(kafka, topic, ("k", b"0"))
                await take(subscription, 1)  # from here on it is subscribed
                await produce(kafka, topic, ("a//b", b"poison"), ("k", b"1"), ("k", None))
                messages = await take(subscription, 2)
                assert contents(messages) == ["1", ""]
                assert [message.retained for message in messages] == [True, False]
                await produce(kafka, topic, ("k", b"2"), ("k", b"\xff"))
                assert contents(await take(subscription, 2)) == ["2", b"\xff"]
            await produce(kafka, topic, ("gone", b"1"), ("gone", None), ("k", b"last"))
            async with subscriber.subscribe(f"/{topic}/gone", f"/{topic}/k") as subscription:
                [snapshot] = await take(subscription, 1)
                assert snapshot.subject == f"/{topic}/k"
        assert "empty segment" in str(wait_for_line(here.log, "poison record")["reason"])


async def test_a_client_moves_under_load_without_a_loss(kafka: LiveKafka, members: Members) -> None:
    """The member of subscriber and publisher is killed, then both go on at another one."""
    topic = new_topic(kafka)
    subjects = [f"/{topic}/{name}" for name in ("a", "b", "c")]
    count = 400
    got: dict[str, list[int]] = {subject: [] for subject in subjects}
    with (
        members.start(kafka, f"topics={topic}") as first,
        members.start(kafka, f"topics={topic}") as second,
    ):
        async with (
            client(first, timeout_s=PATIENCE_S) as it,
            it.subscribe(*subjects) as subscription,
            trio.open_nursery() as nursery,
        ):
            await it.connected()
            for subject in subjects:
                nursery.start_soon(publish, it, subject, range(count), 0.002)
            while any(len(numbers) < count for numbers in got.values()):
                [message] = await take(subscription, 1)
                got[message.subject].append(int(str(message.content)))
                if sum(map(len, got.values())) == count:
                    it.set_servers([second.url])
                    first.process.kill()
                    first.process.wait()
    assert got == {subject: list(range(count)) for subject in subjects}


async def test_a_killed_broker_loses_nothing_and_repeats_nothing(
    kafka: LiveKafka, members: Members
) -> None:
    topic = new_topic(kafka)
    subject, count = f"/{topic}/k", 400
    with (
        members.start(kafka, f"topics={topic}") as here,
        members.start(kafka, f"topics={topic}") as there,
    ):
        async with (
            client(here, timeout_s=PATIENCE_S) as publisher,
            client(there) as subscriber,
            subscriber.subscribe(subject) as subscription,
        ):
            await publisher.publish(subject, "first")
            await take(subscription, 1)  # from here on it is subscribed
            async with trio.open_nursery() as nursery:
                nursery.start_soon(publish_all, publisher, subject, count)
                got = await take(subscription, 50)
                kafka.kill()
                await trio.to_thread.run_sync(wait_for_line, here.log, "kafka away")
                refused = await trio.to_thread.run_sync(post, here.url, f"/{topic}/x")
                assert refused["status"] == "FAILED"
                assert "Kafka cannot be reached" in refused["reason"]
                async with client(here) as late, late.subscribe(subject) as served:
                    [snapshot] = await take(served, 1)
                    assert snapshot.type is MessageType.SNAPSHOT
                await trio.to_thread.run_sync(kafka.start_again)
                got += await take(subscription, count - len(got))
    assert contents(got) == [str(number) for number in range(count)]


async def publish_all(publisher: Client, subject: str, count: int) -> None:
    """Publish until each number was taken: while Kafka is away, publications are refused."""
    for number in range(count):
        with trio.fail_after(PATIENCE_S):
            while True:
                try:
                    await publisher.publish(subject, str(number))
                    break
                except PublishError:
                    await trio.sleep(0.1)


def subscribed(server: LiveServer, subject: str, **position: object) -> list[dict[str, Any]]:
    """What comes first after a subscription by hand: without the pings, up to a snapshot."""
    with connect(f"ws{server.url[4:]}/ws") as socket:
        socket.send(json.dumps({"op": "connect"}))
        connected = json.loads(socket.recv(PATIENCE_S))
        after = {"history": connected["history"], **position}
        socket.send(
            json.dumps({"op": "subscribe", "subjects": [subject], "positions": {subject: after}})
        )
        found: list[dict[str, Any]] = []
        while not found or found[-1]["op"] != "message":
            got = json.loads(socket.recv(PATIENCE_S))
            found += got if isinstance(got, list) else [got]
        return found


def test_what_retention_removed_is_missing_by_name(kafka: LiveKafka, members: Members) -> None:
    topic = new_topic(kafka, 1)
    kafka.produce(topic, [("k", str(number).encode()) for number in range(20)])
    kafka.drop_before(topic, 0, 15)
    with members.start(kafka, f"topics={topic}") as here:
        wait_for_line(here.log, "joined")
        subject = f"/{topic}/k"
        [resync, snapshot] = subscribed(here, subject, epoch=1, seq=5)
        assert resync["status"] == "DATA_RESYNC"
        missing = resync["missing"]
        assert (missing["from"]["seq"], missing["to"]["seq"]) == (6, 20)
        assert (snapshot["content"], snapshot["seq"]) == ("19", 20)
        [sync, *recovered] = subscribed(here, subject, epoch=1, seq=19)
        assert sync["status"] == "DATA_SYNC"
        assert [message["content"] for message in recovered] == ["19"]


def test_a_topic_that_is_made_again_begins_a_new_history(
    kafka: LiveKafka, members: Members
) -> None:
    topic = new_topic(kafka, 1)
    kafka.produce(topic, [("k", b"old")] * 3)
    with members.start(kafka, f"topics.regex={topic}(-.*)?") as here:
        wait_for_line(here.log, "joined")
        kafka.delete(topic)
        kafka.create(topic, 1)
        wait_for_line(here.log, '"joined"', earlier=1)
        kafka.produce(topic, [("k", b"new")])
        kafka.create(f"{topic}-more", 1)
        wait_for_line(here.log, '"added"')
        assert post(here.url, f"/{topic}-more/k")["status"] == "OK"
        found = subscribed(here, f"/{topic}/k", epoch=1, seq=0)
        assert found[-1]["content"] == "new"
