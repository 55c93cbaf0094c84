"""Topics that come and go while a member runs."""

import shutil
import signal

import pytest

from tests.kafka.conftest import Members
from tests.kafka.talking import new_topic, subscribed
from tests.live import post, wait_for_line
from tests.live_kafka import LiveKafka

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]


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


@pytest.mark.soak
def test_what_the_broker_lost_is_told_by_a_reset(kafka: LiveKafka, members: Members) -> None:
    """The log of a partition is put back, as a disk does that forgot what was not flushed."""
    topic = new_topic(kafka, 1)
    log = kafka.folder / "kafka-data" / f"{topic}-0"
    kafka.produce(topic, [("k", b"0"), ("k", b"1")])
    copied = shutil.copytree(log, kafka.folder / f"copy-of-{topic}")
    kafka.produce(topic, [("k", b"lost")] * 3)
    with members.start(kafka, f"topics={topic}") as here:
        wait_for_line(here.log, "joined")
        kafka.kill()
        shutil.rmtree(log)
        shutil.copytree(copied, log)
        kafka.start_again()
        kafka.produce(topic, [("k", b"new")])
        lost = wait_for_line(here.log, "records lost")
        assert (lost["topic"], lost["partition"], lost["level"]) == (topic, 0, "error")
        wait_for_line(here.log, '"joined"', earlier=1)
        found = subscribed(here, f"/{topic}/k", epoch=1, seq=2)
        assert (found[-1]["content"], found[-1]["seq"]) == ("new", 3)


@pytest.mark.soak
def test_a_position_of_a_lost_record_is_known_by_its_leader(
    kafka: LiveKafka, members: Members
) -> None:
    """Others take the offsets of lost records while one member stands still, and one is to start.

    The one that stands still finds an offset behind the last record that it read. The other one
    knows nothing of the loss.
    """
    topic = new_topic(kafka, 1)
    log = kafka.folder / "kafka-data" / f"{topic}-0"
    kafka.produce(topic, [("k", b"0"), ("k", b"1")])
    copied = shutil.copytree(log, kafka.folder / f"copy-of-{topic}")
    kafka.produce(topic, [("k", b"lost")] * 3)
    subject = f"/{topic}/k"
    with members.start(kafka, f"topics={topic}") as here:
        wait_for_line(here.log, "joined")
        assert subscribed(here, subject, epoch=1, seq=4)[-1]["seq"] == 5
        here.process.send_signal(signal.SIGSTOP)
        try:
            kafka.kill()
            shutil.rmtree(log)
            shutil.copytree(copied, log)
            kafka.start_again()
            kafka.produce(topic, [("other", b"new")] * 8)
        finally:
            here.process.send_signal(signal.SIGCONT)
        lost = wait_for_line(here.log, "records lost")
        assert (lost["topic"], lost["partition"], lost["level"]) == (topic, 0, "error")
        with members.start(kafka, f"topics={topic}") as there:
            wait_for_line(there.log, '"joined"')
            [reset, snapshot] = subscribed(there, subject, epoch=1, seq=5)
            assert (reset["op"], reset["subjects"]) == ("reset", [subject])
            assert (snapshot["content"], snapshot["seq"]) == ("1", 2)
            [sync, recovered] = subscribed(there, subject, epoch=1, seq=1)
            assert sync["status"] == "DATA_SYNC"
            assert recovered["content"] == "1"


@pytest.mark.soak
def test_members_agree_after_a_topic_was_deleted(kafka: LiveKafka, members: Members) -> None:
    """One member saw the topic, the other starts later: both have the same history id."""
    topic = new_topic(kafka, 1)
    kafka.create(f"{topic}-more", 1)
    with members.start(kafka, f"topics.regex={topic}(-.*)?\nmetadata.max.age.ms=500") as here:
        wait_for_line(here.log, "joined")
        kafka.delete(f"{topic}-more")
        removed = wait_for_line(here.log, '"removed"')
        assert post(here.url, f"/{topic}/k")["status"] == "OK"
        assert post(here.url, f"/{topic}-more/k")["status"] == "FAILED"
        with members.start(kafka, f"topics.regex={topic}(-.*)?") as there:
            assert wait_for_line(there.log, '"topics"')["history"] == removed["history"]
