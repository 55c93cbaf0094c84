"""Open loops against real servers."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mdserver.bench import disturbed
from mdserver.bench.commands import bench
from mdserver.bench.encodings import ENCODINGS
from mdserver.bench.open_loop import BenchProgress, OpenLoad
from mdserver.bench.target import Running
from tests.live import live_server

STOPPED_S = 1.0
NOWHERE = ["--server", "http://127.0.0.1:1"]


def run(*words: str) -> Result:
    return CliRunner().invoke(bench, list(words))


class StopsTheServer(BenchProgress):
    """Stops a process for a second when a quarter of the measurement is over."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._done = False

    def __call__(self, text: str, part: float | None = None) -> None:
        if part and part > 0.25 and not self._done:
            self._done = True
            os.kill(self._pid, signal.SIGSTOP)
            threading.Timer(STOPPED_S, os.kill, (self._pid, signal.SIGCONT)).start()


@pytest.mark.slow
@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
def test_what_a_slow_moment_holds_up_is_measured(encoding: str, tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        load = OpenLoad(
            ENCODINGS[encoding],
            clients=6,
            subjects=2,
            rate=100,
            seconds=2.0,
            processes=2,
            sources=2,
            running=Running.at([server.url]),
        )
        deliveries, results = disturbed.latency(load, StopsTheServer(server.process.pid))
    # Half of all messages were to be sent while the server stood still: most of them waited long.
    for row in (deliveries, results):
        assert row.p95_ms is not None
        assert row.p95_ms > 500
    assert (deliveries.count, results.count) == (600, 200)
    assert (deliveries.lost, deliveries.repeated, deliveries.altered) == (0, 0, 0)
    assert sum(moment.per_s > 0 for moment in deliveries.course) > 10


@pytest.mark.slow
def test_one_message_reaches_all_connections_that_are_held(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    small = ["--clients", "60", "--processes", "3", "--sources", "3", "--seconds", "0.2"]
    result = run("held", *small, "--json", str(lines))
    assert result.exit_code == 0, result.output
    held, message, _ = (json.loads(line) for line in lines.read_text().splitlines())
    assert (held["mode"], held["count"]) == ("connections", 60)
    assert held["kib_each"] > 0
    assert (message["count"], message["lost"], message["reconnects"]) == (60, 0, 0)
    assert message["seconds"] == message["max_ms"] / 1000 > 0


@pytest.mark.slow
def test_a_publisher_answers_the_server_while_connections_are_held() -> None:
    # The server ends a connection that is silent for twice the interval.
    few = ["--clients", "4", "--seconds", "3.5", "--set", "KeepAliveInterval=1"]
    result = run("held", *few)
    assert result.exit_code == 0, result.output


@pytest.mark.slow
def test_messages_that_nobody_can_recover_are_told_as_lost(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    small = ["--clients", "5", "--rate", "100", "--seconds", "1.5", "--json", str(lines)]
    cuts = ["--cut-every", "0.8", "--away", "0.3"]
    result = run("jitter", *small, *cuts, "--set", "MaxCachedMessagesPerSubject=2")
    assert result.exit_code == 1
    assert "Error: messages were lost, repeated or altered" in result.stderr
    deliveries, _, back = (json.loads(line) for line in lines.read_text().splitlines())
    assert deliveries["lost"] > 10
    assert (deliveries["repeated"], deliveries["altered"]) == (0, 0)
    assert back["count"] == back["reconnects"] >= 5
    assert back["p50_ms"] >= 300


@pytest.mark.slow
def test_a_condition_that_holds_makes_the_exit_status(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    small = ["--clients", "3", "--rate", "50", "--seconds", "0.2", "--report", str(page)]
    result = run("latency", *small, "--fail-if", "per_s > 0", "--format", "json")
    assert result.exit_code == 1
    assert "Error: --fail-if 'per_s > 0': per_s is" in result.stderr
    assert [json.loads(line)["lost"] for line in result.stdout.splitlines()] == [0, 0]
    assert "per_s is" in page.read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--server", "nowhere"], "--server nowhere: expected http://HOST:PORT"),
        (
            [*NOWHERE, "--set", "a=b"],
            "--set is for a server that is started",
        ),
        (["--pid", "1"], "--ca and --pid are for servers that --server names"),
        ([*NOWHERE, "--pid", "99999999"], "there is no process 99999999"),
        (["--fail-if", "p99 > 5"], "there is no column 'p99'"),
        (["--bytes", "10"], "10 is not in the range"),
    ],
)
def test_bad_usage_is_told_before_anything_starts(words: list[str], told: str) -> None:
    result = run("latency", *words)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.replace("│", " ").split())


def test_a_server_that_is_not_there_is_one_line() -> None:
    result = run("latency", *NOWHERE, "--clients", "1")
    assert "cannot connect to 127.0.0.1:1: Connection refused" in str(result.exception)
