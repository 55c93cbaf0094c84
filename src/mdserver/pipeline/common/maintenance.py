"""The job `maintain`, and the compaction that a job does of the tables that it writes."""

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import datetime

from attrs import frozen
from pyspark.sql import SparkSession

from mdserver.pipeline.common import checkpoints, delta, retention, schema, session, tables
from mdserver.pipeline.common.places import Tables
from mdserver.pipeline.common.requirements import PipelineError

COMPACT_EVERY_S = 3600.0
LOOK_AGAIN_S = 60.0
"""When a table that is due is looked at again, if another process joins files."""
COMPACTION = "maintain"
"""The lock of a process that joins files: two at a time would join the same ones."""
ROLLUP = "rollup"
"""The lock of a process that rolls up."""
ROLLED_UP = ("stats_minute", "stats_hour", "stats_day", "stats_month")


class TableCompaction:
    """Compaction of the tables that a job writes, each once in `COMPACT_EVERY_S` seconds.

    The times are noted in the folder, since a job may be started again more often. `now` is the
    clock (s).
    """

    def __init__(
        self, spark: SparkSession, tables: Tables, now: Callable[[], float] = time.time
    ) -> None:
        self._spark = spark
        self._tables = tables
        self._now = now
        self._compacted = checkpoints.compacted(tables)
        self._busy: dict[str, float] = {}
        """The times (s) at which tables were due while another process joined files."""

    def when_due(self, name: str) -> None:
        """Compact a table if its last compaction, or the first call for it, was an hour ago.

        The first call is that of any process. If another process, or thread, joins files, nothing
        is done or noted, and the table is due again in a minute.
        """
        now = self._now()
        if _is_within(now, self._compacted.get(name), COMPACT_EVERY_S):
            return
        if _is_within(now, self._busy.get(name), LOOK_AGAIN_S):
            return
        try:
            with checkpoints.alone(self._tables, COMPACTION) as held:
                self._compact(name, now, held)
        except checkpoints.BusyError:
            self._busy[name] = now

    def _compact(self, name: str, now: float, held: Callable[[], None]) -> None:
        """Compact a table unless another process did so since this one looked."""
        self._compacted = checkpoints.compacted(self._tables)
        before = self._compacted.get(name)
        if _is_within(now, before, COMPACT_EVERY_S):
            return
        self._compacted[name] = now
        checkpoints.note_compacted(self._tables, name, now)
        if before is not None:
            delta.compact(self._spark, self._tables, name, held)


def _is_within(now: float, at: float | None, seconds: float) -> bool:
    """Return whether a time is less than so many seconds ago.

    A time in the future is of a clock that was set back since, and is not.
    """
    return at is not None and 0 <= now - at < seconds


@frozen
class Maintained:
    """The report of one table: how many files were joined, and how many it has now.

    `deleted` rows were older than the retention.
    """

    table: str
    joined: int
    files: int
    seconds: float
    deleted: int = 0


def run_maintain(
    spark: SparkSession,
    folder: Tables,
    tell: Callable[[Maintained], None],
    lines_before: datetime | None = None,
) -> None:
    """Compact all tables of the folder, one after the other; `tell` gets a report of each.

    Lines of `quarantine` that were set aside before `lines_before` are deleted. A table that a
    rollup is writing is left as it is. Raises PipelineError if the folder has no tables, BusyError
    if another process joins files.
    """
    session.check_place(folder)
    found = [name for name in schema.TABLES if tables.exists(folder, name)]
    if not found:
        raise PipelineError(f"{folder} has no tables: run `mdserver pipeline archive` first")
    with checkpoints.alone(folder, COMPACTION) as held:
        for name in found:
            began = time.monotonic()
            joined = deleted = 0
            if name == retention.QUARANTINE and lines_before is not None:
                deleted = retention.delete_lines(folder, lines_before, held)
            with contextlib.suppress(checkpoints.BusyError), _writers_away(folder, name):
                joined = delta.compact(spark, folder, name, held)
                checkpoints.note_compacted(folder, name, time.time())
            files = len(tables.opened(folder, name).file_uris())
            tell(Maintained(name, joined, files, time.monotonic() - began, deleted))


@contextlib.contextmanager
def _writers_away(folder: Tables, name: str) -> Iterator[None]:
    """Keep out a job that replaces files of the table, until the end of the block.

    A job that only adds files does no harm; of two that replace the same files one would fail.
    Raises BusyError if such a job is at work.
    """
    if name in ROLLED_UP:
        with checkpoints.alone(folder, ROLLUP):
            yield
    else:
        yield
