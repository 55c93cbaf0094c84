"""The driver gets no more rows of a batch job than a page shows, however many rows there are."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql.classic.dataframe import DataFrame

from mdserver.core.message import Publication
from mdserver.journal.rows import ROW_VERSION, StatRow
from mdserver.pipeline.archive import job as archive_job
from mdserver.pipeline.audit import job as audit_job
from mdserver.pipeline.common import maintenance
from mdserver.pipeline.common.html_page import ROWS_MAX
from mdserver.pipeline.common.sources import JournalSource
from mdserver.pipeline.rollup import job as rollup_job
from tests.receipts import receipt_row

from .conftest import BASE, message_lines, write_lines

pytestmark = [pytest.mark.pipeline, pytest.mark.soak]

COUNT = 3 * ROWS_MAX
ALL_ROWS = ("collect", "toPandas", "toLocalIterator", "toArrow")


def test_no_job_collects_what_grows(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More messages, samples, repeated rows and findings than a page has rows."""
    got: list[int] = []
    for name in ALL_ROWS:
        real = getattr(DataFrame, name)

        def counted(self: Any, *given: Any, real: Any = real, **more: Any) -> Any:
            found = list(real(self, *given, **more))
            got.append(len(found))
            return found

        monkeypatch.setattr(DataFrame, name, counted)
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    lines = message_lines([Publication(f"/a/{n}", b"1") for n in range(COUNT)])
    write_lines(journal / "messages", lines)
    write_lines(journal / "messages", lines)
    began = BASE // 1_000
    receipts = [
        receipt_row(f"/a/{n}", [1, 1], opened_ts=began, closed_ts=began) for n in range(COUNT)
    ]
    write_lines(journal / "receipts", [msgspec.json.encode(row) for row in receipts])
    samples = [
        StatRow(v=ROW_VERSION, ts=began, node="n", indicator=f"i{n}", value=n) for n in range(COUNT)
    ]
    write_lines(journal / "stats", [msgspec.json.encode(row) for row in samples])
    archive_job.run_archive(spark, JournalSource(journal), tables, lambda _: None, once=True)
    assert rollup_job.run_rollup(spark, tables).samples == COUNT
    found = audit_job.run_audit(spark, tables, tmp_path / "page.html")
    assert (found.receipts, found.bad) == (COUNT, COUNT)
    maintenance.run_maintain(spark, tables, lambda _: None)
    assert got
    assert max(got) <= ROWS_MAX
