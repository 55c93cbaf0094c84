"""The job `derive` as the command line runs it: its folder, Spark's query, and its progress."""

import contextlib
import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mdserver.pipeline.common import checkpoints, delta
from mdserver.pipeline.common.durable import replace_file
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.sources import Source
from mdserver.pipeline.common.spark_errors import reason_of
from mdserver.pipeline.derive import rules
from mdserver.pipeline.derive.batches import JOB, BatchCounts, Derive, watched
from mdserver.pipeline.derive.publisher import PublishServer, StepPublisher
from mdserver.pipeline.derive.rules import Rule
from mdserver.pipeline.derive.step_log import StepLog

POLL_S = 0.2
PROGRESS_S = 5.0


Say = Callable[[str, Mapping[str, Any]], None]  # takes a sentence, and its values by name


class Progress:
    """The sums of recent batches, reported on the terminal and on the job's meta-subject."""

    def __init__(self, publisher: StepPublisher, say: Say) -> None:
        self._publisher = publisher
        self._say = say
        self._batches: list[BatchCounts] = []
        self._since = time.monotonic()

    def add(self, batch: BatchCounts) -> None:
        """Add a batch to the sums."""
        self._batches.append(batch)

    def tell(self, *, now: bool = False) -> None:
        """Report what came since the last report, at most every `PROGRESS_S` seconds.

        With `now` it is reported at once. Without a batch there is no report.
        """
        seconds = time.monotonic() - self._since
        if not self._batches or (seconds < PROGRESS_S and not now):
            return
        batches, self._batches = self._batches, []
        self._since = time.monotonic()
        told = {
            "batches": len(batches),
            "rows": sum(batch.rows for batch in batches),
            "rows_per_s": round(sum(batch.rows for batch in batches) / max(seconds, 0.001)),
            "derived": sum(batch.derived for batch in batches),
            "set_aside": sum(batch.refused for batch in batches),
            "lag_s": round(batches[-1].lag_s, 3),
        }
        self._say(
            "derive: {rows} rows ({rows_per_s}/s), {derived} derived, {set_aside} set aside,"
            " lag {lag_s} s".format(**told),
            told,
        )
        self._publisher.tell(JOB, told)


def opened(folder: Path, source: Mapping[str, str]) -> Path:
    """Return the folder of Spark's checkpoint, which belongs to this source alone.

    `folder` is that of the job, `source` the identity of the source. Raises PipelineError if the
    source is another one than before, such as a topic of the same name that was created again:
    Spark would silently go on from the old offset.
    """
    kept = folder / "source.json"
    try:
        known = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else source
    except ValueError:
        raise PipelineError(f"{kept} is damaged: restore it, or remove {folder}") from None
    for name, identifier in known.items():
        # Offsets are numbers of segments and positions, so a journal's folder may have been moved.
        if source.get(name) != identifier and not checkpoints.is_moved(name, known):
            raise PipelineError(
                f"{name} is not the one that this job has read: its id was {identifier} and is"
                f" {source.get(name)}. To start with it from its beginning, remove {folder}"
            )
    checkpoint = folder / "spark"
    checkpoint.mkdir(parents=True, exist_ok=True)
    replace_file(kept, json.dumps(dict(source)).encode())
    return checkpoint


@frozen
class Job:
    """A run of the job that lacks only Spark."""

    rules: Sequence[Rule]
    derive: Derive
    progress: Progress
    folder: Path

    def run(self, spark: SparkSession, source: Source, *, once: bool) -> None:
        """Derive for ever, or with `once` until all there is has been read.

        Raises PipelineError if the source has no messages, or if the query failed.
        """
        if not source.has("messages"):
            raise PipelineError("there is nothing to derive from: no stream messages is there")
        # How soon Spark asks an idle source again: the default of 10 ms takes a tenth of a
        # processor.
        spark.conf.set("spark.sql.streaming.pollingDelay", "50ms")
        checkpoint = opened(self.folder, source.identity(spark, "messages"))
        # Planned once and not in each batch: planning costs more than the rows of a batch.
        found = watched(source.follow(spark, "messages"), self.rules)
        writer = (
            found.writeStream.queryName(JOB)
            .option("checkpointLocation", str(checkpoint))
            .foreachBatch(self.derive.batch)
        )
        self.derive.resume()
        trigger = {"availableNow": True} if once else {"processingTime": "0 seconds"}
        query = writer.trigger(**trigger).start()
        try:
            self._watch(query, once=once)
            if self._failure(query) is None:
                self.progress.tell(now=True)  # before `leave`, which ends the connection
        finally:
            self.derive.leave()
            query.stop()
        failure = self._failure(query)
        if failure is not None:
            raise PipelineError(f"deriving failed: {reason_of(failure)}") from failure

    def _failure(self, query: StreamingQuery) -> Exception | None:
        """Return what ended the query, None if nothing did."""
        return self.derive.failure or query.exception()

    def _watch(self, query: StreamingQuery, *, once: bool) -> None:
        """Wait for the end of the query; between batches let the clock publish what is due.

        With `once` the clock publishes nothing: what is due after the last message is left to the
        next run.
        """
        while query.isActive:
            time.sleep(POLL_S)  # Spark's own wait cannot be interrupted by Ctrl-C
            status = query.status
            if not (once or status["isDataAvailable"] or status["isTriggerActive"]):
                self.derive.idle(time.time_ns() // 1_000)
            self.progress.tell()


@contextlib.contextmanager
def ready(rules_file: Path, tables: Path, server: PublishServer, say: Say) -> Iterator[Job]:
    """Prepare all but Spark: rules, the steps of earlier runs, and a connection to the server.

    Yields the job; the connection and the lock end with the block. Raises PipelineError, whose
    message is one line, if one of them fails: a mistake then costs no start of Spark.
    """
    loaded = rules.load(rules_file)
    folder = tables / checkpoints.FOLDER / JOB
    with alone(folder):
        yield from _ready(loaded, folder, tables, server, say)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other runs of the job out of its folder until the end of the block.

    Raises PipelineError if another run has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PipelineError(f"another run of this job has {folder}") from None
        yield


def _ready(
    loaded: list[Rule], folder: Path, tables: Path, server: PublishServer, say: Say
) -> Iterator[Job]:
    """Yield the job, once its folder is known to be this run's alone."""
    log = StepLog(folder / "steps", loaded)
    # Without its checkpoint Spark would number batches from 0 again, and the log would skip them as
    # batches that it knows.
    if not log.empty and not (folder / "spark").is_dir():
        raise PipelineError(
            f"{folder} has steps but no folder spark: both belong together, remove both to start"
            " anew"
        )
    delta.table(tables, "quarantine")
    with StepPublisher(server, log.publisher, log.numbering) as publisher:
        log.identified(publisher.numbering)
        progress = Progress(publisher, say)
        derive = Derive(loaded, log, publisher, tables, progress.add)
        yield Job(loaded, derive, progress, folder)
