"""The jobs as the command line starts them: Spark around the pure parts."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from attrs import frozen
from deltalake import write_deltalake
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from mdserver.pipeline import (
    audit,
    capacity,
    capacity_report,
    checkpoints,
    delta,
    report,
    rollup,
    schema,
    tables,
)
from mdserver.pipeline.archive import COMPACTION, Archive, Archived
from mdserver.pipeline.failures import reason_of
from mdserver.pipeline.journal_archive import JournalArchive
from mdserver.pipeline.requirements import PipelineError
from mdserver.pipeline.sources import JournalSource, Source

POLL_S = 1.0


@frozen
class AuditResult:
    """How many receipts an audit judged, how many are not whole, and gaps between them.

    `unarchived`: acknowledged publications that the archive lacks. `claims`: receipts and gaps of
    the same kinds which no member confirms, so that they prove nothing.
    """

    receipts: int
    bad: int
    gaps: int
    unarchived: int
    claims: int

    @property
    def whole(self) -> bool:
        """Whether nothing is missing."""
        return not (self.bad or self.gaps or self.unarchived)


def run_archive(
    spark: SparkSession,
    source: Source,
    folder: Path,
    tell: Callable[[Archived], None],
    *,
    once: bool,
    new_source: bool = False,
) -> None:
    """Archive until caught up, or for ever; raises PipelineError where a query ended badly.

    With `new_source` it begins at the source's beginning, whatever was archived before.
    """
    with checkpoints.alone(folder, "archive"):
        if isinstance(source, JournalSource):
            JournalArchive(spark, source, folder, tell, new_source=new_source).run(once=once)
            return
        archive = Archive(spark, source, folder, tell, new_source=new_source)
        queries = archive.start(once=once)
        if not queries:
            raise PipelineError(
                "there is nothing to archive: the source has none of the known streams"
            )
        try:
            while any(query.isActive for query in queries):
                _check(queries, archive.failures)
                time.sleep(POLL_S)  # Spark's own wait cannot be interrupted by Ctrl-C
            _check(queries, archive.failures)
        finally:
            for query in queries:
                query.stop()


def _check(queries: Sequence[StreamingQuery], failures: Mapping[str, str]) -> None:
    """Raise PipelineError where a query has ended badly; the others are of no use without it."""
    for query in queries:
        if not query.isActive:
            failure = failures.get(query.name) or query.exception()
            if failure is not None:
                raise PipelineError(f"archiving {query.name} failed: {reason_of(failure)}")


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
            joined = delta.compact(spark, folder, name)
            files = len(tables.opened(folder, name).file_uris())
            tell(Maintained(name, joined, files, time.monotonic() - began))


def run_audit(spark: SparkSession, folder: Path, page: Path | None) -> AuditResult:
    """Judge all receipts of the archive; the verdicts become the table `audit_verdicts`."""
    messages = tables.frame(spark, folder, "messages")
    receipts = tables.frame(spark, folder, "receipts")
    found = audit.audit(messages, receipts)
    judged = found.receipts.localCheckpoint()
    gaps, gaps_claimed = _proved(found.gaps.toArrow().to_pylist())
    unarchived = _unarchived(spark, folder, messages)
    bad, claimed = _proved(judged.where(audit.is_bad()).toArrow().to_pylist())
    verdicts = judged.select(*schema.VERDICTS_TABLE.names).toArrow()
    replace(folder, "audit_verdicts", verdicts)
    if page is not None:
        text = report.page(
            counted(judged, "verdict", f.count("*")),
            counted(judged, "subscriber", f.sum("n")),
            bad,
            gaps,
            unarchived,
            report.Claims(claimed, gaps_claimed),
        )
        page.write_text(text, encoding="utf-8")
    claims = len(claimed) + len(gaps_claimed)
    return AuditResult(verdicts.num_rows, len(bad), len(gaps), len(unarchived), claims)


def _proved(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows that prove something, and those that are claims."""
    return [row for row in rows if row["verified"]], [row for row in rows if not row["verified"]]


def _unarchived(spark: SparkSession, folder: Path, messages: DataFrame) -> list[dict[str, Any]]:
    """Acknowledged publications without a message; none where no publish events were archived."""
    if not tables.exists(folder, "events_publish"):
        return []
    published = tables.frame(spark, folder, "events_publish")
    found: list[dict[str, Any]] = (
        audit.acked_not_archived(published, messages).toArrow().to_pylist()
    )
    return found


def counted(frame: DataFrame, name: str, number: Column) -> dict[str, int]:
    """A number for each value of a column, the largest first."""
    rows = frame.groupBy(name).agg(number.alias("number")).orderBy(f.desc("number"))
    return {str(row[name]): int(row["number"]) for row in rows.collect()}


def run_rollup(spark: SparkSession, folder: Path) -> dict[str, int]:
    """Summaries of all levels from the archived samples; how many rows each table has now.

    Every table is replaced as a whole: the same samples give the same summaries however often.
    """
    counts = {}
    summaries = rollup.summarise(tables.frame(spark, folder, "stats"))
    for level in rollup.LEVELS:
        if level is not rollup.MINUTE:
            summaries = rollup.merge(summaries, level)
        summaries = summaries.localCheckpoint()
        rows = summaries.toArrow()
        replace(folder, level.table, rows)
        counts[level.table] = rows.num_rows
    return counts


def run_capacity(
    spark: SparkSession,
    files: Sequence[Path],
    folder: Path | None,
    demand: capacity.Demand,
    page: Path | None,
) -> capacity.Plan:
    """Plan a cluster from the lines of benchmarks, and from those in the table `bench_runs`.

    With a folder of tables the lines are added to it, each once. PipelineError where the runs do
    not tell enough.
    """
    runs = spark.read.schema(schema.BENCH_ROW).json([str(file) for file in files])
    runs = runs.where("bench is not null")
    if folder is not None:
        delta.table(folder, "bench_runs")
        runs = runs.unionByName(tables.frame(spark, folder, "bench_runs")).distinct()
        runs = runs.localCheckpoint()
        replace(folder, "bench_runs", runs.toArrow())
    found = capacity.observations(runs).collect()
    measured = [capacity.Observation(**row.asDict()) for row in found]
    plan = capacity.plan(capacity.fit_all(measured), demand)
    if page is not None:
        page.write_text(capacity_report.page(plan, demand), encoding="utf-8")
    return plan


def replace(folder: Path, name: str, rows: pa.Table) -> None:
    """Put rows in place of a table's, in one transaction."""
    delta.table(folder, name)
    write_deltalake(
        folder / name, rows.cast(schema.TABLES[name]), mode="overwrite", schema_mode="overwrite"
    )
