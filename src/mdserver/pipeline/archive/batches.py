"""Commitment of a batch of raw lines to its tables, for the archives of journals and of Kafka.

A batch has a number, and each table takes it in one transaction that carries the number. The good
rows go to the table of the stream and the lines that cannot be used to `quarantine`. Two tables
cannot be changed in one commit, so the order makes both happen once: `quarantine` first, then the
table of the stream. A batch that is in the table of the stream is therefore finished, and one that
is only in `quarantine` is repeated, which changes nothing there.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence

from attrs import evolve, field, frozen
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from mdserver.pipeline.archive.one_row import one_row_each
from mdserver.pipeline.archive.repeats import WrittenRanges
from mdserver.pipeline.common import delta, rows, schema
from mdserver.pipeline.common.checkpoints import TopicPart
from mdserver.pipeline.common.delta import TableBatch
from mdserver.pipeline.common.maintenance import TableCompaction
from mdserver.pipeline.common.numbered import Missing
from mdserver.pipeline.common.places import Tables


@frozen
class Archived:
    """The report of one batch of one stream.

    `rows` is None for a batch that was there already; `bad` is how many lines were set aside.
    """

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
class ArchiveRun:
    """One run of an archive of either source: its tables, and the function that gets the reports.

    `new_source` says that the source is archived from its beginning, although the tables had
    another one.
    """

    spark: SparkSession
    tables: Tables
    report: Report
    new_source: bool = False
    held: Callable[[], None] = delta.nothing
    """Raises PipelineError if another process may write to the tables."""
    _compaction: TableCompaction = field(init=False)

    @_compaction.default
    def _make_compaction(self) -> TableCompaction:
        return TableCompaction(self.spark, self.tables)

    def done(self, batch: Archived) -> None:
        """Report a batch that is in its tables, and compact those that are due."""
        self.report(batch)
        self._compaction.when_due(rows.STREAMS[batch.stream].table)
        self._compaction.when_due("quarantine")


@frozen
class Written:
    """The result of a batch.

    `rows` is None for a batch that was there already; `bad` lines were set aside; `newest` is the
    time of the newest row (us), None if there is none.
    """

    rows: int | None
    bad: int = 0
    newest: int | None = None
    parts: Mapping[TopicPart, int] = field(factory=dict)
    """How far the batch comes in topics that members share (us)."""

    def lag_s(self) -> float | None:
        """Return how old the newest row is now."""
        return None if self.newest is None else time.time() - self.newest / US_PER_S


def archive_batch(
    raw: DataFrame,
    batch: TableBatch,
    stream: rows.JournalStream,
    tables: Tables,
    *,
    shared: bool = False,
) -> Written:
    """Commit one batch of raw lines to its table, and those that cannot be used to `quarantine`.

    A message that the batch has twice, or the table already, is one row. With `shared` that is to
    be expected, since other sources have the same messages. Raises what `delta.commit` does:
    CommitFailedError, or the error of the batch's check.
    """
    number = f.lit(batch.number).cast("bigint")
    parsed = rows.parse(raw, stream)
    # Counting bad lines while good ones are written saves a second pass over most batches, which
    # have no bad ones.
    counted = Observation()
    bad_lines = f.count(f.when(f.col("reason").isNotNull(), 1)).alias("bad")
    times = f.when(f.col("reason").isNull(), f.col("row")[stream.times[-1]])
    observed = parsed.observe(counted, bad_lines, f.max(times).alias("newest"))
    good = rows.split(observed, stream).good
    good = good.withColumn("batch_id", number)
    if "source" in schema.TABLES[stream.table].names:
        good = good.withColumn("source", f.lit(batch.source).cast("bigint"))
    parts: Mapping[TopicPart, int] = {}
    with contextlib.ExitStack() as stack:
        if shared and stream is rows.MESSAGES:
            new = stack.enter_context(one_row_each(good, tables))
            good = new.rows
            reached = {delta.reached_by(node): us for node, us in new.reached.items()}
            batch, parts = evolve(batch, reached=reached), new.parts
        if stream.table in schema.SORT:
            good = good.sortWithinPartitions(*schema.SORT[stream.table])
        ranges = WrittenRanges()
        look = ranges.add if stream is rows.MESSAGES and not shared else None
        staged = delta.stage(tables, stream.table, batch, good.drop("src_topic"), look)
    if staged is not None and look is not None and ranges.may_repeat(tables):
        with one_row_each(good, tables) as new:
            good = new.rows.sortWithinPartitions(*schema.SORT[stream.table])
            staged = delta.stage(tables, stream.table, batch, good)
    if staged is None:
        return Written(None)
    # Staged files are in no version of the table. The stream's commit is the last, since a batch
    # that it has is skipped as a whole.
    bad = counted.get["bad"] or 0
    if bad:
        aside = rows.split(parsed, stream).bad.withColumn("batch_id", number)
        delta.commit_batch(tables, "quarantine", batch, aside)
    delta.commit(staged, batch)
    return Written(staged.rows, bad, counted.get["newest"], parts)
