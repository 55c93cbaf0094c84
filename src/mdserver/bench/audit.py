"""`python -m mdserver.bench.audit`: how long an audit of many messages and receipts takes.

Writes the tables of an archive without a journal, which would take much longer: messages of many
subjects in order, and the receipts of sessions that got all messages of some of them, a range a
minute. A few receipts are wrong, and the audit has to name these and no other. Spark runs embedded.
"""

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
from attrs import frozen

from mdserver.bench import processes
from mdserver.bench.processes import BenchError
from mdserver.bench.tables import START_US, append_messages, append_rows
from mdserver.pipeline.audit.job import AuditResult, run_audit
from mdserver.pipeline.common import session

SUBJECTS = 1_000
FILE_SUBJECTS = 100
SUBJECTS_EACH = 10
"""How many subjects each session got."""
RANGES = 60
"""The receipts of a session about one subject: one a minute of an hour."""
ALTERED = 7
HOUR_US = 3_600_000_000


@frozen
class AuditLoad:
    """`messages` of all subjects together, and `sessions` that gave receipts."""

    messages: int
    sessions: int

    @property
    def each(self) -> int:
        """The number of messages of a subject."""
        return self.messages // SUBJECTS


def subject_of(number: int) -> str:
    """Return the name of a subject; names are in the order of their numbers."""
    return f"/bench/subject{number:06d}"


def write_messages(tables: Path, load: AuditLoad) -> list[Any]:
    """Write the table `messages`; return the checksums of each subject's messages."""
    rng = np.random.default_rng(1)
    checksums = [rng.integers(0, 2**32, load.each, np.int64) for _ in range(SUBJECTS)]
    for first in range(0, SUBJECTS, FILE_SUBJECTS):
        numbers = range(first, first + FILE_SUBJECTS)
        rows = len(numbers) * load.each
        seq = np.tile(np.arange(1, load.each + 1, dtype=np.int64), len(numbers))
        names = pa.array([subject_of(number) for number in numbers])
        of = pa.array(np.repeat(np.arange(len(numbers)), load.each))
        given: dict[str, Any] = {
            "subject": names.take(of),
            "seq": seq,
            "ts_server": START_US + seq * (HOUR_US // (load.each + 1)),
            "crc": np.concatenate([checksums[number] for number in numbers]),
        }
        append_messages(tables, rows, given)
    return checksums


def write_receipts(tables: Path, load: AuditLoad, checksums: Sequence[Any]) -> int:
    """Write the table `receipts`, of which `ALTERED` are wrong; return how many there are."""
    edges = np.linspace(0, load.each, RANGES + 1).astype(np.int64)
    low, high = edges[:-1] + 1, edges[1:]
    sums = [np.add.reduceat(crc, edges[:-1]) for crc in checksums]
    ats = [
        np.add.reduceat(crc * np.arange(1, load.each + 1), edges[:-1]) - total * low
        for crc, total in zip(checksums, sums, strict=True)
    ]
    step = SUBJECTS // SUBJECTS_EACH
    got = [
        (s, (s + n * step) % SUBJECTS) for s in range(load.sessions) for n in range(SUBJECTS_EACH)
    ]
    rows = len(got) * RANGES
    crc_sum = np.concatenate([sums[subject] for _, subject in got])
    crc_sum[:: rows // ALTERED][:ALTERED] += 1
    ends = START_US + high * (HOUR_US // (load.each + 1))
    given: dict[str, Any] = {
        "session": np.repeat([f"s{s}" for s, _ in got], RANGES),
        "subscriber": np.repeat([f"user{s}" for s, _ in got], RANGES),
        "owner": np.repeat([f"owner{s}" for s, _ in got], RANGES),
        "subject": np.repeat([subject_of(subject) for _, subject in got], RANGES),
        "seq_lo": np.tile(low, len(got)),
        "seq_hi": np.tile(high, len(got)),
        "n": np.tile(high - low + 1, len(got)),
        "crc_sum": crc_sum,
        "crc_at": np.concatenate([ats[subject] for _, subject in got]),
        "opened_ts": np.tile(ends - 60_000_000, len(got)),
        "closed_ts": np.tile(ends, len(got)),
    }
    same: dict[str, Any] = {
        "history": "h1",
        "epoch": 1,
        "dups": 0,
        "reordered": 0,
        "conflated": 0,
        "via": "n1",
        "verified": True,
        "left_out": 0,
        "fields_sum": 0,
        "fields_at": 0,
    }
    append_rows(tables, "receipts", rows, given, same)
    return rows


def check(result: AuditResult, receipts: int) -> None:
    """Raise BenchError unless the audit named what is wrong, and nothing else."""
    expected = AuditResult(receipts, ALTERED, 0, 0, 0, 0, 0)
    if result != expected:
        raise BenchError(f"the audit found {result}, and not {expected}")


@click.command()
@click.option("--messages", type=click.IntRange(SUBJECTS * RANGES), default=10_000_000)
@click.option("--sessions", type=click.IntRange(1, SUBJECTS), default=1_000)
@click.option("--driver-memory", default="1g", show_default=True)
def main(messages: int, sessions: int, driver_memory: str) -> None:
    """Audit so many messages, of which each of so many sessions got a hundredth."""
    load = AuditLoad(messages, sessions)
    with tempfile.TemporaryDirectory(prefix="mdserver-bench-") as folder:
        tables = Path(folder)
        began = time.monotonic()
        receipts = write_receipts(tables, load, write_messages(tables, load))
        print(f"{messages} messages and {receipts} receipts in {time.monotonic() - began:.1f} s")
        given = {"spark.driver.memory": driver_memory}
        with session.running("audit", given=given) as spark:
            jvm: Any = spark._jvm
            java = jvm.java.lang.ProcessHandle.current().pid()
            began, cpu_s = time.monotonic(), processes.cpu_s(java)
            result = run_audit(spark, tables, tables / "report.html")
            seconds, cpu_s = time.monotonic() - began, processes.cpu_s(java) - cpu_s
            print(
                f"audited in {seconds:.1f} s, with {cpu_s:.0f} s of processor time;"
                f" load average {os.getloadavg()[0]:.1f}"
            )
        check(result, receipts)


if __name__ == "__main__":
    main()
