"""Parsers and promtool read `/metrics`; alerts and board ask for metrics that there are."""

import http.client
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from mdserver.bench.processes import free_ports
from tests.live import live_server, post
from tests.server.monitor.test_statistics import arguments, eventually, monitor, monitor_port

FOLDER = Path(__file__).parents[3] / "conf" / "monitoring"
BASE_UNITS = ("_seconds", "_bytes")
OTHER_UNITS = ("_ms", "_milliseconds", "_kb", "_minutes", "_percent")
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def missing(program: str) -> NoReturn:
    """Skips a test that needs a program of Prometheus; in CI it fails."""
    reason = f"{program} is not on the PATH: `make prometheus` installs it"
    if os.environ.get("CI"):
        pytest.fail(f"TESTS WITH PROMETHEUS CANNOT RUN: {reason}")
    pytest.skip(f"TESTS WITH PROMETHEUS SKIPPED: {reason}")


def promtool(*arguments: str, stdin: str = "") -> None:
    """Runs it; without it tests are skipped, which CI takes for a failure."""
    path = shutil.which("promtool")
    if path is None:
        missing("promtool")
    done = subprocess.run(
        [path, *arguments],
        input=stdin,
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def metrics(port: int, accept: str) -> tuple[str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics", headers={"Accept": accept})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status == 200, text
    return str(answer.getheader("content-type")), text


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What a server that did something exposes, in both formats."""
    folder = tmp_path_factory.mktemp("server")
    options = arguments("Entitlement=Basic", "EntitlementAllowToken=right")
    with live_server(folder, *options) as server:
        port = monitor_port(server)
        post(server.url, "/a/b", token="right")
        post(server.url, "/a/b", token="wrong")
        kind, text = metrics(port, "text/plain;version=0.0.4")
        assert kind.startswith("text/plain; version=0.0.4")
        kind, other = metrics(port, f"{OPENMETRICS},text/plain;q=0.5")
        assert kind.startswith("application/openmetrics-text; version=1.0.0")
    return text, other


@pytest.mark.slow
def test_both_formats_are_read_by_the_parsers_of_the_library(exposed: tuple[str, str]) -> None:
    text, other = exposed
    families = {family.name: family for family in text_string_to_metric_families(text)}
    again = {family.name: family for family in openmetrics.text_string_to_metric_families(other)}
    ours = {name for name in again if name.startswith("mdserver_")}
    assert len(ours) > 25
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert values["mdserver_messages_received_total",] == 1
    assert values["mdserver_refusals_total", "PUBLISH_DENIED"] == 1
    assert values["mdserver_commit_latency_seconds_count",] == 1
    assert values["mdserver_subjects",] == 1
    assert values["mdserver_ready",] == 1


@pytest.mark.slow
def test_names_units_and_labels_follow_the_conventions(exposed: tuple[str, str]) -> None:
    for family in openmetrics.text_string_to_metric_families(exposed[1]):
        assert re.fullmatch(r"[a-z][a-z0-9_]*", family.name)
        assert family.documentation.endswith("."), family.name
        assert not family.name.endswith(OTHER_UNITS), family.name
        assert len(family.samples) < 60, "low cardinality"
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples)
        else:
            assert not family.name.endswith("_total")
        if family.type == "histogram":
            assert family.name.endswith(BASE_UNITS)


@pytest.mark.slow
def test_promtool_finds_nothing_to_complain_about(exposed: tuple[str, str]) -> None:
    promtool("check", "metrics", stdin=exposed[0])


def test_each_alert_fires_and_none_while_all_is_well() -> None:
    promtool("check", "rules", "alerts.yml")
    promtool("test", "rules", "alerts_test.yml")
    alerts = re.findall(r"alert: (\w+)", (FOLDER / "alerts.yml").read_text())
    tried = re.findall(r'alertname="(\w+)"', (FOLDER / "alerts_test.yml").read_text())
    assert sorted(alerts) == sorted(tried)


def test_the_board_is_one_that_grafana_can_draw() -> None:
    board = json.loads((FOLDER / "grafana.json").read_text())
    assert [one["type"] for one in board["templating"]["list"]] == ["datasource"]
    (source,) = (one["name"] for one in board["templating"]["list"])
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        assert panel["datasource"] == {"type": "prometheus", "uid": f"${{{source}}}"}
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, "Grafana divides the width by 24"
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, f"{panel['title']} covers another panel"
        taken |= cells
        for target in panel["targets"]:
            assert target["expr"]
            assert target["legendFormat"]
        ids = [target["refId"] for target in panel["targets"]]
        assert len(ids) == len(set(ids))
    for name in ("id", "title"):
        every = [panel[name] for panel in board["panels"]]
        assert len(every) == len(set(every))


@pytest.mark.slow
def test_alerts_and_board_ask_for_metrics_that_there_are(exposed: tuple[str, str]) -> None:
    families = text_string_to_metric_families(exposed[0])
    there = {sample.name for family in families for sample in family.samples} | {"up"}
    board = json.loads((FOLDER / "grafana.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += re.findall(r"expr: (.*)", (FOLDER / "alerts.yml").read_text())
    for expression in asked:
        names = re.findall(r"\b(?:mdserver|process)_[a-z_]+", expression) or ["up"]
        # Those of Kafka are looked at in tests/kafka/test_monitoring.py: this server has none.
        assert {one for one in names if "_kafka_" not in one} <= there, expression


@pytest.mark.slow
def test_with_prometheus_alone_there_is_nothing_else(tmp_path: Path) -> None:
    with live_server(tmp_path, *arguments("Monitor=PROMETHEUS")) as server:
        port = monitor_port(server)
        assert monitor(port, "GET", "/metrics")[0] == 200
        assert monitor(port, "GET", "/health/live")[0] == 200
        assert monitor(port, "GET", "/sessions")[0] == 404
        assert monitor(port, "POST", "/cluster/drain")[0] == 404


@pytest.mark.slow
def test_a_member_counts_that_it_cannot_reach_kafka(tmp_path: Path) -> None:
    (nobody,) = free_ports(1)
    for name in ("consumer", "producer"):
        topics = "topics=t\n" if name == "consumer" else ""
        text = f"bootstrap.servers=127.0.0.1:{nobody}\n{topics}"
        (tmp_path / f"{name}.properties").write_text(text)
    options = arguments(
        "ClusterEngine=kafka",
        "ClusterPassword=0123456789abcdef",
        f"Kafka.ConsumerProperties={tmp_path}/consumer.properties",
        f"Kafka.ProducerProperties={tmp_path}/producer.properties",
    )
    with live_server(tmp_path, *options) as server:
        port = monitor_port(server)

        def errors() -> int:
            found: int = monitor(port, "GET", "/statistics")[1]["kafka"]["errors"]["look"]
            return found

        eventually(lambda: errors() > 0)
        text = metrics(port, "text/plain;version=0.0.4")[1]
        assert 'mdserver_kafka_errors_total{task="read"} 0.0' in text
        assert "mdserver_kafka_waiting_publications 0.0" in text
        told = monitor(port, "GET", "/statistics?format=text")[1]
        assert "errors (look)" in told
