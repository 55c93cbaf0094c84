"""The job `maintain`, and what a job that writes tables does of it now and then."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from attrs import frozen
from pyspark.sql import SparkSession

from mdserver.pipeline.common import checkpoints, delta, schema, tables
from mdserver.pipeline.common.requirements import PipelineError

COMPACT_EVERY_S = 3600.0
COMPACTION = "maintain"
"""The lock of whoever joins files: two at a time would join the same ones."""
ROLLUP = "rollup"
"""The lock of a process that rolls up."""
ROLLED_UP = ("stats_minute", "stats_hour", "stats_day", "stats_month")


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


@frozen
class Maintained:
    """What became of a table: how many files were joined, and how many it has now."""

    table: str
    joined: int
    files: int
    seconds: float


def run_maintain(spark: SparkSession, folder: Path, tell: Callable[[Maintained], None]) -> None:
    """Compact all tables of the folder, one after the other; PipelineError if another run does."""
    found = [name for name in schema.TABLES if tables.exists(folder, name)]
    if not found:
        raise PipelineError(f"{folder} has no tables: run `mdserver pipeline archive` first")
    with checkpoints.alone(folder, COMPACTION):
        for name in found:
            began = time.monotonic()
            joined = 0
            with contextlib.suppress(checkpoints.BusyError), _writers_away(folder, name):
                joined = delta.compact(spark, folder, name)
            files = len(tables.opened(folder, name).file_uris())
            tell(Maintained(name, joined, files, time.monotonic() - began))


@contextlib.contextmanager
def _writers_away(folder: Path, name: str) -> Iterator[None]:
    """Keep away a job that puts files of the table in place of others: one of both would fail.

    Raises BusyError if it is at work.
    """
    if name in ROLLED_UP:
        with checkpoints.alone(folder, ROLLUP):
            yield
    else:
        yield
