"""Ctrl-C, which reaches all processes of a job, and SIGTERM: its status, no word of Spark."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mdserver.core.message import Publication

from .conftest import write_messages

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]

PATIENCE_S = 120


# Waits for an answer of the JVM that does not come before the interrupt.
COUNTS_FOREVER = """
from mdserver.pipeline.common.session import running

try:
    with running("endless") as spark:
        print("started", flush=True)
        spark.range(10**15).selectExpr("sum(hash(id))").collect()
except KeyboardInterrupt:
    raise SystemExit(130)
"""

# Has the interrupt come while Spark is there already, and its start waits for the last answer.
STARTS_SLOWLY = """
import os, signal, threading

from pyspark import SparkContext

from mdserver.pipeline.common.session import running


def waiting(context, level):
    threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
    context._jvm.java.lang.Thread.sleep(2_000)
    set_level(context, level)


set_level, SparkContext.setLogLevel = SparkContext.setLogLevel, waiting
try:
    with running("endless"):
        raise AssertionError("the job begins, although it was interrupted")
except KeyboardInterrupt:
    raise SystemExit(130)
"""


@contextlib.contextmanager
def archiving(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """An archive in a process group of its own."""
    write_messages(tmp_path / "journal", [Publication("/a/b", b"x")])
    command = ["-m", "mdserver.cli.main", "pipeline", "archive"]
    where = ["--journal", str(tmp_path / "journal"), "--tables", str(tmp_path / "tables")]
    with in_a_group([*command, *where]) as process:
        yield process


@contextlib.contextmanager
def in_a_group(arguments: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """Run Python in a process group of its own, which is killed at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with process, contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def ended(
    process: "subprocess.Popen[str]", number: signal.Signals = signal.SIGINT
) -> tuple[int, str]:
    """Interrupt the group; the status, and what was printed until no process of it is left."""
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE_S)
    # The JVM warns of a module of its own whenever it starts.
    lines = [line for line in errors.splitlines() if "incubator modules" not in line]
    return process.returncode, "".join(lines)


def has_java(pid: int) -> bool:
    """Whether a child of the process is a JVM."""
    children: list[str] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # of a thread that has ended
            children += (thread / "children").read_text().split()
    return any(Path(f"/proc/{child}/comm").read_text().strip() == "java" for child in children)


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, -15, marks=pytest.mark.soak)],
)
def test_while_it_archives(tmp_path: Path, number: signal.Signals, status: int) -> None:
    with archiving(tmp_path) as process:
        assert process.stdout is not None
        assert "1 rows" in process.stdout.readline()
        assert ended(process, number) == (status, "")


def test_while_it_waits_for_an_answer_of_the_jvm() -> None:
    with in_a_group(["-c", COUNTS_FOREVER]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        assert ended(process) == (130, "")


def test_while_spark_starts(tmp_path: Path) -> None:
    with archiving(tmp_path) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not has_java(process.pid):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        assert ended(process) == (130, "")


def test_when_spark_has_just_started() -> None:
    with in_a_group(["-c", STARTS_SLOWLY]) as process:
        _, errors = process.communicate(timeout=PATIENCE_S)
    lines = [line for line in errors.splitlines() if "incubator modules" not in line]
    assert (process.returncode, lines) == (130, [])
