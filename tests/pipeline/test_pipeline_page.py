"""docs/pipeline.md: its tables have the columns that it names, its commands and queries work."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from mdserver.cli.pipeline import command
from mdserver.core.message import Publication
from mdserver.journal.rows import ROW_VERSION, StatRow
from mdserver.pipeline.audit import job as audit_job
from mdserver.pipeline.common import schema, tables
from mdserver.pipeline.iceberg import job as iceberg_job
from mdserver.pipeline.rollup import job as rollup_job

from .conftest import BASE, message_lines, run_archive, write_lines

pytestmark = pytest.mark.pipeline

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "pipeline.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python pipeline\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
QUERIES = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [
    shlex.split(line)[2:]
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("mdserver pipeline ")
]


def documented() -> dict[str, list[str]]:
    """The columns of each table by the page."""
    section = PAGE.partition("\n## Tables\n")[2].partition("\n## ")[0]
    found = {}
    for line in section.splitlines():
        cells = line.split(" | ")
        if line.startswith("| `") and len(cells) == 3:
            columns = re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", cells[2]))
            found |= dict.fromkeys(re.findall(r"`(\w+)`", cells[0]), columns)
    return found


def test_every_table_and_column_is_on_the_page() -> None:
    assert documented() == {name: table.names for name, table in schema.TABLES.items()}


def test_the_columns_of_measurements_are_those_of_benchmarks() -> None:
    page = (TOP / "docs" / "performance.md").read_text(encoding="utf-8")
    told = {name for line in page.splitlines() for name in re.findall(r"`(\w+)`", line[:99])}
    assert set(documented()["bench_runs"]) <= told


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_has_the_options_that_the_page_gives_it(words: list[str], tmp_path: Path) -> None:
    job = command.commands[words[0]]
    parser = job.make_parser(click.Context(job))
    given, rest, _ = parser.parse_args(words[1:])
    required = {option.name for option in job.params if option.required}
    assert required <= given.keys()
    assert rest == []


def test_the_page_has_commands_for_the_jobs() -> None:
    assert {words[0] for words in COMMANDS} == {
        *("archive", "derive", "rollup", "audit", "replay", "maintain"),
        "export-iceberg",
    }


@pytest.fixture(scope="module")
def folder(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small archive, with a journal beside it."""
    folder = tmp_path_factory.mktemp("page")
    lines = message_lines([Publication("/vehicles/car66/speed", b"%d" % n) for n in range(20)])
    write_lines(folder / "journal" / "messages", [*lines, b"{no row"])
    stats = [
        StatRow(v=ROW_VERSION, ts=BASE // 1000 + n * 1_000_000, node="n1", indicator="i", value=n)
        for n in range(120)
    ]
    write_lines(folder / "journal" / "stats", [msgspec.json.encode(row) for row in stats])
    write_lines(folder / "journal" / "receipts", [b"{}"])
    write_lines(folder / "journal" / "publish", [b"{}"])
    run_archive(spark, folder / "journal", folder / "tables")
    rollup_job.run_rollup(spark, folder / "tables")
    audit_job.run_audit(spark, folder / "tables", None)
    iceberg_job.run_export(folder / "tables", lambda _: None)
    return folder


@pytest.fixture(scope="module")
def asked(spark: Any, folder: Path) -> Any:
    """Return Spark with the archive's tables under their names."""
    for name in ("messages", "quarantine", "stats_minute", "audit_findings"):
        tables.frame(spark, folder / "tables", name).createOrReplaceTempView(name)
    return spark


@pytest.mark.parametrize(
    ("program", "printed"),
    [*zip(PROGRAMS, ["/vehicles/car66/speed", "20 19\n", "20\n"], strict=True)],
    ids=["sql", "history", "iceberg"],
)
def test_a_program_of_the_page_runs(program: str, printed: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout


def test_the_busiest_second(asked: Any) -> None:
    assert [row.messages for row in asked.sql(QUERIES[0]).collect()] == [20]


def test_wrong_receipts(asked: Any) -> None:
    assert asked.sql(QUERIES[1]).collect() == []


def test_how_long_a_commitment_takes(asked: Any) -> None:
    (row,) = asked.sql(QUERIES[2]).collect()
    assert len(row.us) == 2


def test_what_was_set_aside(asked: Any) -> None:
    found = {(row.stream, row.lines) for row in asked.sql(QUERIES[3]).collect()}
    assert found == {("messages", 1), ("receipts", 1), ("publish", 1)}


def test_a_window_from_summaries(asked: Any) -> None:
    (row,) = asked.sql(QUERIES[4]).collect()
    assert (row["max"], row["avg"]) == (119, 59.5)
    assert row["stddev"] == pytest.approx((sum((n - 59.5) ** 2 for n in range(120)) / 120) ** 0.5)
