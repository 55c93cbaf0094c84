"""The job `archive`: every line of the journal's streams into Delta tables, exactly once."""

import time
from collections.abc import Callable
from pathlib import Path

from attrs import frozen
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from mdserver.pipeline import checkpoints, delta, rows, schema
from mdserver.pipeline.checkpoints import Checkpoint
from mdserver.pipeline.delta import Batch
from mdserver.pipeline.failures import reason_of
from mdserver.pipeline.requirements import PipelineError
from mdserver.pipeline.sources import Source

COMPACT_EVERY_S = 3600.0


@frozen
class Archived:
    """What one batch of one stream brought; `rows` is None for a batch that was there already."""

    stream: str
    batch_id: int
    rows: int | None
    bad: int
    seconds: float


Report = Callable[[Archived], None]


class Archive:
    """One streaming query a stream, all into the tables of one folder."""

    def __init__(
        self,
        spark: SparkSession,
        source: Source,
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
        self._compacted: dict[str, float] = {}
        self._read: dict[str, int] = {}

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
            checkpoint.check_last(self._tables, self._source.last(checkpoint.stream))
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
                self._archive(raw, Batch(checkpoint.job, batch_id, check), stream, checkpoint)
            except Exception as error:
                # Spark cannot cope with a long text, such as a stack of Java's within Python's.
                reason = self.failures[f"archive-{stream.name}"] = reason_of(error)
                raise PipelineError(reason) from None

        return sink

    def _archive(
        self, raw: DataFrame, batch: Batch, stream: rows.Stream, checkpoint: Checkpoint
    ) -> None:
        began = time.monotonic()
        # Spark asks for no file of an earlier batch again once it begins another one.
        self._source.done(stream.name, self._read.get(stream.name, 0), checkpoint.source)
        written, bad, last = archive_batch(raw, batch, stream, self._tables)
        self._read[stream.name] = last
        if last:
            checkpoint.note(self._tables, last)
        self._report(Archived(stream.name, batch.number, written, bad, time.monotonic() - began))
        self._compact_when_due(stream.table)

    def _compact_when_due(self, name: str) -> None:
        now = time.monotonic()
        if now - self._compacted.setdefault(name, now) >= COMPACT_EVERY_S:
            self._compacted[name] = now
            delta.compact(self._spark, self._tables, name)


def archive_batch(
    raw: DataFrame, batch: Batch, stream: rows.Stream, tables: Path
) -> tuple[int | None, int, int]:
    """Put one batch of raw lines into its table, and what cannot be used into `quarantine`.

    Each table takes the batch in a transaction of its own; after a crash between the two the
    first is skipped and the second made up for. Returns the rows committed, those set aside, and
    the last partition of the source that was read, 0 where that is not known.
    """
    parsed = rows.parse(raw, stream)
    # Counting on the way saves a second pass over the lines of batches that are all good.
    counted = Observation()
    bad_lines = f.count(f.when(f.col("reason").isNotNull(), 1)).alias("bad")
    last = f.max("src_partition").alias("last")
    good = rows.split(parsed.observe(counted, bad_lines, last), stream).good
    good = good.withColumn("batch_id", f.lit(batch.number).cast("bigint"))
    if stream.table in schema.SORT:
        good = good.sortWithinPartitions(*schema.SORT[stream.table])
    written = delta.commit_batch(tables, stream.table, batch, good)
    read = 0 if written is None else counted.get["last"] or 0
    if written is not None and not counted.get["bad"]:
        return written, 0, read
    bad = rows.split(parsed, stream).bad.withColumn("batch_id", f.lit(batch.number).cast("bigint"))
    return written, delta.commit_batch(tables, "quarantine", batch, bad) or 0, read
