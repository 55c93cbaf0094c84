"""What the monitors of a member whose log is Kafka show of it: lag, errors, and what was read."""

import json
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from prometheus_client.parser import text_string_to_metric_families
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser.conftest import browser as browser  # noqa: PLC0414 - it is a fixture
from tests.browser.test_dashboard import wait_for
from tests.cli.test_mistakes import mdserver
from tests.kafka.conftest import Members
from tests.kafka.talking import PATIENCE_S, new_topic
from tests.live import LiveServer, post, wait_for_line
from tests.live_kafka import CALL_TIMEOUT_S, SILENT, LiveKafka
from tests.server.monitor.test_prometheus import FOLDER, OPENMETRICS, metrics, promtool
from tests.server.monitor.test_statistics import monitor, monitor_port

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]

UNREAD = 7
CELLS = """
  return [...document.querySelectorAll('#topic-rows td')].map((cell) => cell.textContent);
"""
MONITORS = (
    "Monitor=HTTP, PROMETHEUS, JMX, PUSH",
    "MonitorHTTP.Listen=127.0.0.1:0",
    "MonitorPush.Interval=1s",
)


@contextmanager
def open_transaction(kafka: LiveKafka, topic: str, partition: int) -> Iterator[None]:
    """Leave records in a transaction that is open during the block: no member may read them yet.

    They take two offsets more when it ends: those of the markers of its end.
    """
    producer = Producer(
        {"bootstrap.servers": kafka.servers, "transactional.id": f"of {topic}"}, logger=SILENT
    )
    producer.init_transactions(CALL_TIMEOUT_S)
    producer.begin_transaction()
    for number in range(UNREAD):
        producer.produce(topic, str(number).encode(), b"k", partition)
    assert producer.flush(CALL_TIMEOUT_S) == 0
    try:
        yield
    finally:
        producer.abort_transaction(CALL_TIMEOUT_S)


def eventually(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def samples(port: int) -> dict[tuple[str, ...], float]:
    """The metrics of Kafka: name and values of labels -> value."""
    _, text = metrics(port, "text/plain;version=0.0.4")
    return {
        (sample.name.removeprefix("mdserver_kafka_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("mdserver_kafka_")
    }


def lag(port: int, topic: str) -> object:
    return monitor(port, "GET", "/statistics")[1]["kafka"]["topics"].get(topic)


def test_every_monitor_tells_the_lag_of_each_topic(kafka: LiveKafka, members: Members) -> None:
    topic, other = new_topic(kafka), new_topic(kafka, 3)
    with members.start(kafka, f"topics={topic},{other}", *MONITORS) as here:
        wait_for_line(here.log, "joined")
        port = monitor_port(here)
        kafka.produce(topic, [("k", b"1"), ("k", b"2"), ("a//b", b"poison")])
        expected = {"partitions": 2, "lag": UNREAD, "lag_max": UNREAD}
        with open_transaction(kafka, topic, 1):
            eventually(lambda: lag(port, topic) == expected, "the lag is told")
            read = monitor(port, "GET", "/jolokia/read/mdserver:type=KafkaTopic,name=*")[1]
            beans = {name.rpartition("=")[2]: bean for name, bean in read["value"].items()}
            assert beans[topic] == {"Partitions": 2, "Lag": UNREAD, "LagMax": UNREAD}
            assert beans[other] == {"Partitions": 3, "Lag": 0, "LagMax": 0}
            found = samples(port)
            assert found["lag_records", topic] == found["lag_records_max", topic] == UNREAD
            assert (found["lag_records", other], found["partitions", other]) == (0, 3)
            assert found["records_total",] == 3
            assert found["poison_records_total",] == 1
            assert found["assignments_total",] >= 1
            assert [one for one in found if one[0] == "errors_total"] == [
                ("errors_total", task) for task in ("look", "read", "write")
            ]
            for file in ("grafana.json", "alerts.yml"):
                asked = set(re.findall(r"mdserver_kafka_([a-z_]+)", (FOLDER / file).read_text()))
                assert asked
                assert asked <= {name for name, *_ in found}, file
            shown = mdserver("top", "--monitor", f"http://127.0.0.1:{port}")
            row = next(line for line in shown.out.splitlines() if line.startswith(topic))
            assert row.split()[1:] == ["2", "7", "7"]
            assert re.search(r"Kafka topic \(3 records, .*\)", shown.out)
        eventually(lambda: lag(port, topic) == {**expected, "lag": 0, "lag_max": 0}, "it is read")
        promtool("check", "metrics", stdin=metrics(port, "text/plain;version=0.0.4")[1])
        assert "mdserver_kafka_lag_records" in metrics(port, OPENMETRICS)[1]


def test_what_kafka_refuses_is_counted_and_published(kafka: LiveKafka, members: Members) -> None:
    topic = new_topic(kafka, 1)
    small = f"{topic}-small"
    wanted = NewTopic(small, 1, config={"max.message.bytes": "500"})
    kafka.admin.create_topics([wanted])[small].result(CALL_TIMEOUT_S)
    with members.start(kafka, f"topics={topic},{small}", *MONITORS) as here:
        wait_for_line(here.log, "joined")
        port = monitor_port(here)
        assert samples(port)["errors_total", "write"] == 0
        large = random.randbytes(4000).hex()  # what repeats would be compressed
        assert post(here.url, f"/{small}/k", content=large)["status"] != "OK"
        assert samples(port)["errors_total", "write"] == 1
        eventually(lambda: lag(port, topic) is not None, "the lag is known")
        published = report(here)["kafka"]
        assert published["errors"]["write"] == 1
        assert published["topics"] == {
            name: {"partitions": 1, "lag": 0, "lag_max": 0} for name in (topic, small)
        }


def report(here: LiveServer) -> Any:
    """What a member publishes of itself."""
    words = ("--server", here.url, "--count", "1", "--format", "json")
    shown = mdserver("sub", *words, "/__mdserver__/statistics/*")
    return json.loads(json.loads(shown.out.splitlines()[-1])["content"])


def test_dashboard_and_overview_show_the_topics(
    kafka: LiveKafka, members: Members, browser: webdriver.Chrome
) -> None:
    topic = new_topic(kafka)
    with members.start(kafka, f"topics={topic}", *MONITORS) as here:
        wait_for_line(here.log, "joined")
        port = monitor_port(here)
        with open_transaction(kafka, topic, 0):
            eventually(lambda: lag(port, topic) is not None, "the lag is known")
            for page in (f"http://127.0.0.1:{port}", f"{here.url}/overview/"):
                browser.get(page)
                wait_for(browser, "topic-rows", topic)
                wait_for(browser, "kafka-state", "errors: 0 to look, 0 to read, 0 to write")
                WebDriverWait(browser, PATIENCE_S).until(
                    lambda _: (
                        browser.execute_script(CELLS)
                        == [topic, "mdserver", "2", str(UNREAD), str(UNREAD)]
                    )
                )
