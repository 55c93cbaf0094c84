"""A row that a journal has twice is one row of the archive, whatever lies between the two."""

import datetime as dt
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from mdserver.core.message import Entry, Publication
from mdserver.journal.rows import checked, message_row
from mdserver.pipeline.archive import batches
from mdserver.pipeline.archive.repeats import WrittenRanges
from mdserver.pipeline.common import delta, schema

from .conftest import BASE, run_archive, write_lines

pytestmark = pytest.mark.pipeline

SECOND = 1_000_000_000
START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
COLUMNS = pa.schema(
    [schema.TABLES["messages"].field(name) for name in ("subject", "epoch", "seq", "ts_pub")]
)


def line(subject: str, seq: int, later_s: int = 0) -> bytes:
    """A line of the journal; one that is written again has another time of commitment."""
    publication = Publication(subject, b"%d" % seq, time=BASE + seq * SECOND)
    at = BASE + (seq + later_s) * SECOND
    return checked(msgspec.json.encode(message_row(Entry(1, seq, publication), 0, "h", "n", at)))


def archived(folder: Path) -> list[tuple[str, int]]:
    rows = DeltaTable(folder / "messages").to_pyarrow_table().to_pylist()
    return sorted((row["subject"], row["seq"]) for row in rows)


def test_a_row_that_comes_twice(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one segment, in two of a batch, in a later batch, and on another day.

    Rows are compared only in batches in which one repeats.
    """
    compared = []
    real = batches.one_row_each

    def one_row_each(*given: Any) -> Any:
        compared.append(given)
        return real(*given)

    monkeypatch.setattr(batches, "one_row_each", one_row_each)
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    first = [line("/a/b", seq) for seq in range(1, 6)] + [line("/a/c", 1)]
    write_lines(journal / "messages", [*first, line("/a/b", 5, 1)])
    write_lines(journal / "messages", [line("/a/b", 5, 2), line("/a/b", 6)])
    run_archive(spark, journal, tables)
    expected = [*(("/a/b", seq) for seq in range(1, 7)), ("/a/c", 1)]
    assert archived(tables) == expected
    assert len(compared) == 1
    write_lines(journal / "messages", [line("/a/b", 7), line("/a/c", 2)])
    run_archive(spark, journal, tables)
    expected += [("/a/b", 7), ("/a/c", 2)]
    assert len(compared) == 1
    write_lines(journal / "messages", [line("/a/b", 7, 90_000), line("/a/b", 8, 90_000)])
    run_archive(spark, journal, tables)
    assert archived(tables) == sorted([*expected, ("/a/b", 8)])
    assert len(compared) == 2


ROWS = st.lists(st.tuples(st.sampled_from(["/a", "/b"]), st.integers(0, 6)), max_size=8)


def values(rows: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """Rows of the table, in its order within a file."""
    return [
        {"subject": subject, "epoch": 1, "seq": seq, "ts_pub": START + dt.timedelta(seconds=seq)}
        for subject, seq in sorted(rows)
    ]


@settings(deadline=None, max_examples=40)
@given(files=st.lists(ROWS, max_size=4), there=ROWS)
def test_no_repetition_is_overlooked(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[tuple[str, int]]],
    there: list[tuple[str, int]],
) -> None:
    """Rows without a place (seq 0) are no repetition."""
    folder = tmp_path_factory.mktemp("ranges")
    written = WrittenRanges()
    for number, rows in enumerate(files):
        path = folder / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(values(rows), COLUMNS), path)
        written.add([path])
    delta.append_rows(folder, "messages", "job", 1, values(there))
    placed = [row for rows in files for row in rows if row[1]]
    if len(set(placed)) < len(placed) or set(placed) & set(there):
        assert written.may_repeat(folder)


@pytest.mark.parametrize("untimed", [{1, 2}, {1}, {2}], ids=["all", "the first", "the second"])
def test_rows_without_a_time_are_compared_with_all_files(tmp_path: Path, untimed: set[int]) -> None:
    """The time of its publication is none of the things that a line must have."""
    delta.append_rows(tmp_path, "messages", "job", 1, values([("/a", 1)]))
    for repeated in (False, True):
        written = WrittenRanges()
        for number in (1, 2):
            path = tmp_path / f"{number}.parquet"
            seq = number if repeated else number + 1
            (row,) = values([("/a", seq)])
            row["ts_pub"] = None if number in untimed else START + dt.timedelta(days=number)
            pq.write_table(pa.Table.from_pylist([row], COLUMNS), path)
            written.add([path])
        assert written.may_repeat(tmp_path) is repeated


def test_rows_in_their_order_are_not_compared(tmp_path: Path) -> None:
    """Files that follow each other, as a journal without a repetition gives."""
    written = WrittenRanges()
    delta.append_rows(tmp_path, "messages", "job", 1, values([("/a", 1), ("/b", 1)]))
    for number in (2, 4):
        path = tmp_path / f"{number}.parquet"
        rows = [("/a", number), ("/a", number + 1), ("/b", number), ("/a", 0), ("/a", 0)]
        pq.write_table(pa.Table.from_pylist(values(rows), COLUMNS), path)
        written.add([path])
    assert not written.may_repeat(tmp_path)
