"""Three brokers, of which the one that leads is killed under load, again and again."""

from collections.abc import Iterator

import pytest
import trio

from mdserver.core.message import Position
from tests.kafka.conftest import Members, needed
from tests.kafka.talking import client, new_topic, publish_until, take
from tests.live_kafka import LiveKafkaCluster, live_kafka_cluster

pytestmark = [pytest.mark.pipeline, pytest.mark.slow, pytest.mark.soak]
ROUNDS = 3
PATIENCE_S = 240


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveKafkaCluster]:
    with needed(), live_kafka_cluster(tmp_path_factory.mktemp("brokers")) as running:
        yield running


async def test_nothing_is_lost_or_repeated_when_the_leader_changes(
    brokers: LiveKafkaCluster, members: Members
) -> None:
    topic = new_topic(brokers, 2, replicas=3)
    subjects = [f"/{topic}/{number}" for number in range(6)]
    published = dict.fromkeys(subjects, 0)
    got: dict[str, list[tuple[Position, int]]] = {subject: [] for subject in subjects}
    changes: list[tuple[int, int]] = []
    stop = trio.Event()

    async def change_leaders() -> None:
        for _ in range(ROUNDS):
            await trio.sleep(1)  # of load
            before = await leader(brokers, topic)
            brokers.brokers[before].kill()
            changes.append((before, await leader(brokers, topic, other_than=before)))
            await trio.sleep(1)
            await trio.to_thread.run_sync(brokers.brokers[before].start_again)
        stop.set()

    with (
        members.start(brokers, f"topics={topic}") as here,
        members.start(brokers, f"topics={topic}") as there,
    ):
        async with (
            client(here, timeout_s=PATIENCE_S) as publisher,
            client(there, timeout_s=PATIENCE_S) as subscriber,
            subscriber.subscribe(*subjects) as subscription,
        ):
            await subscriber.connected()
            for subject in subjects:
                await publisher.publish(subject, "first")
            await take(subscription, len(subjects))  # from here on it is subscribed

            async def keep_on(subject: str) -> None:
                published[subject] = await publish_until(publisher, subject, stop)

            async def receive() -> None:
                while True:
                    [message] = await take(subscription, 1, PATIENCE_S)
                    assert message.position is not None
                    found = message.position, int(str(message.content))
                    got[message.subject].append(found)

            with trio.fail_after(PATIENCE_S):
                async with trio.open_nursery() as receiving:
                    receiving.start_soon(receive)
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(change_leaders)
                        for subject in subjects:
                            nursery.start_soon(keep_on, subject)
                    while any(len(got[one]) < published[one] for one in subjects):  # noqa: ASYNC110
                        await trio.sleep(0.05)
                    receiving.cancel_scope.cancel()
    assert len(changes) == ROUNDS
    assert all(published.values())
    for subject, found in got.items():
        assert [number for _, number in found] == list(range(published[subject]))
        seqs = [position.seq for position, _ in found]
        assert seqs == sorted(set(seqs))
        epochs = [position.epoch for position, _ in found]
        assert epochs == sorted(epochs)
    assert any(found[0][0].epoch < found[-1][0].epoch for found in got.values())


async def leader(brokers: LiveKafkaCluster, topic: str, other_than: int | None = None) -> int:
    """Wait for a leader of partition 0."""
    with trio.fail_after(PATIENCE_S):
        while True:
            found = await trio.to_thread.run_sync(brokers.leader, topic, 0)
            if found not in (None, other_than):
                return found
            await trio.sleep(0.1)
