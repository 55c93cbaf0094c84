"""The job `archive`: every line of a source's streams into Delta tables, exactly once.

What is common to all sources, and the queries that read Kafka; `journal_archive` reads journals.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import frozen
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from mdserver.pipeline import checkpoints, delta, rows, schema
from mdserver.pipeline.checkpoints import Checkpoint
from mdserver.pipeline.delta import Batch
from mdserver.pipeline.failures import reason_of
from mdserver.pipeline.numbered import Missing
from mdserver.pipeline.requirements import PipelineError
from mdserver.pipeline.sources import KafkaSource

COMPACT_EVERY_S = 3600.0
COMPACTION = "maintain"
"""The lock of whoever joins files: two at a time would join the same ones."""


@frozen
class Archived:
    """What one batch of one stream brought; `rows` is None for a batch that was there already."""

    stream: str
    batch_id: int
    rows: int | None
    bad: int
    seconds: float
    missing: Sequence[Missing] = ()
    """Segments of a journal that were deleted before they were archived."""


Report = Callable[[Archived], None]


class Compaction:
    """Joins the files of tables that a job writes, now and then."""

    def __init__(self, spark: SparkSession, tables: Path) -> None:
        self._spark = spark
        self._tables = tables
        self._compacted: dict[str, float] = {}

    def when_due(self, name: str) -> None:
        """Compact a table if that was not done for an hour, or since the job began."""
        now = time.monotonic()
        if now - self._compacted.setdefault(name, now) >= COMPACT_EVERY_S:
            self._compacted[name] = now
            with (
                contextlib.suppress(checkpoints.BusyError),
                checkpoints.alone(self._tables, COMPACTION),
            ):
                delta.compact(self._spark, self._tables, name)


class Archive:
    """One streaming query a stream of Kafka's, all into the tables of one folder."""

    def __init__(
        self,
        spark: SparkSession,
        source: KafkaSource,
        tables: Path,
        report: Report,
        *,
        new_source: bool = False,
    ) -> None:
        self._spark = spark
        self._source = source
        self._tables = tables
        self._report = report
        self._new_source = new_source
        self.failures: dict[str, str] = {}
        """Why queries ended, by their names."""
        self._compaction = Compaction(spark, tables)

    def start(self, *, once: bool, trigger_s: float = 1.0) -> list[StreamingQuery]:
        """Start the queries; with `once` each ends when it has caught up with its source."""
        streams = [name for name in rows.STREAMS if self._source.has(name)]
        for table in (*(rows.STREAMS[name].table for name in streams), "quarantine"):
            delta.table(self._tables, table)
        opened = [
            checkpoints.opened(
                self._tables,
                name,
                self._source.identity(self._spark, name),
                new=self._new_source,
            )
            for name in streams
        ]
        for checkpoint in opened:
            target = delta.table(self._tables, rows.STREAMS[checkpoint.stream].table)
            if target.transaction_version(checkpoint.job) is not None:
                checkpoint.check_spark(self._tables)
        return [self._query(checkpoint, once, trigger_s) for checkpoint in opened]

    def _query(self, checkpoint: Checkpoint, once: bool, trigger_s: float) -> StreamingQuery:
        writer = (
            self._source.stream(self._spark, checkpoint.stream)
            .writeStream.queryName(f"archive-{checkpoint.stream}")
            .option("checkpointLocation", str(checkpoint.folder(self._tables)))
            .foreachBatch(self._sink(checkpoint))
        )
        if once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{trigger_s} seconds")
        return writer.start()

    def _sink(self, checkpoint: Checkpoint) -> Callable[[DataFrame, int], None]:
        stream = rows.STREAMS[checkpoint.stream]

        def check() -> None:
            checkpoint.check(self._source.identity(self._spark, stream.name))

        def sink(raw: DataFrame, batch_id: int) -> None:
            try:
                self._archive(raw, Batch(checkpoint.job, batch_id, check), stream)
            except Exception as error:
                # Spark cannot cope with a long text, such as a stack of Java's within Python's.
                reason = self.failures[f"archive-{stream.name}"] = reason_of(error)
                raise PipelineError(reason) from None

        return sink

    def _archive(self, raw: DataFrame, batch: Batch, stream: rows.Stream) -> None:
        began = time.monotonic()
        written, bad = archive_batch(raw, batch, stream, self._tables)
        self._report(Archived(stream.name, batch.number, written, bad, time.monotonic() - began))
        self._compaction.when_due(stream.table)
        self._compaction.when_due("quarantine")


def archive_batch(
    raw: DataFrame, batch: Batch, stream: rows.Stream, tables: Path
) -> tuple[int | None, int]:
    """Put one batch of raw lines into its table, and what cannot be used into `quarantine`.

    Each table takes the batch in a transaction of its own, the stream's table last: what is in it
    is done with. Returns the rows committed, None for a batch that was there already, and how many
    lines were set aside.
    """
    number = f.lit(batch.number).cast("bigint")
    parsed = rows.parse(raw, stream)
    # Counting on the way saves a second pass over the lines of batches that are all good.
    counted = Observation()
    bad_lines = f.count(f.when(f.col("reason").isNotNull(), 1)).alias("bad")
    good = rows.split(parsed.observe(counted, bad_lines), stream).good
    good = good.withColumn("batch_id", number)
    if stream.table in schema.SORT:
        good = good.sortWithinPartitions(*schema.SORT[stream.table])
    staged = delta.stage(tables, stream.table, batch, good)
    if staged is None:
        return None, 0
    bad = counted.get["bad"] or 0
    if bad:
        aside = rows.split(parsed, stream).bad.withColumn("batch_id", number)
        delta.commit_batch(tables, "quarantine", batch, aside)
    delta.commit(staged, batch)
    return staged.rows, bad
