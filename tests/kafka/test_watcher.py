"""Topics that come and go while a member runs."""

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
