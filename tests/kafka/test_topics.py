"""Topics of several kinds: compacted ones, transactions in them, and partitions that come later."""

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions, NewTopic

from tests.kafka.conftest import Members
from tests.kafka.talking import client, contents, new_topic, produce, subscribed, take
from tests.live import post, wait_for_line
from tests.live_kafka import CALL_TIMEOUT_S, SILENT, LiveKafka

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]


async def test_compacted_topics_are_snapshots_whatever_else_a_start_reads(
    kafka: LiveKafka, members: Members
) -> None:
    plain = new_topic(kafka, 1)
    compacted = f"{plain}-compacted"
    wanted = NewTopic(compacted, 1, config={"cleanup.policy": "compact"})
    kafka.admin.create_topics([wanted])[compacted].result(CALL_TIMEOUT_S)
    for topic in (plain, compacted):
        kafka.produce(topic, [("k", b"0"), ("k", b"1")])
    topics = f"topics={plain},{compacted}\nrecovery.on.start=false"
    with members.start(kafka, topics) as here:
        async with client(here) as it, it.subscribe(f"/{plain}/k", f"/{compacted}/k") as both:
            await it.connected()
            [snapshot] = await take(both, 1)
            assert (snapshot.subject, snapshot.content) == (f"/{compacted}/k", "1")
            await produce(kafka, plain, ("k", b"2"))
            assert contents(await take(both, 1)) == ["2"]


async def test_records_of_an_aborted_transaction_are_never_seen(
    kafka: LiveKafka, members: Members
) -> None:
    topic = new_topic(kafka, 1)
    settings = {"bootstrap.servers": kafka.servers, "transactional.id": f"of {topic}"}
    producer = Producer(settings, logger=SILENT)
    producer.init_transactions(CALL_TIMEOUT_S)
    for content, end in ((b"aborted", producer.abort_transaction), (b"1", None)):
        producer.begin_transaction()
        producer.produce(topic, content, b"k", 0)
        assert producer.flush(CALL_TIMEOUT_S) == 0
        (end or producer.commit_transaction)(CALL_TIMEOUT_S)
    kafka.produce(topic, [("k", b"2")])
    with members.start(kafka, f"topics={topic}") as here:
        wait_for_line(here.log, '"joined"')
        async with client(here) as it, it.subscribe(f"/{topic}/k", history=10) as subscription:
            assert contents(await take(subscription, 2)) == ["1", "2"]


def test_partitions_that_come_later_begin_a_new_history(kafka: LiveKafka, members: Members) -> None:
    topic = new_topic(kafka, 1)
    keys = [str(number) for number in range(8)]
    kafka.produce(topic, [(key, b"before") for key in keys])
    with members.start(kafka, f"topics={topic}\nmetadata.max.age.ms=500") as here:
        before = wait_for_line(here.log, '"topics"')["history"]
        wait_for_line(here.log, '"joined"')
        assert post(here.url, f"/{topic}/{keys[0]}", content="before")["status"] == "OK"
        kafka.admin.create_partitions([NewPartitions(topic, 4)])[topic].result(CALL_TIMEOUT_S)
        renumbered = wait_for_line(here.log, '"renumbered"', earlier=1)
        assert renumbered["history"] != before
        wait_for_line(here.log, '"joined"', earlier=1)
        for key in keys:
            told = post(here.url, f"/{topic}/{key}", content=f"after {key}")
            assert told["status"] == "OK", told
        for key in keys:
            found = subscribed(here, f"/{topic}/{key}", epoch=1, seq=0)
            assert found[-1]["op"] == "message"
