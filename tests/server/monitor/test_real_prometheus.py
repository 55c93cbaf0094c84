"""A real Prometheus watches a cluster under load: it scrapes all members, and an alert fires."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from mdserver.bench.processes import free_ports
from tests.cluster.live_cluster import LiveCluster
from tests.live import live_server, wait_for_line
from tests.server.monitor.test_prometheus import FOLDER, missing
from tests.server.monitor.test_statistics import arguments, monitor

PATIENCE_S = 240


def board() -> list[str]:
    """What the board asks for, without what only members with Kafka have (tests/kafka)."""
    panels = json.loads((FOLDER / "grafana.json").read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    return [one.replace("$__rate_interval", "15s") for one in asked if "_kafka_" not in one]


@contextmanager
def prometheus(folder: Path, cluster: LiveCluster) -> Iterator[int]:
    """Prometheus with the alert rules of this product, and a minute of waiting cut to a second."""
    path = shutil.which("prometheus")
    if path is None:
        missing("prometheus")
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text())
    for rule in rules["groups"][0]["rules"]:
        if "for" in rule:
            rule["for"] = "1s"
    (folder / "alerts.yml").write_text(yaml.safe_dump(rules))
    password = folder / "password"
    password.write_text("of the monitor")
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [
            {
                "job_name": "mdserver",
                "basic_auth": {"username": "admin", "password_file": str(password)},
                "static_configs": [{"targets": cluster.monitors}],
            }
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    (port,) = free_ports(1)
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                str(path),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield port
    finally:
        process.kill()
        process.wait()


def asked(port: int, query: str) -> dict[str, float]:
    """The values that a query has now, by instance; nothing while Prometheus starts."""
    try:
        status, answer = monitor(port, "GET", f"/api/v1/query?query={quote(query)}")
    except OSError:
        return {}
    if status != 200:
        return {}
    rows: list[dict[str, Any]] = answer["data"]["result"]
    return {row["metric"].get("instance", ""): float(row["value"][1]) for row in rows}


def has_data(port: int, query: str) -> bool:
    return asked(port, query) != {}


def until(look: Callable[[], bool], what: str, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < deadline, f"{what}\n{log.read_text()[-3000:]}"
        time.sleep(0.2)


@pytest.mark.slow
def test_prometheus_watches_a_cluster_and_an_alert_fires_when_a_seed_is_killed(
    tmp_path: Path,
) -> None:
    with LiveCluster(tmp_path, 3) as cluster, prometheus(tmp_path, cluster) as port:
        log = tmp_path / "prometheus.log"

        def scraped() -> bool:
            # Load while it is waited, and all of it is counted in the end.
            for index in range(3):
                cluster.produce(index, "/a/b", "x")
            return all(
                asked(port, "mdserver_messages_received_total").get(target, 0) > 0
                for target in cluster.monitors
            )

        until(scraped, "all members are scraped", log)
        until(
            lambda: (
                asked(port, "mdserver_members_in_sight") == dict.fromkeys(cluster.monitors, 3.0)
            ),
            "all members see each other",
            log,
        )
        assert cluster.get(0, "/nothing")[0] == 404  # is counted as refused
        for expression in board():
            until(partial(has_data, port, expression), expression, log)
        down = 'ALERTS{alertname="MdserverDown",alertstate="firing"}'
        assert asked(port, down) == {}
        cluster.kill(2)
        until(lambda: asked(port, down) == {cluster.monitors[2]: 1.0}, "the alert fires", log)
        missed = 'ALERTS{alertname="MdserverMemberMissing",alertstate="firing"}'
        until(lambda: set(asked(port, missed)) >= set(cluster.monitors[:2]), "others miss it", log)


@pytest.mark.slow
def test_metrics_have_a_listener_of_their_own(tmp_path: Path) -> None:
    settings = ("MonitorPrometheus.Listen=127.0.0.1:0",)
    with live_server(tmp_path, *arguments(*settings)) as server:
        urls = wait_for_line(server.log, '"ready"')["monitor"]
        assert isinstance(urls, list)
        pages, metrics = (int(str(url).rpartition(":")[2]) for url in urls)
        assert monitor(pages, "GET", "/metrics")[0] == 404
        assert monitor(pages, "GET", "/version")[0] == 200
        assert monitor(metrics, "GET", "/metrics")[0] == 200
        assert monitor(metrics, "GET", "/version")[0] == 404
        assert monitor(metrics, "GET", "/health/live")[0] == 200
