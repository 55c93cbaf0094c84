"""A batch of raw lines into its tables: what the archives of journals and of Kafka share."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import field, frozen
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from mdserver.pipeline.common import delta, rows, schema
from mdserver.pipeline.common.delta import Batch
from mdserver.pipeline.common.maintenance import Compaction
from mdserver.pipeline.common.numbered import Missing


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
    lag_s: float | None = None
    """How old the newest row was when the batch was in its table; None if it had none."""


US_PER_S = 1_000_000
Report = Callable[[Archived], None]


@frozen
class Run:
    """One run of an archive, whatever its source: where its batches go, and who is told of them.

    `new_source` says that the source is begun anew, although the tables had another one.
    """

    spark: SparkSession
    tables: Path
    report: Report
    new_source: bool = False
    _compaction: Compaction = field(init=False)

    @_compaction.default
    def _make_compaction(self) -> Compaction:
        return Compaction(self.spark, self.tables)

    def done(self, batch: Archived) -> None:
        """Report a batch that is in its tables, and compact those that are due."""
        self.report(batch)
        self._compaction.when_due(rows.STREAMS[batch.stream].table)
        self._compaction.when_due("quarantine")


@frozen
class Written:
    """What became of a batch's lines.

    `rows` is None for a batch that was there already; `bad` lines were set aside; `newest` is the
    time of the newest row (us), None if there is none.
    """

    rows: int | None
    bad: int = 0
    newest: int | None = None

    def lag_s(self) -> float | None:
        """Return how old the newest row is now."""
        return None if self.newest is None else time.time() - self.newest / US_PER_S


def archive_batch(raw: DataFrame, batch: Batch, stream: rows.Stream, tables: Path) -> Written:
    """Put one batch of raw lines into its table, and what cannot be used into `quarantine`.

    Each table takes the batch in a transaction of its own, the stream's table last: what is in it
    is done with.
    """
    number = f.lit(batch.number).cast("bigint")
    parsed = rows.parse(raw, stream)
    # Counting on the way saves a second pass over the lines of batches that are all good.
    counted = Observation()
    bad_lines = f.count(f.when(f.col("reason").isNotNull(), 1)).alias("bad")
    times = f.when(f.col("reason").isNull(), f.col("row")[stream.times[-1]])
    observed = parsed.observe(counted, bad_lines, f.max(times).alias("newest"))
    good = rows.split(observed, stream).good
    good = good.withColumn("batch_id", number)
    if "source" in schema.TABLES[stream.table].names:
        good = good.withColumn("source", f.lit(batch.source).cast("bigint"))
    if stream.table in schema.SORT:
        good = good.sortWithinPartitions(*schema.SORT[stream.table])
    staged = delta.stage(tables, stream.table, batch, good)
    if staged is None:
        return Written(None)
    bad = counted.get["bad"] or 0
    if bad:
        aside = rows.split(parsed, stream).bad.withColumn("batch_id", number)
        delta.commit_batch(tables, "quarantine", batch, aside)
    delta.commit(staged, batch)
    return Written(staged.rows, bad, counted.get["newest"])
