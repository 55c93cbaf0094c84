"""Jobs on tables in an object store: what they read and write is the same as in a folder."""

import datetime as dt
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from mdserver.cli.main import mdserver
from mdserver.core.message import Publication
from mdserver.journal.rows import ROW_VERSION, StatRow
from mdserver.pipeline.archive import job as archive_job
from mdserver.pipeline.audit import job as audit_job
from mdserver.pipeline.common import leases, rewrite, session
from mdserver.pipeline.common.places import RemoteTables, Tables
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.sources import JournalSource
from mdserver.pipeline.replay.job import rows
from mdserver.pipeline.replay.windows import Selection
from mdserver.pipeline.rollup import job as rollup_job
from tests.receipts import receipt_row

from .conftest import BASE, write_lines, write_messages

pytestmark = pytest.mark.pipeline

US = 1_000
WHOLE_SKETCH = 200
"""Spark's KLL sketches are of so many values (k) at least."""
NEXT_DAY = dt.datetime.fromtimestamp(BASE / 1e9, dt.UTC) + dt.timedelta(days=2)


def write_journal(journal: Path) -> None:
    """20 messages, of which one was not received, and ten minutes of statistics."""
    began = BASE // US
    publications = [Publication("/a/b", b"%d" % n, text=bool(n % 2)) for n in range(1, 21)]
    write_messages(journal, publications)
    receipts = [
        receipt_row("/a/b", range(low, high), opened_ts=began, closed_ts=began + 60_000_000)
        for low, high in ((1, 10), (11, 21))
    ]
    write_lines(journal / "receipts", [msgspec.json.encode(row) for row in receipts])
    write_stats(journal, 0)


def write_stats(journal: Path, first: int) -> None:
    samples = [
        StatRow(v=ROW_VERSION, ts=BASE // US + n * 1_000_000, node="n1", indicator="i", value=n)
        for n in range(first, first + 300)
    ]
    write_lines(journal / "stats", [msgspec.json.encode(row) for row in samples])


def archive(spark: Any, journal: Path, tables: Tables) -> None:
    archive_job.run_archive(spark, JournalSource(journal), tables, lambda _: None, once=True)


def stored(tables: Tables, name: str) -> list[str]:
    """The rows of a table, without the sketches of so many values that some are left out of them.

    KLL draws at random which values those are, so each run gives another sketch.
    """
    found = DeltaTable(tables / name).to_pyarrow_table().to_pylist()
    for row in found:
        if "sketch" in row and row["n"] > WHOLE_SKETCH:
            del row["sketch"]
    return sorted(str(row) for row in found)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.slow
def test_a_rollup_and_a_replay(
    spark: Any,
    tmp_path: Path,
    remote: RemoteTables,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first rollup loses its lock while files are written, and commits nothing.

    Copies of files are there only as long as a job runs.
    """
    write_journal(tmp_path / "journal")
    archive(spark, tmp_path / "journal", remote)
    real = rewrite.add_actions

    def taken(*given: Any, **more: Any) -> Any:
        remote.store.put("_checkpoints/rollup.lock", b"another\n")
        return real(*given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(leases, "CHECKED_S", 0.0)
        patched.setattr(rewrite, "add_actions", taken)
        with pytest.raises(PipelineError, match=r"the lock _checkpoints/rollup\.lock was lost"):
            rollup_job.run_rollup(spark, remote)
    assert stored(remote, "stats_minute") == []
    remote.store.put("_checkpoints/rollup.lock", leases.FREE)
    assert rollup_job.run_rollup(spark, remote, NEXT_DAY).deleted == 300
    assert len(stored(remote, "stats_minute")) == 5
    replayed = rows(remote, Selection("/a/*"))
    assert [row["content"] for row in replayed] == [b"%d" % n for n in range(1, 21)]
    assert list(temporary.iterdir()) == []


@pytest.mark.soak
def test_all_jobs_do_the_same_as_in_a_folder(
    spark: Any, tmp_path: Path, remote: RemoteTables, temporary: Path
) -> None:
    told = []
    for tables in (tmp_path / "tables", remote):
        journal = tmp_path / f"journal-{len(told)}"
        write_journal(journal)
        archive(spark, journal, tables)
        first = rollup_job.run_rollup(spark, tables)
        write_stats(journal, 300)
        archive(spark, journal, tables)
        second = rollup_job.run_rollup(spark, tables, NEXT_DAY)
        assert (first.samples, second.samples, second.deleted) == (300, 300, 600)
        audited = audit_job.run_audit(spark, tables, tmp_path / "report.html")
        assert (audited.receipts, audited.bad, audited.gaps) == (2, 0, 1)
        replayed = list(rows(tables, Selection("/a/*")))
        names = ("stats", "stats_minute", "stats_day", "audit_verdicts", "audit_findings")
        told.append((audited, replayed, {name: stored(tables, name) for name in names}))
    assert told[0] == told[1]
    assert list(temporary.iterdir()) == []


@pytest.mark.soak
@pytest.mark.parametrize("job", ["rollup", "audit"])
def test_the_command_takes_a_uri(
    tmp_path: Path, spark: Any, remote: RemoteTables, job: str
) -> None:
    write_journal(tmp_path / "journal")
    archive(spark, tmp_path / "journal", remote)
    words = ["pipeline", job, "--tables", str(remote), "--format", "json"]
    run = subprocess.run(
        [sys.executable, "-m", "mdserver.cli.main", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    name, count = {"rollup": ("samples", 300), "audit": ("receipts", 2)}[job]
    assert msgspec.json.decode(run.stdout)[name] == count, run.stderr


def test_executors_of_a_cluster_take_no_copies(
    remote: RemoteTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with pytest.raises(PipelineError, match="with spark-submit the tables are in a folder that"):
        session.check_place(remote)


@pytest.mark.parametrize("job", ["rollup", "audit", "replay", "maintain"])
def test_a_place_that_is_no_use_is_one_line(job: str) -> None:
    words = ["--subject", "/a/**"] if job == "replay" else []
    result = CliRunner().invoke(mdserver, ["pipeline", job, "--tables", "hdfs://n/t", *words])
    assert "hdfs:// is no place that is known" in str(result.exception)
