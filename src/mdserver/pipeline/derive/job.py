"""The job `derive` as the command line runs it: its folder, Spark's query, and its progress."""

import contextlib
import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs
from attrs import frozen
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mdserver.pipeline.common import checkpoints, delta
from mdserver.pipeline.common.durable import replace_file
from mdserver.pipeline.common.places import Tables
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.sources import Source
from mdserver.pipeline.common.spark_errors import reason_of
from mdserver.pipeline.derive import distributed, rules
from mdserver.pipeline.derive.batches import Derive
from mdserver.pipeline.derive.publisher import PublishServer, StepPublisher
from mdserver.pipeline.derive.rules import Rule
from mdserver.pipeline.derive.step_log import StepLog
from mdserver.pipeline.derive.steps import JOB, BatchCounts

POLL_S = 0.2
PROGRESS_S = 5.0
SHARDS = 8
"""Of the distributed engine: enough for a few executors, each of which has some of them."""


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
class EngineChoice:
    """Where the rules run: in the driver, or on executors in so many shards.

    `shards` is 0 for the embedded engine, and None for as many shards as the run before had.
    """

    shards: int | None = 0


EMBEDDED = EngineChoice()


def settled(folder: Path, wanted: EngineChoice) -> EngineChoice:
    """Return the engine of the job in this folder, with its shards; the first run chooses it.

    States are kept in another place by each engine, and each number of shards divides them in
    another way. Raises PipelineError if the folder has states that this engine cannot use.
    """
    kept = folder / "engine.json"
    try:
        known = (
            EngineChoice(**json.loads(kept.read_text(encoding="utf-8"))) if kept.exists() else None
        )
    except (ValueError, TypeError):
        raise PipelineError(f"{kept} is damaged: restore it, or remove {folder}") from None
    if known is None and (folder / "spark").is_dir():
        known = EMBEDDED  # of a release that had no other
    if wanted.shards is None:
        same = known is not None and known != EMBEDDED
        wanted = known if known is not None and same else EngineChoice(SHARDS)
    if known is not None and known != wanted:
        raise PipelineError(
            f"{folder} has the states of {_named(known)}, which {_named(wanted)} cannot go on with:"
            f" run that one, or remove {folder} to start from the beginning"
        )
    if known is None:
        replace_file(kept, json.dumps(attrs.asdict(wanted)).encode())
    return wanted


def _named(engine: EngineChoice) -> str:
    if engine == EMBEDDED:
        return "the embedded engine"
    return f"the distributed engine with {engine.shards} shards"


class RunningEngine(Protocol):
    """The engine of a run: `batches.Derive`, or `distributed.Distributed`."""

    failure: Exception | None
    never_ends: bool
    """Whether Spark makes batches without rows for ever, also if it is to end when all is read."""

    def found(self, raw: DataFrame, checkpoint: Path) -> DataFrame:
        """Return the frame whose batches `batch` takes, from the raw lines of the source.

        `checkpoint` is the folder of the query that is not yet started.
        """

    def resume(self) -> None:
        """Publish what the last run may not have published."""

    def batch(self, found: DataFrame, batch_id: int) -> None:
        """Take one batch."""

    def idle(self, now: int) -> None:
        """Publish what is due by the clock, if the engine does not do so itself."""

    def leave(self) -> None:
        """End a publication that waits for a server that is away."""


@frozen
class Job:
    """A run of the job that lacks only Spark."""

    derive: RunningEngine
    progress: Progress
    folder: Path
    trigger: Mapping[str, Any]

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
        found = self.derive.found(source.follow(spark, "messages"), checkpoint)
        writer = (
            found.writeStream.queryName(JOB)
            .option("checkpointLocation", str(checkpoint))
            .foreachBatch(self.derive.batch)
        )
        self.derive.resume()
        trigger = {"availableNow": True} if once else self.trigger
        query = writer.trigger(**trigger).start()
        try:
            self._watch(query, once=once)
            # Before the query is stopped, which interrupts a batch that is at work.
            failure = self._failure(query)
            if failure is None:
                self.progress.tell(now=True)  # before `leave`, which ends the connection
        finally:
            self.derive.leave()
            self._stop(spark, query)
        if failure is not None:
            raise PipelineError(f"deriving failed: {reason_of(failure)}") from failure

    def _stop(self, spark: SparkSession, query: StreamingQuery) -> None:
        """Stop the query, of which a batch without rows may be at work: Spark would log errors."""
        if self.derive.never_ends:
            spark.sparkContext.setLogLevel("OFF")
        query.stop()
        spark.sparkContext.setLogLevel("ERROR")

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
            if once and self.derive.never_ends and _caught_up(query):
                return
            if not (once or status["isDataAvailable"] or status["isTriggerActive"]):
                self.derive.idle(time.time_ns() // 1_000)
            self.progress.tell()


def _caught_up(query: StreamingQuery) -> bool:
    """Return whether a batch read nothing, as those of a query that has read everything.

    A batch may have no rows and yet have gone on, over offsets of Kafka without a record. The first
    batch of a run may be one of the run before that was not finished, and says nothing.
    """
    recent = query.recentProgress
    if not recent or recent[-1]["batchId"] == recent[0]["batchId"]:
        return False
    still = all(source["startOffset"] == source["endOffset"] for source in recent[-1]["sources"])
    return still and bool(recent[-1]["numInputRows"] == 0)


@frozen
class JobPlaces:
    """Where the job has what it makes: its tables, and in `checkpoints` what it remembers.

    The second is always a folder: steps are files that are synced one by one, and Spark's store of
    states has files of its own there.
    """

    tables: Tables
    checkpoints: Path

    @property
    def folder(self) -> Path:
        """The folder of the job."""
        return self.checkpoints / JOB


@contextlib.contextmanager
def ready(
    rules_file: Path,
    places: JobPlaces,
    server: PublishServer,
    say: Say,
    engine: EngineChoice = EMBEDDED,
    *,
    once: bool = False,
) -> Iterator[Job]:
    """Prepare all but Spark: rules, the steps of earlier runs, and a connection to the server.

    Yields the job; the connection and the lock end with the block. Raises PipelineError, whose
    message is one line, if one of them fails: a mistake then costs no start of Spark.
    """
    loaded = rules.load(rules_file)
    with alone(places.folder):
        chosen = settled(places.folder, engine)
        yield from _ready(loaded, places, server, say, chosen, once=once)


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
    loaded: list[Rule],
    places: JobPlaces,
    server: PublishServer,
    say: Say,
    engine: EngineChoice,
    *,
    once: bool,
) -> Iterator[Job]:
    """Yield the job, once its folder is known to be this run's alone."""
    folder = places.folder
    log = StepLog(folder / "steps", loaded)
    # Without its checkpoint Spark would number batches from 0 again, and the log would skip them as
    # batches that it knows.
    if not log.empty and not (folder / "spark").is_dir():
        raise PipelineError(
            f"{folder} has steps but no folder spark: both belong together, remove both to start"
            " anew"
        )
    delta.table(places.tables, "quarantine")
    with StepPublisher(server, log.publisher, log.numbering) as publisher:
        log.identified(publisher.numbering)
        progress = Progress(publisher, say)
        run = loaded, log, publisher, places.tables, progress.add
        if engine.shards:
            running = distributed.Distributed(*run, engine.shards, once=once)
            yield Job(running, progress, folder, distributed.TRIGGER)
        else:
            yield Job(Derive(*run), progress, folder, {"processingTime": "0 seconds"})
