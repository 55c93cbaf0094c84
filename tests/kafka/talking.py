"""What clients of members whose log is Kafka do in tests."""

import json
import uuid
from collections.abc import Sequence
from typing import Any

import trio
from websockets.sync.client import connect

from mdserver.client import Client, Message, PublishError, ReconnectSettings
from tests.live import LiveServer
from tests.live_kafka import KafkaClient

PATIENCE_S = 60
AT_ONCE = ReconnectSettings(quick_initial_delay_s=0.05, time_interval_s=0.05, max_delay_s=0.5)


def new_topic(kafka: KafkaClient, partitions: int = 2, replicas: int = 1) -> str:
    name = f"t{uuid.uuid4().hex[:8]}"
    kafka.create(name, partitions, replicas)
    return name


def client(*servers: LiveServer, **options: Any) -> Client:
    return Client([server.url for server in servers], reconnect=AT_ONCE, **options)


async def take(subscription: Any, count: int, patience_s: float = PATIENCE_S) -> list[Message]:
    """Wait for so many messages."""
    found: list[Message] = []
    with trio.fail_after(patience_s):
        while len(found) < count:
            found.append(await subscription.__anext__())
    return found


async def produce(kafka: KafkaClient, topic: str, *records: tuple[str, bytes | None]) -> None:
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


async def publish_until(publisher: Client, subject: str, stop: trio.Event) -> int:
    """Publish numbers, each until it was taken; return how many."""
    number = 0
    while not stop.is_set():
        try:
            await publisher.publish(subject, str(number))
            number += 1
        except PublishError:
            await trio.sleep(0.05)
    return number


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
