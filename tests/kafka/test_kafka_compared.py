"""`mdserver bench kafka`: both servers deliver every record to every connection."""

import json

import pytest
from click.testing import CliRunner

from mdserver.bench.commands import bench
from mdserver.bench.kafka_compared import RecordsTaken
from tests.live_kafka import LiveKafka

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]
CONNECTIONS = 3


def test_records_from_before_the_measurement_do_not_count() -> None:
    arrivals = RecordsTaken()
    arrivals.take("0 1 ...", set())
    assert arrivals.count == arrivals.latencies.count == 0
    arrivals.take("1 1 ...", set())
    assert arrivals.count == arrivals.latencies.count == 1


def test_what_one_connection_lacks_does_not_hide_what_another_got_twice() -> None:
    arrivals = RecordsTaken()
    first: set[int] = set()
    for text, seen in (("1 1 ...", first), ("1 1 ...", first), ("2 1 ...", first)):
        arrivals.take(text, seen)
    arrivals.take("2 1 ...", set())
    assert (arrivals.count, arrivals.repeated, arrivals.latencies.count) == (3, 1, 3)


def test_a_member_and_a_consumer_each_deliver_everything(kafka: LiveKafka) -> None:
    load = ["--connections", str(CONNECTIONS), "--rate", "40", "--seconds", "0.5"]
    words = ["kafka", "--kafka", kafka.servers, *load, "--broker-pid", str(kafka.process.pid)]
    done = CliRunner().invoke(bench, [*words, "--format", "json"])
    assert done.exit_code == 0, done.output
    member, baseline = map(json.loads, done.stdout.splitlines())
    for row in (member, baseline):
        assert row["count"] == 20 * CONNECTIONS
        assert row["connections"] == CONNECTIONS
        assert (row["lost"], row["repeated"]) == (0, 0)
        assert row["mode"].endswith("%")
    assert member["mode"].startswith("one member, ")
    assert baseline["mode"].startswith("a consumer each, ")
    of_each = int(baseline["mode"].split()[3])
    assert of_each >= CONNECTIONS
