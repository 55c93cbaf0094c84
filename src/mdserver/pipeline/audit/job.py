"""The job `audit` around the verdicts: tables in, findings and a report out."""

from pathlib import Path
from typing import Any

from attrs import frozen
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from mdserver.pipeline.audit import report
from mdserver.pipeline.audit import verdicts as audit
from mdserver.pipeline.common import delta, schema, tables


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
    delta.replace(folder, "audit_verdicts", verdicts)
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
