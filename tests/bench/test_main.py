import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from mdserver.bench.commands import bench
from mdserver.bench.processes import with_children

BENCH = (sys.executable, "-m", "mdserver.cli.main", "bench")
PATIENCE_S = 60


@pytest.mark.parametrize("command", sorted(bench.commands))
def test_every_command_explains_itself(command: str) -> None:
    result = CliRunner().invoke(bench, [command, "--help"])
    assert result.exit_code == 0
    assert "--encoding" in result.output
    assert "--json" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["fanout", "--subscribers", "0"],
        ["fanout", "--seconds", "1e9"],
        ["fanout", "--encoding", "xml"],
        ["idle", "--connections", "1000000000"],
        ["publish", "--batch", "100", "--window", "10"],
    ],
)
def test_what_is_out_of_bounds_is_refused_before_anything_starts(arguments: list[str]) -> None:
    result = CliRunner().invoke(bench, arguments)
    assert result.exit_code == 2
    assert "Error: Invalid value for" in result.output


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--json", "--report"])
def test_a_file_that_cannot_be_written_is_told_before_anything_starts(
    option: str, tmp_path: Path
) -> None:
    ran = told("latency", "--seconds", "3600", option, str(tmp_path / "no" / "rows"))
    assert ran.returncode == 2
    assert ran.stderr.endswith(f"there is no folder {tmp_path / 'no'}\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("latency", "--server", "https://127.0.0.1:1", "--ca", __file__),
            "expected a certificate",
        ),
        (
            ("avalanche", "-s", "http://127.0.0.1:1", "--restart", "sleep 'x"),
            "No closing quotation",
        ),
        (("fanout", "--no-floor", "-s", "http://no.invalid:1"), "cannot connect to no.invalid:1"),
        (("latency", "-s", "http://no.invalid:1"), "clients of no.invalid:1: "),
        (("latency", "-s", "http://127.0.0.1:1"), "cannot connect to 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_measured_is_one_line(arguments: tuple[str, ...], sentence: str) -> None:
    ran = told(*arguments)
    assert ran.returncode in (1, 2)
    assert sentence in ran.stderr.splitlines()[-1]
    assert "Traceback" not in ran.stderr


def told(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a benchmark that ends at once."""
    return subprocess.run(
        [*BENCH, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@pytest.mark.slow
def test_sigterm_ends_what_was_started() -> None:
    deadline = time.monotonic() + PATIENCE_S
    with subprocess.Popen([*BENCH, "latency", "--clients", "10", "--seconds", "3600"]) as running:
        try:
            # The server, multiprocessing's resource tracker and a load process.
            while len(below := with_children(running.pid)[1:]) < 3:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            running.send_signal(signal.SIGTERM)
            assert running.wait(PATIENCE_S) == -signal.SIGTERM
            while left := [each for each in below if runs(each)]:
                assert time.monotonic() < deadline, left
                time.sleep(0.05)
        finally:
            if running.poll() is None:
                for each in with_children(running.pid)[::-1]:
                    os.kill(each, signal.SIGKILL)


def runs(pid: int) -> bool:
    """Whether a process runs; one that ended may wait for ever for a parent that takes notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False
