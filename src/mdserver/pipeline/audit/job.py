"""The job `audit` around the verdicts: it reads tables, and writes findings and a report."""

from collections.abc import Callable
from pathlib import Path

from attrs import frozen
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from mdserver.pipeline.audit import findings, report, silent, verdicts
from mdserver.pipeline.audit.archived import ArchivedUntil
from mdserver.pipeline.common import checkpoints, delta, places, schema, session, tables
from mdserver.pipeline.common.html_page import ROWS_MAX
from mdserver.pipeline.common.places import Tables

MEMBERS = 1_000
"""More members than a cluster has."""


@frozen
class AuditResult:
    """The counts of an audit: the receipts that it judged, and its findings.

    `bad`: receipts that are not whole. `gaps`: between receipts. `silent`: subjects of which a
    session that gives receipts got nothing. `unarchived`: faults of the archive, acknowledged
    publications that it lacks and receipts of more than it has. `claims`: findings that no member
    confirms, which prove nothing. `unjudged`: what cannot be judged.
    """

    receipts: int
    bad: int
    gaps: int
    silent: int
    unarchived: int
    claims: int
    unjudged: int

    @property
    def whole(self) -> bool:
        """Whether no fault is confirmed by a member."""
        return not (self.bad or self.gaps or self.silent or self.unarchived)


def tell_nobody(_name: str, _rows: int) -> None:
    """Tell nobody how an audit gets on."""


def run_audit(
    spark: SparkSession,
    folder: Tables,
    page: Path | None,
    tell: Callable[[str, int], None] = tell_nobody,
) -> AuditResult:
    """Judge all receipts of the archive.

    Writes the tables `audit_verdicts` and `audit_findings`, and the report to `page` unless that is
    None. `tell` gets "receipts" and "findings" with their number, each when its table is written;
    at first "receipts" with 0. Raises PipelineError if the archive has no messages or no receipts.
    """
    session.check_place(folder)
    with places.at_hand(folder) as near:
        return _audited(spark, near, page, tell)


def _audited(
    spark: SparkSession, folder: Tables, page: Path | None, tell: Callable[[str, int], None]
) -> AuditResult:
    tell("receipts", 0)
    messages = tables.frame(spark, folder, "messages")
    receipts = tables.frame(spark, folder, "receipts")
    checked = verdicts.promised(messages)
    # Spark would compute them each time they are used. Memory is left to tasks, which sort in it.
    once = verdicts.each_once(receipts).persist(StorageLevel.DISK_ONLY)
    sums = verdicts.sums_at_ends(checked, once).persist(StorageLevel.DISK_ONLY)
    judged = verdicts.judge_ranges(checked, once, sums).persist(StorageLevel.DISK_ONLY)
    verdict = judged.select(*schema.TABLES["audit_verdicts"].names)
    tell("receipts", delta.replace_frame(folder, "audit_verdicts", verdict))
    sums.unpersist()
    candidates = verdicts.uncovered(checked, once).persist(StorageLevel.DISK_ONLY)
    persisted = [candidates, judged, once]
    parts = [
        findings.of_receipts(judged),
        findings.of_gaps(verdicts.find_gaps(checked, candidates)),
        findings.of_differing(verdicts.differing(checked)),
        findings.of_unknown_fields(verdicts.silent_of_fields(judged)),
    ]
    if tables.exists(folder, "events_access"):
        access = tables.frame(spark, folder, "events_access")
        parts.append(findings.of_silent(silent.find_silent(checked, once, access)))
    if tables.exists(folder, "events_publish"):
        published = tables.frame(spark, folder, "events_publish")
        until = _archived_until(folder, published)
        unarchived = verdicts.acked_not_archived(published, messages, until)
        persisted.append(unarchived.persist(StorageLevel.DISK_ONLY))
        parts.append(findings.of_unarchived(unarchived))
    if tables.exists(folder, "quarantine"):
        parts.append(findings.of_holes(tables.frame(spark, folder, "quarantine")))
    tell("findings", delta.replace_frame(folder, "audit_findings", findings.united(parts)))
    for kept in persisted:
        kept.unpersist()
    result, found = _result(spark, folder)
    if page is not None:
        _write_page(spark, folder, page, messages, result, found)
    return result


def _archived_until(folder: Tables, published: DataFrame) -> ArchivedUntil:
    """Return how far the journals of members are archived, if several were archived."""
    members = [row["node"] for row in published.select("node").distinct().limit(MEMBERS).collect()]
    messages = tables.opened(folder, "messages")
    found = {node: messages.transaction_version(delta.reached_by(node)) for node in members}
    return ArchivedUntil(
        {node: us for node, us in found.items() if us is not None},
        checkpoints.topics_reached(folder, "messages"),
        checkpoints.topics_changed(folder, "messages"),
    )


def _result(spark: SparkSession, folder: Tables) -> tuple[AuditResult, DataFrame]:
    """Return the counts and the findings, both from the tables that were written.

    Reading them back is cheaper than computing the findings again for each count.
    """
    found = tables.frame(spark, folder, "audit_findings")
    judged = tables.frame(spark, folder, "audit_verdicts")
    numbers = {
        (row["kind"], row["proof"]): row["count"]
        for row in found.groupBy("kind", "proof").count().collect()
    }

    def proved(*kinds: str) -> int:
        return sum(n for (kind, proof), n in numbers.items() if kind in kinds and proof == "member")

    faults = (*findings.DELIVERY, *findings.ARCHIVE)
    claims = sum(n for (kind, proof), n in numbers.items() if kind in faults and proof == "claim")
    result = AuditResult(
        receipts=judged.count(),
        bad=proved("loss", "repeated", "altered", "out_of_order"),
        gaps=proved("gap"),
        silent=proved("nothing_received"),
        unarchived=proved(*findings.ARCHIVE),
        claims=claims,
        unjudged=sum(n for (kind, _), n in numbers.items() if kind == findings.UNJUDGED),
    )
    return result, found


def _write_page(
    spark: SparkSession,
    folder: Tables,
    page: Path,
    messages: DataFrame,
    result: AuditResult,
    found: DataFrame,
) -> None:
    """Write the report: of each section only the rows that the page can show are collected."""
    judged = tables.frame(spark, folder, "audit_verdicts")
    (period,) = messages.agg(
        f.date_format(f.min("ts_server"), "yyyy-MM-dd HH:mm:ss").alias("first"),
        f.date_format(f.max("ts_server"), "yyyy-MM-dd HH:mm:ss").alias("last"),
        f.count("*").alias("messages"),
    ).collect()
    faults = f.col("kind").isin(*findings.DELIVERY, *findings.ARCHIVE)
    member = f.col("proof") == "member"
    sections = {
        "delivery": found.where(f.col("kind").isin(*findings.DELIVERY) & member),
        "archive": found.where(f.col("kind").isin(*findings.ARCHIVE) & member),
        "claims": found.where(faults & ~member),
        "unjudged": found.where(f.col("kind") == findings.UNJUDGED),
    }
    order = ["subscriber", "subject", "session", "seq_lo"]
    content = report.Content(
        whole=result.whole,
        period=(period["first"], period["last"]),
        messages=period["messages"],
        verdicts=_counted(judged, "verdict", f.count("*")),
        subscribers=_counted(judged, "subscriber", f.sum("n")),
        rows={
            name: [row.asDict() for row in frame.orderBy(*order).limit(ROWS_MAX).collect()]
            for name, frame in sections.items()
        },
        counts={
            "delivery": result.bad + result.gaps + result.silent,
            "archive": result.unarchived,
            "claims": result.claims,
            "unjudged": result.unjudged,
        },
    )
    page.write_text(report.page(content), encoding="utf-8")


def _counted(frame: DataFrame, name: str, number: Column) -> dict[str, int]:
    """Return a number for each value of a column, for the values with the greatest numbers."""
    rows = frame.groupBy(name).agg(number.alias("number")).orderBy(f.desc("number"), name)
    return {str(row[name]): int(row["number"]) for row in rows.limit(report.BARS_MAX).collect()}
