"""Members that share nothing but a real Kafka broker, seen by their clients."""

import pytest
import trio

from mdserver.core.message import Position
from tests.kafka.conftest import Members
from tests.kafka.talking import PATIENCE_S, client, contents, new_topic, publish, take
from tests.live_kafka import LiveKafka

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]


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
                assert message.position.epoch == 1
                await publisher.publish(pattern, "without a key")
                assert contents(await take(other, 1)) == ["without a key"]


async def test_several_consumers_and_producers_keep_the_order_of_each_subject(
    kafka: LiveKafka, members: Members
) -> None:
    topic = new_topic(kafka, 4)
    subjects = [f"/{topic}/{number}" for number in range(8)]
    count = 100
    got: dict[str, list[int]] = {subject: [] for subject in subjects}
    sizes = f"topics={topic}\nconsumers.size=3", "producers.size=2\n"
    with members.start(kafka, sizes[0], shared=sizes[1]) as here:
        async with client(here) as it, it.subscribe(*subjects) as subscription:
            await it.connected()
            async with trio.open_nursery() as nursery:
                for subject in subjects:
                    nursery.start_soon(publish, it, subject, range(count))
            for message in await take(subscription, count * len(subjects)):
                got[message.subject].append(int(str(message.content)))
    assert got == {subject: list(range(count)) for subject in subjects}


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
