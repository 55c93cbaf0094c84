"""An audit with many partitions on two workers: what each task needs of its executor's memory.

    python -m tests.pipeline.task_memory [--messages 3000000] [--partitions 100]

Writes the tables of `mdserver.bench.audit`, starts a master and two workers of one core and 1 GB
each (executors of 768 MB), and audits by `spark-submit`. Spark's event log says how much memory
each task took for sorting, joining and hashing, and how it ended. Fails if a task failed, took more
than its executor has for that, or wrote to the disk because memory did not suffice; or if the audit
did not find what is wrong.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import frozen

from mdserver.bench import audit
from mdserver.limits import MB
from tests.live_spark import live_spark

EXECUTOR_MB = 768
EXECUTION_BYTES = int((EXECUTOR_MB - 300) * 0.6) * MB
"""Of an executor with one core, one task may have all: 60 % (spark.memory.fraction) of what is left
after the 300 MB that Spark keeps."""
FOUND = 1
"""The exit status of an audit that found something."""


@frozen
class Task:
    """The end of a task, from the event log."""

    stage: int
    ended: str
    peak_bytes: int
    spilled_bytes: int
    read_bytes: int


def main() -> int:
    """Return 1 if a task was beyond its memory."""
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.task_memory")
    parser.add_argument("--messages", type=int, default=3_000_000)
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=100)
    given = parser.parse_args()
    load = audit.AuditLoad(given.messages, given.sessions)
    with tempfile.TemporaryDirectory(prefix="mdserver-tasks-") as name:
        folder = Path(name)
        (folder / "events").mkdir()
        (folder / "cluster").mkdir()
        receipts = audit.write_receipts(
            folder / "tables", load, audit.write_messages(folder / "tables", load)
        )
        settings = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (folder / "events").as_uri(),
            "spark.sql.shuffle.partitions": str(given.partitions),
            # It would join small partitions, of which there are then fewer.
            "spark.sql.adaptive.enabled": "false",
        }
        options = [word for item in settings.items() for word in ("--spark-option", "=".join(item))]
        with live_spark(folder / "cluster", {}) as cluster:
            began = time.monotonic()
            run = cluster.submit([], "audit", "--tables", str(folder / "tables"), *options)
            seconds = time.monotonic() - began
            assert run.returncode == FOUND, run.stderr
            assert f"{receipts} receipts: {audit.ALTERED} not whole" in run.stdout, run.stdout
            executors = cluster.executors()
        tasks = list(tasks_of(folder / "events"))
    assert any(task.peak_bytes for task in tasks), "the event log tells of no memory"
    beyond = [
        task
        for task in tasks
        if task.ended != "Success" or task.spilled_bytes or task.peak_bytes > EXECUTION_BYTES
    ]
    print(
        f"{given.messages} messages, {receipts} receipts, {given.partitions} partitions:"
        f" {len(tasks)} tasks on {sum(executors)} executors in {seconds:.0f} s;"
        f" {max(task.peak_bytes for task in tasks) / MB:.0f} MB of memory in the largest task,"
        f" of {EXECUTION_BYTES // MB} MB; {max(task.read_bytes for task in tasks) / MB:.0f} MB"
        f" shuffled to one task at most; {len(beyond)} tasks beyond their memory;"
        f" load average {os.getloadavg()[0]:.1f}"
    )
    for task in beyond[:10]:
        print(task)
    return int(bool(beyond) or any(number != 1 for number in executors))


def tasks_of(folder: Path) -> Iterator[Task]:
    """The tasks of a run, from its event log, beside which Hadoop puts files of checksums."""
    for path in sorted(folder.rglob("events_*")):
        for line in path.read_text(encoding="utf-8").splitlines():
            event: dict[str, Any] = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd":
                metrics = event.get("Task Metrics") or {}
                read = metrics.get("Shuffle Read Metrics", {})
                yield Task(
                    stage=event["Stage ID"],
                    ended=event["Task End Reason"]["Reason"],
                    # "Peak Execution Memory" adds up the peaks of operators, whenever they come.
                    peak_bytes=metrics.get("Peak On Heap Execution Memory", 0)
                    + metrics.get("Peak Off Heap Execution Memory", 0),
                    spilled_bytes=metrics.get("Memory Bytes Spilled", 0),
                    read_bytes=read.get("Local Bytes Read", 0) + read.get("Remote Bytes Read", 0),
                )


if __name__ == "__main__":
    sys.exit(main())
