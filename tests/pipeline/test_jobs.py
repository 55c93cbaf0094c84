"""The jobs end to end: journal in, tables and a report out, messages back into a server."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from mdserver.cli.main import exit_status
from mdserver.cli.main import mdserver as command
from mdserver.core.message import Publication
from mdserver.journal.rows import ROW_VERSION, ReceiptRow, StatRow
from mdserver.pipeline.audit import job as audit_job
from mdserver.pipeline.common import session
from tests.live import live_server
from tests.receipts import receipt_row

from .conftest import BASE, run_archive, write_lines, write_messages

pytestmark = pytest.mark.pipeline

US = 1_000
COMMAND_TIMEOUT_S = 600


def mdserver(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mdserver.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
        env=os.environ | {"CI": ""},
    )


def receipt(lo: int, hi: int) -> ReceiptRow:
    began = BASE // US
    return receipt_row(
        "/vehicles/car66",
        range(lo, hi + 1),
        opened_ts=began,
        closed_ts=began + hi * 1_000,
    )


@pytest.fixture(scope="module")
def archive(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 messages, 19 of which were received, and an hour of statistics."""
    folder = tmp_path_factory.mktemp("jobs")
    journal = folder / "journal"
    write_messages(journal, [Publication("/vehicles/car66", b"%d" % n) for n in range(1, 21)])
    receipts = [receipt(1, 9), receipt(11, 20)]
    write_lines(journal / "receipts", [msgspec.json.encode(row) for row in receipts])
    stats = [
        StatRow(v=ROW_VERSION, ts=BASE // US + n * 1_000_000, node="n1", indicator="i", value=n)
        for n in range(3600)
    ]
    write_lines(journal / "stats", [msgspec.json.encode(row) for row in stats])
    run_archive(spark, journal, folder / "tables")
    return folder


def test_an_audit_writes_verdicts_and_a_page(spark: Any, archive: Path) -> None:
    page = archive / "report.html"
    found = audit_job.run_audit(spark, archive / "tables", page)
    assert (found.receipts, found.bad, found.gaps) == (2, 0, 1)
    assert not found.whole
    verdicts = DeltaTable(archive / "tables" / "audit_verdicts").to_pyarrow_table().to_pylist()
    assert [row["verdict"] for row in verdicts] == ["exact", "exact"]
    text = page.read_text(encoding="utf-8")
    assert "<td class=n>10</td><td class=n>10</td><td class=n>1</td>" in text
    rows = DeltaTable(archive / "tables" / "audit_findings").to_pyarrow_table().to_pylist()
    assert [(row["kind"], row["subscriber"], row["seq_lo"]) for row in rows] == [("gap", "ann", 10)]


@pytest.mark.soak
def test_a_rollup_prints_what_it_did(archive: Path) -> None:
    run = mdserver("pipeline", "rollup", "--tables", str(archive / "tables"), "--format", "json")
    assert run.returncode == 0, run.stderr
    done = json.loads(run.stdout)
    assert done["samples"] == 3600
    hours = DeltaTable(archive / "tables" / "stats_hour").to_pyarrow_table().to_pylist()
    assert sum(row["n"] for row in hours) == 3600
    assert max(row["max"] for row in hours) == 3599
    # The samples are old, and in all summaries.
    assert done["deleted"] == 3600
    assert DeltaTable(archive / "tables" / "stats").to_pyarrow_table().num_rows == 0


@pytest.mark.slow
def test_an_audit_prints_its_counts_as_json(archive: Path) -> None:
    run = mdserver("pipeline", "audit", "--tables", str(archive / "tables"), "--format", "json")
    found = json.loads(run.stdout)
    assert run.returncode == 1, run.stderr
    assert (found["receipts"], found["bad"], found["gaps"], found["whole"]) == (2, 0, 1, False)


def test_the_command_archives_and_replays_into_a_server(tmp_path: Path) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    write_messages(journal, [Publication(f"/vehicles/car{n % 2}", b"%d" % n) for n in range(10)])
    where = ("--tables", str(tables))
    settings = ("--driver-memory", "600m", "--spark-option", "spark.sql.shuffle.partitions=3")
    run = mdserver("pipeline", "archive", "--journal", str(journal), *where, "--once", *settings)
    assert run.returncode == 0, run.stderr
    assert "messages batch 1: 10 rows" in run.stdout
    with live_server(tmp_path) as server:
        chosen = ("--subject", "/vehicles/car1", "--speed", "max", "--server", server.url)
        run = mdserver("pipeline", "replay", *where, *chosen, "--format", "json")
        assert (run.returncode, json.loads(run.stdout)["published"]) == (0, 5), run.stderr
        run = mdserver(
            "sub", "/replay/**", "--history", "10", "--count", "5", "--server", server.url
        )
        assert [line.split()[1] for line in run.stdout.splitlines()] == ["1", "3", "5", "7", "9"]


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("archive", "--tables", "t"), 2, "Give either --journal, --shipped or --kafka"),
        (
            ("archive", "--tables", "t", "--journal", "j", "--plain"),
            2,
            "--plain is about topics: give --kafka",
        ),
        (("archive", "--tables", "t", "--journal", "none"), 2, "none is no folder; a server with"),
        (
            ("archive", "--tables", ".", "--journal", "tests"),
            1,
            "tests has none of the folders messages, receipts, stats, access, publish, cache: give",
        ),
        (
            ("archive", "--tables", "t", "--journal", "tests", "--journal", "docs/../tests"),
            2,
            "tests and docs/../tests are the same folder",
        ),
        (("archive", "--tables", "t", "--kafka", "h:1"), 2, "--kafka needs --topics"),
        (
            ("derive", "--rules", "r", "--tables", "t", "--journal", ".", "--journal", ".."),
            2,
            "derive follows one --journal",
        ),
        (("derive", "--rules", "none", "--journal", ".", "--tables", "t"), 1, "none: No such file"),
        (
            ("derive", "--rules", "x", "--journal", ".", "--tables", "t", "--real-time", "d"),
            2,
            "--real-time needs --kafka",
        ),
        (("audit", "--tables", "none"), 2, "`mdserver pipeline archive` makes it"),
        (("maintain", "--tables", "none"), 2, "`mdserver pipeline archive` makes it"),
        (
            ("archive", "--journal", ".", "--tables", "/dev/null/t"),
            1,
            "/dev/null/t cannot be made: Not a directory",
        ),
        (("audit", "--tables", ".", "--driver-memory", "64m"), 2, "no size of 512m or more"),
        (
            ("rollup", "--tables", ".", "--spark-option", "x=1"),
            2,
            "'x' is no setting like spark.local.dir",
        ),
        (("replay", "--tables", ".", "--subject", "x"), 1, "does not start with '/'"),
    ],
)
def test_a_mistake_is_told_before_spark_starts(
    arguments: tuple[str, ...],
    status: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def started(*_: object, **__: object) -> None:
        pytest.fail("Spark starts")

    monkeypatch.setattr(session, "start", started)
    assert exit_status(["pipeline", *arguments]) == status
    printed = capsys.readouterr()
    assert told in printed.err
    assert "Spark" not in printed.out + printed.err


REAL_TIME = (
    "derive",
    "--rules",
    "r",
    "--kafka",
    "h:1",
    "--topics",
    "a.messages",
    "--real-time",
    "d",
)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("archive", "--journal", ".", "--topics", "a.messages"), "are for --kafka: give that"),
        (("archive", "--journal", ".", "--kafka-option", "a=b"), "are for --kafka: give that"),
        (("audit", "--report", "none/a.html"), "none is no folder"),
        (("capacity", "--report", "none/a.html"), "none is no folder"),
        ((*REAL_TIME, "--metrics", "9101"), "leave out --metrics"),
        ((*REAL_TIME, "--metrics-file", "f", "--report-to", "h"), "--metrics-file, --report-to"),
        ((*REAL_TIME, "--format", "json"), "leave out --format"),
        ((*REAL_TIME, "--server", "h:1", "--token", "t"), "leave out --server, --token"),
        (("replay", "--subject", "/a/b", "--token-file", "token"), "it is not UTF-8"),
        (("audit", "--report-to", "h", "--report-token-file", "token"), "it is not UTF-8"),
    ],
)
def test_an_option_that_would_do_nothing_or_fail_late_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], told: str
) -> None:
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    (tmp_path / "r").write_text(
        'rules: [{name: l, kind: last, from: "/a/*", to: "/last/{1}"}]', encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    of_capacity = ("--connections", "1", "--publications", "1", "--deliveries", "1")
    more = of_capacity if arguments[0] == "capacity" else ()
    result = CliRunner().invoke(command, ["pipeline", *arguments, "--tables", ".", *more])
    assert result.exit_code == 2, result.output
    words = " ".join(result.output.replace("\u2502", " ").split())
    assert told in words
