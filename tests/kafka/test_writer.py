"""Publications while the broker is killed and started again."""

import pytest
import trio

from mdserver.client import Client, PublishError
from mdserver.core.message import MessageType
from tests.kafka.conftest import Members
from tests.kafka.talking import PATIENCE_S, client, contents, new_topic, take
from tests.live import post, wait_for_line
from tests.live_kafka import LiveKafka

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]


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
