"""A batch of raw lines into its tables: what the archives of journals and of Kafka share."""

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
    if "source" in schema.TABLES[stream.table].names:
        good = good.withColumn("source", f.lit(batch.source).cast("bigint"))
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
