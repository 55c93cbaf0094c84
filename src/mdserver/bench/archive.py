"""`python -m mdserver.bench.archive`: how fast a journal is archived, and a history read back.

Spark runs embedded, on all processors of this computer, over journal segments made beforehand.
Needs the extra `pipeline` and Java 17.
"""

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec
from attrs import frozen
from rich.console import Console

from mdserver.bench import processes, results
from mdserver.bench.processes import BenchError
from mdserver.bench.results import Row
from mdserver.bench.verify import content
from mdserver.core.message import Entry, Publication
from mdserver.errors import MdserverError
from mdserver.journal.rows import checked, message_row
from mdserver.journal.segments import StreamWriter
from mdserver.limits import MB
from mdserver.pipeline.archive import job as archive_job
from mdserver.pipeline.archive.batches import Archived
from mdserver.pipeline.common import requirements, session, tables
from mdserver.pipeline.common.sources import JournalSource

ROWS_MAX = 100_000_000
ROOTS = 100
SUBJECTS = 10_000
HISTORY_SUBJECT = "/bench0/history"
READS = 5
FIRST_NS = 1_764_000_000_000_000_000
LINES_WRITTEN_TOGETHER = 10_000
SEGMENT_BYTES = 64 * MB


@frozen
class ArchiveLoad:
    """`rows` messages, of which `history` are about one subject.

    The content of each has `content_bytes` bytes.
    """

    rows: int
    history: int
    content_bytes: int


def messages(load: ArchiveLoad) -> Iterator[Publication]:
    """Yield the messages; those of the long history are spread evenly among the others."""
    every = load.rows / load.history if load.history else load.rows + 1
    told = 0
    for number in range(load.rows):
        if told < load.history and number >= told * every:
            told += 1
            subject = HISTORY_SUBJECT
        else:
            subject = f"/bench{number % ROOTS}/subject{number % SUBJECTS}"
        text = content(number, load.content_bytes).encode()
        yield Publication(subject, text, time=FIRST_NS + number * 1_000)


def write_journal(folder: Path, load: ArchiveLoad) -> None:
    """Write a journal of these messages, a microsecond apart, in sealed segments of 64 MB."""
    seqs: dict[str, int] = {}

    def lines() -> Iterator[bytes]:
        for publication in messages(load):
            seq = seqs[publication.subject] = seqs.get(publication.subject, 0) + 1
            row = message_row(Entry(1, seq, publication), 0, "bench", "n1", publication.time)
            yield checked(msgspec.json.encode(row))

    remaining = lines()
    with StreamWriter(folder / "messages", SEGMENT_BYTES) as writer:
        while block := list(islice(remaining, LINES_WRITTEN_TOGETHER)):
            writer.append(block)


def archive(journal: Path, folder: Path, load: ArchiveLoad) -> list[Row]:
    """Archive the journal; return a row for the first batch, one for the others, and one for all.

    The first batch is separate because Spark compiles in it.
    """
    with session.start("bench") as spark:
        jvm: Any = spark._jvm
        pids = (jvm.java.lang.ProcessHandle.current().pid(), os.getpid())
        told: list[tuple[float, float, Archived]] = []

        def moment() -> tuple[float, float]:
            return time.perf_counter(), sum(map(processes.cpu_s, pids))

        began = moment()
        archive_job.run_archive(
            spark,
            JournalSource(journal),
            folder,
            lambda batch: told.append((*moment(), batch)),
            once=True,
        )
    points = [began, *((at, cpu) for at, cpu, _ in told)]
    counts = [batch.rows or 0 for _, _, batch in told]
    if sum(counts) != load.rows or any(batch.bad for _, _, batch in told):
        raise BenchError(f"{sum(counts)} of {load.rows} messages were archived")
    parts = {"first batch": (0, 1), "further batches": (1, len(counts)), "all": (0, len(counts))}
    rows = []
    for mode, (start, end) in parts.items():
        count = sum(counts[start:end])
        seconds, cpu_s = (points[end][axis] - points[start][axis] for axis in (0, 1))
        if count:
            rows.append(measured("archive", mode, load, count, seconds, cpu_s))
    return rows


def measured(
    bench: str, mode: str, load: ArchiveLoad, count: int, seconds: float, cpu_s: float
) -> Row:
    """Return a row of the results."""
    return Row(
        bench=bench,
        mode=mode,
        encoding="json",
        connections=0,
        content_bytes=load.content_bytes,
        count=count,
        seconds=seconds,
        per_s=count / seconds,
        per_cpu_s=count / cpu_s,
    )


def read_history(folder: Path, load: ArchiveLoad) -> Row:
    """Read the subject's whole history several times, in a process without a JVM; keep the best."""
    best, best_cpu = float("inf"), float("inf")
    for _ in range(READS):
        began, began_cpu = time.perf_counter(), time.process_time()
        found = tables.history(folder, HISTORY_SUBJECT)
        seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
        best, best_cpu = min(best, seconds), min(best_cpu, cpu)
        if found.column("seq").to_pylist() != list(range(1, load.history + 1)):
            raise BenchError(f"{found.num_rows} of {load.history} messages were read, or not all")
    return measured("history", "best", load, load.history, best, best_cpu)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rows", type=click.IntRange(1, ROWS_MAX), default=3_000_000, show_default=True)
@click.option(
    "--history",
    type=click.IntRange(0, ROWS_MAX),
    default=400_000,
    show_default=True,
    help="How many of them are about one subject, which is read back in the end.",
)
@click.option(
    "--bytes",
    "content_bytes",
    type=click.IntRange(16, 16 * 1024),
    default=128,
    show_default=True,
    help="Size of a message's content.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append a JSON line for each measurement to this file.",
)
def command(rows: int, history: int, content_bytes: int, json_file: Path | None) -> None:
    """Archive a journal, then read one subject's history back without a JVM.

    The first batch is told apart: Spark compiles what the others only run. A process of its own
    reads the history, so that no JVM helps.
    """
    if history > rows:
        raise click.BadParameter("more than --rows", param_hint="--history")
    requirements.check_extra()
    requirements.check_java(os.environ)
    load = ArchiveLoad(rows, history, content_bytes)
    with tempfile.TemporaryDirectory(prefix="mdserver-bench-") as name:
        journal, folder = Path(name) / "journal", Path(name) / "tables"
        with Console(stderr=True).status("writing a journal") as status:
            write_journal(journal, load)
            status.update("archiving it")
            measurements = archive(journal, folder, load)
            if history:
                status.update("reading a history")
                alone = multiprocessing.get_context("spawn")
                with ProcessPoolExecutor(1, mp_context=alone) as pool:
                    measurements.append(pool.submit(read_history, folder, load).result())
    results.show(measurements, Console())
    if json_file is not None:
        results.write(measurements, json_file)


if __name__ == "__main__":
    try:
        command.main()
    except MdserverError as error:
        click.echo(f"mdserver.bench.archive: {error}", err=True)
        sys.exit(1)
