"""Publications while the broker is killed and started again."""

import time
import urllib.error
import urllib.request

import pytest
import trio

from mdserver.client import Client, PublishError
from mdserver.client.publication import Publication
from mdserver.core.message import MessageType
from mdserver.limits import PUBLISH_TIMEOUT_S
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


async def publish_all(publisher: Client, subject: str, count: int, before: str = "") -> None:
    """Publish until each number was taken: while Kafka is away, publications are refused."""
    for number in range(count):
        with trio.fail_after(PATIENCE_S):
            while True:
                try:
                    await publisher.publish(subject, f"{before}{number}")
                    break
                except PublishError:
                    await trio.sleep(0.1)


async def test_held_publications_are_taken_once_when_the_broker_is_back(
    kafka: LiveKafka, members: Members
) -> None:
    topic = new_topic(kafka)
    subject = f"/{topic}/k"
    numbers = [str(number) for number in range(50)]
    with members.start(kafka, f"topics={topic}", "Kafka.Away=hold") as here:
        async with (
            client(here, timeout_s=PATIENCE_S) as publisher,
            client(here) as subscriber,
            subscriber.subscribe(subject) as subscription,
        ):
            await publisher.publish(subject, "first")
            await take(subscription, 1)  # from here on it is subscribed
            kafka.kill()
            await trio.to_thread.run_sync(wait_for_line, here.log, "kafka away")
            assert "Kafka cannot be reached" in await trio.to_thread.run_sync(unready, here.url)
            began = time.monotonic()
            held = [await publisher.submit(subject, number) for number in numbers]
            await trio.to_thread.run_sync(kafka.start_again)
            taken = [number for number, one in zip(numbers, held, strict=True) if await ok(one)]
            in_time = time.monotonic() - began < PUBLISH_TIMEOUT_S
            await publish_all(publisher, subject, 1, "last ")
            got: list[object] = []
            while not {*taken, "last 0"} <= {*got}:
                got += contents(await take(subscription, 1))
    found = [one for one in got if one != "last 0"]
    assert len(found) == len({*found})
    assert {*found} <= {*numbers}
    if in_time:  # nothing ended as uncertain, so nothing was repeated behind others
        assert found == numbers


def unready(url: str) -> str:
    """Return why the server is not ready, as its health check says."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{url}/health/ready", timeout=PATIENCE_S)  # noqa: S310
    with refused.value as answer:
        assert answer.code == 503
        return answer.read().decode()


async def ok(publication: Publication) -> bool:
    """Return whether a publication was taken, once its result is known."""
    with trio.fail_after(PATIENCE_S):
        try:
            await publication.outcome()
        except PublishError:
            return False
    return True
