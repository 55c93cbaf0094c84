"""What a member reads: records of others, and the end of what retention left."""

import pytest

from tests.kafka.conftest import Members
from tests.kafka.talking import client, contents, new_topic, produce, subscribed, take
from tests.live import wait_for_line
from tests.live_kafka import LiveKafka

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]


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
