"""The job `rollup`: new samples are added to the summaries of all levels, each exactly once.

New samples become partial summaries of their minutes, those become partial summaries of hours, and
so on. A level's table takes its partial summaries, merged with its rows of the same periods, in one
commit that carries the coverage of the table from then on (`coverage`).

Each level has a coverage of its own, and is brought from there to the end of the samples. So a run
may be killed between any two levels: the next run adds to each level what that one lacks. A level
needs neither samples that it covers nor the rows of another level, so both may be deleted.

A table of an earlier release has no coverage. Its minutes are then summarised from all samples that
are left, and each level above from the one below. They replace the rows of their periods, and rows
of other periods stay as they are.
"""

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence

from attrs import frozen
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from mdserver.pipeline.common import checkpoints, delta, parquet, places, session, tables
from mdserver.pipeline.common.maintenance import COMPACTION, ROLLUP
from mdserver.pipeline.common.places import Tables
from mdserver.pipeline.common.rewrite import TableFile, files_of, rewrite
from mdserver.pipeline.rollup import coverage, summaries
from mdserver.pipeline.rollup.coverage import Coverage
from mdserver.pipeline.rollup.summaries import KEY, LEVELS, MINUTE, Level

SAMPLES = "stats"
DAY = dt.timedelta(days=1)
FILE_ROWS_MAX = 1_000_000
"""More summaries than this are written by several tasks, each with a part of the periods."""


@frozen
class RolledUp:
    """The counts of a run.

    `samples`: new samples. `summaries`: those that were added or changed, by table. `deleted`:
    samples that were deleted. `lag_s`: how old the newest of the new samples was when all summaries
    had it, None without new samples.
    """

    samples: int
    summaries: Mapping[str, int]
    deleted: int
    lag_s: float | None = None


def run_rollup(
    spark: SparkSession, folder: Tables, delete_before: dt.datetime | None = None
) -> RolledUp:
    """Add new samples to the summaries of all levels, then delete old ones.

    Deleted are samples of the days before the one of `delete_before`, if all levels cover them;
    none if it is None. Raises BusyError if another process has the job.
    """
    session.check_place(folder)
    with checkpoints.alone(folder, ROLLUP) as held, places.at_hand(folder) as near:
        run = Rollup(spark, near, held)
        try:
            changed = {
                level.table: run.advance(level, below)
                for below, level in zip([None, *LEVELS], LEVELS, strict=False)
            }
        finally:
            run.close()
        lag_s = None if run.newest is None else time.time() - run.newest.timestamp()
        deleted = 0 if delete_before is None else run.delete(delete_before)
    return RolledUp(run.samples, changed, deleted, lag_s)


class Rollup:
    """One run over the samples that the table has when the run begins.

    Samples that are archived meanwhile are left to the next run, so that all levels end at the same
    batch. `samples` is how many of them were new for the minutes, `newest` the time of the newest
    one.
    """

    def __init__(
        self, spark: SparkSession, folder: Tables, held: Callable[[], None] = delta.nothing
    ) -> None:
        self.samples = 0
        self.newest: dt.datetime | None = None
        self._spark = spark
        self._folder = folder
        self._held = held
        self._files = files_of(tables.opened(folder, SAMPLES))
        found = {source for file in self._files for source in coverage.sources_of(file)}
        # Sources are counted from 1 on. Those whose samples are all deleted are among the coverage
        # of the tables as well: without them, a table would seem to cover nothing.
        self._sources = set(range(max(found, default=coverage.UNNAMED) + 1))
        self._persisted: list[DataFrame] = []
        self._minutes: dict[frozenset[tuple[int, int]], DataFrame] = {}
        self._end: dict[int, int] = self._reached()

    def advance(self, level: Level, below: Level | None) -> int:
        """Bring a level's table to the end of the samples; return how many summaries changed.

        `below` is the level below, None for the lowest.
        """
        target = delta.table(self._folder, level.table)
        covered = coverage.of_table(target, self._sources)
        if all(covered.get(source, -1) >= batch for source, batch in self._end.items()):
            return 0
        # Without coverage the table is new or of an earlier release: the level below, which is
        # complete by now, also has summaries of samples that are deleted.
        if not covered and below is not None:
            incoming = summaries.merge(tables.frame(self._spark, self._folder, below.table), level)
        else:
            incoming = self._partial(covered, level)
        incoming = self._persist(incoming)
        count, samples, newest, days = _measured(incoming)
        if level is MINUTE:
            self.samples, self.newest = samples, newest
        replaced = _of_days(files_of(target), days)
        rows = incoming
        if replaced:
            present = self._read(level.table, replaced)
            # With coverage the new summaries are of other samples than the present ones, and both
            # are merged. Without, they are of the same samples, and replace them.
            if covered:
                rows = summaries.merge(present.unionByName(incoming), level)
            else:
                periods = incoming.select("period", *KEY)
                rows = present.join(periods, ["period", *KEY], "left_anti").unionByName(incoming)
        # Neighbouring periods are in the same file, so that the next run, whose samples are mostly
        # of the latest periods, replaces few files.
        rows = rows.coalesce(1) if count < FILE_ROWS_MAX else rows.repartitionByRange("period")
        rows = rows.sortWithinPartitions("period", *KEY)
        table = self._folder, level.table
        rewrite(target, table, rows, replaced, coverage.transactions(self._end), self._held)
        return count

    def delete(self, before: dt.datetime) -> int:
        """Delete covered samples of the days before the one of `before`; return how many.

        A file that has some of them is written anew without them, so whole days are deleted, and
        the files are written anew once a day. While another process joins files nothing is deleted;
        the next run does it.
        """
        moment = before.replace(hour=0, minute=0, second=0, microsecond=0)
        try:
            with checkpoints.alone(self._folder, COMPACTION) as held:
                return self._delete(moment, held)
        except checkpoints.BusyError:
            return 0

    def close(self) -> None:
        """Release the frames that were kept in memory for several levels."""
        for each in self._persisted:
            each.unpersist()

    def _delete(self, moment: dt.datetime, held: Callable[[], None]) -> int:
        """Delete covered samples from before a moment; return how many."""
        target = delta.table(self._folder, SAMPLES)
        old = [
            file
            for file in files_of(target)
            if file.may_have("ts", dt.datetime.min.replace(tzinfo=dt.UTC), moment)
        ]
        if not old:
            return 0
        rows = self._read(SAMPLES, old)
        gone = (f.col("ts") < f.lit(moment)) & ~coverage.is_new(self._end)
        count = rows.where(gone).count()
        if count:
            rewrite(target, (self._folder, SAMPLES), rows.where(~gone), old, {}, held)
        return count

    def _reached(self) -> dict[int, int]:
        """Return the coverage of a table that has all samples of this run.

        Of samples that no file has any more, the levels say how far they reached. So only files
        with samples that may be new are read.
        """
        tables_of_levels = [delta.table(self._folder, level.table) for level in LEVELS]
        covered = [coverage.of_table(table, self._sources) for table in tables_of_levels]
        reached = {
            source: max(each.get(source, -1) for each in covered) for source in self._sources
        }
        files = [
            file for file in self._files if any(coverage.may_be_new(file, each) for each in covered)
        ]
        if files:
            source = f.coalesce("source", f.lit(coverage.UNNAMED)).alias("source")
            last = self._read(SAMPLES, files).groupBy(source).agg(f.max("batch_id").alias("batch"))
            for row in last.collect():
                reached[row["source"]] = max(reached.get(row["source"], -1), row["batch"])
        return {source: batch for source, batch in reached.items() if batch >= 0}

    def _partial(self, covered: Coverage, level: Level) -> DataFrame:
        """Return summaries of only those samples that a table does not cover yet.

        Levels with the same coverage, usually all, share the summaries of minutes.
        """
        key = frozenset(covered.items())
        if key not in self._minutes:
            files = [file for file in self._files if coverage.may_be_new(file, covered)]
            new = self._read(SAMPLES, files).where(coverage.is_new(covered))
            self._minutes[key] = self._persist(summaries.summarise(new))
        partial = self._minutes[key]
        for each in LEVELS[1 : LEVELS.index(level) + 1]:
            partial = summaries.merge(partial, each)
        return partial

    def _persist(self, rows: DataFrame) -> DataFrame:
        """Keep a frame in memory until `close`, since it is used more than once."""
        self._persisted.append(rows.persist())
        return self._persisted[-1]

    def _read(self, name: str, files: Sequence[TableFile]) -> DataFrame:
        paths = places.paths(self._folder, name, [file.path for file in files])
        return parquet.read(self._spark, name, paths)


def _measured(summarised: DataFrame) -> tuple[int, int, dt.datetime | None, list[dt.datetime]]:
    """Return the number of summaries, of their samples, the newest sample's time, and their days.

    The days are those with periods. There are no more of them than the archive has samples of, so
    they fit in the driver.
    """
    (row,) = summarised.agg(
        f.count("*").alias("count"),
        f.sum("n").alias("samples"),
        f.unix_micros(f.max("last_ts")).alias("newest"),
        f.collect_set(f.unix_seconds(f.date_trunc("day", "period"))).alias("days"),
    ).collect()
    days = [dt.datetime.fromtimestamp(day, dt.UTC) for day in sorted(row["days"])]
    newest = row["newest"]
    moment = None if newest is None else dt.datetime.fromtimestamp(newest / 1e6, dt.UTC)
    return row["count"], row["samples"] or 0, moment, days


def _of_days(files: Sequence[TableFile], days: Sequence[dt.datetime]) -> list[TableFile]:
    """Return the files that may have periods which begin on one of the days."""
    return [file for file in files if any(file.may_have("period", day, day + DAY) for day in days)]
