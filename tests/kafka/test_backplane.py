"""Long load while brokers and members are killed, again and again."""

from contextlib import ExitStack

import pytest
import trio

from tests.kafka.conftest import Members
from tests.kafka.talking import client, new_topic, publish_until, take
from tests.live import LiveServer
from tests.live_kafka import LiveKafka

pytestmark = [pytest.mark.pipeline, pytest.mark.slow, pytest.mark.soak]
ROUNDS = 4
PATIENCE_S = 240


async def test_nothing_is_lost_or_repeated_while_all_are_killed_in_turn(
    kafka: LiveKafka, members: Members
) -> None:
    topic = new_topic(kafka, 4)
    subjects = [f"/{topic}/{number}" for number in range(8)]
    stop, published = trio.Event(), dict.fromkeys(subjects, 0)
    got: dict[str, list[int]] = {subject: [] for subject in subjects}
    with ExitStack() as stack:

        def start() -> LiveServer:
            return stack.enter_context(members.start(kafka, f"topics={topic}"))

        running = [start(), start()]
        async with (
            client(*running, timeout_s=PATIENCE_S) as publisher,
            client(*running, timeout_s=PATIENCE_S) as subscriber,
            subscriber.subscribe(*subjects) as subscription,
        ):
            await subscriber.connected()
            for subject in subjects:
                await publisher.publish(subject, "first")
            await take(subscription, len(subjects))  # from here on it is subscribed

            async def keep_on(subject: str) -> None:
                published[subject] = await publish_until(publisher, subject, stop)

            async def kill() -> None:
                for turn in range(ROUNDS):
                    await trio.sleep(2)
                    if turn % 2:
                        running[0].process.kill()
                        running[0].process.wait()
                        running.pop(0)
                        running.append(await trio.to_thread.run_sync(start))
                        urls = [server.url for server in running]
                        publisher.set_servers(urls)
                        subscriber.set_servers(urls)
                    else:
                        kafka.kill()
                        await trio.to_thread.run_sync(kafka.start_again)
                stop.set()

            with trio.fail_after(PATIENCE_S):
                async with trio.open_nursery() as receiving:

                    async def receive() -> None:
                        while True:
                            [message] = await take(subscription, 1)
                            got[message.subject].append(int(str(message.content)))

                    receiving.start_soon(receive)
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(kill)
                        for subject in subjects:
                            nursery.start_soon(keep_on, subject)
                    while any(len(got[one]) < published[one] for one in subjects):  # noqa: ASYNC110
                        await trio.sleep(0.05)
                    receiving.cancel_scope.cancel()
    assert all(published.values())
    assert got == {subject: list(range(count)) for subject, count in published.items()}
