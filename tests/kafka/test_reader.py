"""What a member reads: records of others, and the end of what retention left."""

import base64
import json
import time
import urllib.request

import pytest

from tests.kafka.conftest import Members
from tests.kafka.talking import PATIENCE_S, client, contents, new_topic, produce, subscribed, take
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


def test_statistics_count_records_and_tell_the_lag(kafka: LiveKafka, members: Members) -> None:
    topic = new_topic(kafka, 1)
    kafka.produce(topic, [("k", b"1"), ("a//b", b"poison"), ("k", b"2")])
    password = "a password for operators"
    monitored = (
        "MonitorHTTP.Listen=127.0.0.1:0",
        f"MonitorPassword={password}",
        "MonitorUsername=admin",
    )
    with members.start(kafka, f"topics={topic}", *monitored) as here:
        wait_for_line(here.log, "joined")
        [address] = wait_for_line(here.log, '"ready"')["monitor"]
        request = urllib.request.Request(f"{address}/statistics")  # noqa: S310
        secret = base64.b64encode(f"admin:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {secret}")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310
                found = json.loads(answer.read())["kafka"]
            if found["lag"] or time.monotonic() > deadline:
                break
        assert found == {
            "records": 3,
            "poison": 1,
            "strays": 0,
            "repeats": 0,
            "waiting": 0,
            "assignments": 1,
            "errors": {"look": 0, "read": 0, "write": 0},
            "topics": {topic: {"partitions": 1, "lag": 0, "lag_max": 0}},
            "lag": {f"{topic}/0": 0},
        }
