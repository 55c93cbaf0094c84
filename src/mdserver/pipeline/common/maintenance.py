"""The job `maintain`, and the compaction that a job does of the tables that it writes."""

import contextlib
import time
from collections.abc import Callable, Iterator

from attrs import frozen
from pyspark.sql import SparkSession

from mdserver.pipeline.common import checkpoints, delta, schema, tables
from mdserver.pipeline.common.places import Tables
from mdserver.pipeline.common.requirements import PipelineError

COMPACT_EVERY_S = 3600.0
COMPACTION = "maintain"
"""The lock of a process that joins files: two at a time would join the same ones."""
ROLLUP = "rollup"
"""The lock of a process that rolls up."""
ROLLED_UP = ("stats_minute", "stats_hour", "stats_day", "stats_month")


class TableCompaction:
    """Compaction of the tables that a job writes, each once in `COMPACT_EVERY_S` seconds."""

    def __init__(self, spark: SparkSession, tables: Tables) -> None:
        self._spark = spark
        self._tables = tables
        self._compacted: dict[str, float] = {}

    def when_due(self, name: str) -> None:
        """Compact a table if its last compaction, or the first call for it, was an hour ago.

        Does nothing if another process joins files.
        """
        now = time.monotonic()
        if now - self._compacted.setdefault(name, now) >= COMPACT_EVERY_S:
            self._compacted[name] = now
            with (
                contextlib.suppress(checkpoints.BusyError),
                checkpoints.alone(self._tables, COMPACTION) as held,
            ):
                delta.compact(self._spark, self._tables, name, held)


@frozen
class Maintained:
    """The report of one table: how many files were joined, and how many it has now."""

    table: str
    joined: int
    files: int
    seconds: float


def run_maintain(spark: SparkSession, folder: Tables, tell: Callable[[Maintained], None]) -> None:
    """Compact all tables of the folder, one after the other; `tell` gets a report of each.

    Raises PipelineError if the folder has no tables, BusyError if another process joins files. A
    table that a rollup is writing is left as it is.
    """
    found = [name for name in schema.TABLES if tables.exists(folder, name)]
    if not found:
        raise PipelineError(f"{folder} has no tables: run `mdserver pipeline archive` first")
    with checkpoints.alone(folder, COMPACTION) as held:
        for name in found:
            began = time.monotonic()
            joined = 0
            with contextlib.suppress(checkpoints.BusyError), _writers_away(folder, name):
                joined = delta.compact(spark, folder, name, held)
            files = len(tables.opened(folder, name).file_uris())
            tell(Maintained(name, joined, files, time.monotonic() - began))


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
