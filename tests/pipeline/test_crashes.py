"""kill -9 of the driver, wherever it hurts: then the archive equals the journal, row by row."""

import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest
from deltalake import DeltaTable

from mdserver.core.message import Publication
from mdserver.journal import segments
from mdserver.journal.rows import MessageRow
from mdserver.pipeline.common import delta

from . import killed_driver
from .conftest import message_lines, run_archive, write_lines

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]

SEGMENTS, ROWS = 3, 120
NO_ROW = b"{no row"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Segments of equal size, each with a line in it that cannot be used."""
    folder = tmp_path_factory.mktemp("crashes") / "journal"
    for number in range(SEGMENTS):
        publications = [
            Publication(
                f"/a=b {n % 2}/key/{n % 5}", b"%d of %d" % (n, number), fields={"n": str(n)}
            )
            for n in range(ROWS)
        ]
        lines = message_lines(publications, first_seq=1 + number * ROWS)
        write_lines(folder / "messages", [*lines, NO_ROW])
    assert len(segments.sealed(folder / "messages")) == SEGMENTS
    return folder


@pytest.mark.parametrize(
    ("point", "status", "batches"),
    [
        pytest.param("before the commit", -signal.SIGKILL, 1, marks=pytest.mark.soak),
        ("between two tables", -signal.SIGKILL, 1),
        ("after the commit", -signal.SIGKILL, 2),
        ("while compacting", -signal.SIGKILL, 2),
        pytest.param("after compacting", -signal.SIGKILL, 2, marks=pytest.mark.soak),
    ],
)
def test_the_archive_equals_the_journal(
    spark: Any, tmp_path: Path, journal: Path, point: str, status: int, batches: int
) -> None:
    tables = tmp_path / "tables"
    killed = killed_driver.run(point, str(journal), str(tables))
    assert killed.returncode == status, killed.stdout
    assert len(archived(tables)) == batches * ROWS
    left_behind = point in {"before the commit", "between two tables", "while compacting"}
    assert bool(unnamed_files(tables)) == left_behind

    run_archive(spark, journal, tables)
    assert archived(tables) == expected(journal)
    assert len(rows_of(tables, "quarantine")) == SEGMENTS
    assert run_archive(spark, journal, tables) == []
    delta.compact(spark, tables, "messages")
    assert archived(tables) == expected(journal)


def rows_of(tables: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(tables / name).to_pyarrow_table().to_pylist()
    return rows


def archived(tables: Path) -> list[dict[str, Any]]:
    """The table `messages` in order, without the number of the batch."""
    rows = rows_of(tables, "messages")
    for row in rows:
        del row["batch_id"]
        row["fields"] = None if row["fields"] is None else dict(row["fields"])
    return sorted(rows, key=place)


def expected(journal: Path) -> list[dict[str, Any]]:
    """What the table must hold, taken from the journal without any code of the archive."""
    rows = [
        table_row(msgspec.json.decode(line, type=MessageRow), segment.number)
        for segment in segments.sealed(journal / "messages")
        for line in segment.path.read_bytes().splitlines()
        if line != NO_ROW
    ]
    return sorted(rows, key=place)


def place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["subject"], row["epoch"], row["seq"]


def table_row(row: MessageRow, segment: int) -> dict[str, Any]:
    ts_server = EPOCH + timedelta(microseconds=row.ts_server)
    _, root, key = row.subject.split("/", 2)
    return {
        "root": root,
        "subject": row.subject,
        "key": key,
        "history": row.history,
        "epoch": row.epoch,
        "seq": row.seq,
        "content": (row.content or "").encode(),
        "text": True,
        "compressed": False,
        "closure": None,
        "reply_subject": None,
        "fields": row.fields,
        "retained": row.retained,
        "qos": row.qos,
        "ts_pub": EPOCH + timedelta(microseconds=row.ts_pub),
        "ts_server": ts_server,
        "ts_broker": None,
        "publisher": row.publisher or None,
        "number": 0,
        "message_id": None,
        "node": row.node,
        "src_kind": "journal",
        "src_partition": segment,
        "src_pos": None,
        "crc": row.crc,
        "dt": f"{ts_server:%Y-%m-%d}",
    }


def unnamed_files(tables: Path) -> set[Path]:
    """Files in the folder of the table that no version of it has named."""
    folder = tables / "messages"
    named = {
        folder / unquote(action["add"]["path"])
        for log in (folder / "_delta_log").glob("*.json")
        for action in map(msgspec.json.decode, log.read_bytes().splitlines())
        if "add" in action
    }
    there = {path for path in folder.rglob("*.parquet*") if not path.name.endswith(".crc")}
    return {path for path in there if "_delta_log" not in path.parts} - named
