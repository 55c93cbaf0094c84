"""`Monitor = OTEL`: spans and metrics at a collector, over the SDK's own exporter."""

import http.client
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trio

from mdserver.client import Client
from mdserver.config import load
from mdserver.core.subjects import group_of
from mdserver.server.start_checks import unusable
from tests.cluster.live_cluster import LiveCluster
from tests.live import live_server, post, wait_for_line
from tests.server.monitor.collector import Collector, Row, collector
from tests.server.monitor.test_statistics import arguments, eventually

TRACE, ABOVE = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PATIENCE_S = 60
FIELDS = {"traceparent": f"00-{TRACE}-{ABOVE}-01"}
IMPORTED = """
import sys
import mdserver.cli.main, mdserver.cli.run, mdserver.server.app
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
WITHOUT = """
import sys
sys.modules["opentelemetry"] = None
from mdserver.cli.main import main
sys.argv = ["mdserver", "check-config", "--set", "Monitor=OTEL"]
main()
"""


def sending(endpoint: str, *more: str) -> list[str]:
    settings = ("Monitor=HTTP, OTEL", f"MonitorOTel.Endpoint={endpoint}", "MonitorOTel.Interval=1s")
    return arguments(*settings, *more)


def of_trace(found: Collector, *names: str) -> list[Row]:
    """The spans of the client's trace by these names, once they are there."""

    def here() -> list[Row]:
        return [one for one in found.spans if one["trace_id"] == TRACE]

    deadline = time.monotonic() + PATIENCE_S
    while sorted(one["name"] for one in here()) != sorted(names):
        assert time.monotonic() < deadline, found.spans
        time.sleep(0.05)
    return here()


async def publish_and_read(publisher: str, subscriber: str) -> dict[str, str]:
    """Publish with a trace; return the fields with which the message comes."""
    with trio.fail_after(60):
        async with Client([subscriber]) as reading, Client([publisher]) as writing:
            messages = reading.subscribe("/a/b")
            await messages.caught_up()
            await writing.publish("/a/b", "hello", fields=FIELDS)
            return dict((await anext(messages)).fields)


@pytest.mark.slow
def test_a_client_sees_its_publication_in_its_own_trace(tmp_path: Path) -> None:
    with collector() as found, live_server(tmp_path, *sending(found.endpoint)) as server:
        post(server.url, "/not/traced")
        fields = trio.run(publish_and_read, server.url, server.url)
        assert fields == FIELDS, "subscribers go on with the trace of the publisher"
        spans = of_trace(found, "publish", "commit", "fan-out")
        by_name = {span["name"]: span for span in spans}
        assert by_name["publish"]["parent"] == ABOVE
        assert by_name["commit"]["parent"] == by_name["publish"]["span_id"]
        assert by_name["fan-out"]["parent"] == by_name["publish"]["span_id"]
        assert by_name["fan-out"]["attributes"]["mdserver.sessions"] == "1"
        for span in spans:
            assert abs(span["end"] / 1e9 - time.time()) < 60
            assert span["start"] <= span["end"]
            assert span["attributes"]["messaging.destination.name"] == "/a/b"
        assert {one["service.name"] for one in found.resources} == {"mdserver"}
        assert len(found.spans) == len(spans), "what nobody asked for is not traced"

        def counted() -> bool:
            metric = found.metrics.get("mdserver.messages_received")
            return metric is not None and metric["sum"]["dataPoints"][0]["asInt"] == "2"

        eventually(counted)
        assert found.metrics["mdserver.messages_received"]["sum"]["isMonotonic"]
        histogram = found.metrics["mdserver.commit_latency"]
        assert histogram["unit"] == "s"
        (point,) = histogram["histogram"]["dataPoints"]
        assert point["count"] == "2"
        assert len(point["bucketCounts"]) == len(point["explicitBounds"]) + 1
        assert sum(map(int, point["bucketCounts"])) == 2
        assert found.metrics["mdserver.cache"]["unit"] == "By"


@pytest.mark.slow
def test_workers_send_their_spans_and_the_server_all_metrics(tmp_path: Path) -> None:
    with (
        collector() as found,
        live_server(tmp_path, *sending(found.endpoint, "Workers=1")) as server,
    ):
        assert trio.run(publish_and_read, server.url, server.url) == FIELDS
        spans = of_trace(found, "publish", "commit", "fan-out")
        members = {span["name"]: span["member"] for span in spans}
        assert members["publish"] == members["commit"]
        assert members["fan-out"] == f"{members['publish']}/worker-1"

        def counted() -> bool:
            metric = found.metrics.get("mdserver.messages_received")
            return metric is not None and metric["sum"]["dataPoints"][0]["asInt"] == "1"

        eventually(counted)


@pytest.mark.slow
def test_spans_of_three_members_are_one_trace(tmp_path: Path) -> None:
    with collector() as found:
        settings = {"Monitor": "HTTP, OTEL", "MonitorOTel.Endpoint": found.endpoint}
        with LiveCluster(tmp_path, 3, settings=settings) as cluster:
            urls = [f"ws://{address}" for address in cluster.clients]
            rows = cluster.status(0)["groups"]
            led = rows[group_of("/a/b", len(rows))]["coordinator"]
            contact = next(index for index, peer in enumerate(cluster.peers) if peer != led)
            assert trio.run(publish_and_read, urls[contact], urls[contact]) == FIELDS
            spans = of_trace(found, "publish", "forward", "commit", "fan-out")
            above = {span["span_id"]: span["name"] for span in spans} | {ABOVE: "client"}
            assert {span["name"]: above[span["parent"]] for span in spans} == {
                "publish": "client",
                "forward": "publish",
                "commit": "forward",
                "fan-out": "publish",
            }
            assert {span["member"] for span in spans} == {cluster.peers[contact], led}


@pytest.mark.slow
@pytest.mark.parametrize("status", [503, 0])
def test_clients_and_the_end_do_not_wait_for_a_collector_that_fails(
    tmp_path: Path, status: int
) -> None:
    with collector() as found:
        found.status = status or 200
        endpoint = found.endpoint if status else "http://127.0.0.1:9"
        with live_server(tmp_path, *sending(endpoint, "MonitorOTel.Sampling=1")) as server:
            connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)
            for number in range(500):
                connection.request("POST", "/rest/produce?subject=/a/b", body=str(number))
                answer = connection.getresponse()
                assert b'"status":"OK"' in answer.read()
            connection.close()
            line = wait_for_line(server.log, "telemetry not sent")
            assert line["level"] == "warning"
            assert line["to"] == endpoint
            begun = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - begun < 50
        lines = server.log.read_text().splitlines()
        assert sum("telemetry not sent" in line for line in lines) < 5
        assert all(line.startswith("{") for line in lines), "the SDK writes nothing itself"


def test_without_it_nothing_of_the_sdk_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_the_check_of_a_configuration_says_what_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert "pip install 'mdserver[otel]'" in done.stderr


@pytest.mark.parametrize(
    "endpoint", ["collector:4318", "ftp://collector", "http://", "http://[::1", "http://a:0"]
)
def test_an_endpoint_that_is_no_url_is_refused_in_a_sentence(endpoint: str) -> None:
    config = load(overrides=["Monitor=OTEL", f"MonitorOTel.Endpoint={endpoint}"]).config
    (mistake,) = unusable(config)
    assert mistake.startswith(f"MonitorOTel.Endpoint = {endpoint} is no URL of a collector")
