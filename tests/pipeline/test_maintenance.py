"""The compaction that a job does of its tables: once an hour, however often it is started."""

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from mdserver.pipeline.common import checkpoints, delta, retention, schema
from mdserver.pipeline.common.maintenance import (
    COMPACT_EVERY_S,
    COMPACTION,
    LOOK_AGAIN_S,
    TableCompaction,
)

pytestmark = pytest.mark.pipeline

BEGAN_S = 1_764_000_000.0


def with_two_files(folder: Path) -> DeltaTable:
    """A table that is not sorted, so that no Spark is needed."""
    delta.table(folder, "stats")
    for number in range(2):
        rows = [{"node": "n1", "indicator": "i", "value": float(number), "batch_id": number}]
        table = pa.Table.from_pylist(rows, schema.TABLES["stats"])
        write_deltalake(folder / "stats", table, mode="append")
    return DeltaTable(folder / "stats")


NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def test_lines_are_deleted_when_they_are_old_and_holes_are_not(tmp_path: Path) -> None:
    """Rows are added before the first deletion is committed, so Delta refuses that."""
    old, new = NOW - dt.timedelta(days=2), NOW
    rows = [
        {"reason": "old", "line": b"x", "ts": old},
        {"reason": "new", "line": b"x", "ts": new},
        {"reason": "a hole", "ts": old, "src_kind": "journal"},
        {"reason": "of an earlier release", "line": b"x"},
    ]
    delta.append_rows(tmp_path, "quarantine", "first", 1, rows)
    added: list[int] = []

    def add() -> None:
        if not added:
            added.append(1)
            delta.append_rows(tmp_path, "quarantine", "second", 1, rows[:2])

    before = NOW - dt.timedelta(days=1)
    assert retention.delete_lines(tmp_path, before, add) == 2
    assert retention.delete_lines(tmp_path, before) == 0
    left = DeltaTable(tmp_path / "quarantine").to_pyarrow_table()["reason"].to_pylist()
    assert sorted(left) == ["a hole", "new", "new", "of an earlier release"]
    delta.append_rows(tmp_path, "quarantine", "first", 1, rows)  # the batch that comes again
    assert len(DeltaTable(tmp_path / "quarantine").to_pyarrow_table()) == 4


@pytest.mark.parametrize(
    ("later_s", "files"),
    [(0.0, 2), (COMPACT_EVERY_S - 1, 2), (COMPACT_EVERY_S, 1), (-COMPACT_EVERY_S, 1)],
    ids=["at once", "within the hour", "after an hour", "the clock was set back"],
)
def test_a_job_that_is_started_again_goes_on_with_the_hour(
    tmp_path: Path, later_s: float, files: int
) -> None:
    no_spark: Any = None
    table = with_two_files(tmp_path)
    TableCompaction(no_spark, tmp_path, lambda: BEGAN_S).when_due("stats")
    table.update_incremental()
    assert len(table.file_uris()) == 2
    TableCompaction(no_spark, tmp_path, lambda: BEGAN_S + later_s).when_due("stats")
    table.update_incremental()
    assert len(table.file_uris()) == files


def test_streams_of_kafka_note_their_tables_at_the_same_time(tmp_path: Path) -> None:
    """Each has a thread, and all of them write to `quarantine`."""
    no_spark: Any = None
    clock = [BEGAN_S]
    names = [f"table{number}" for number in range(8)]
    compaction = TableCompaction(no_spark, tmp_path, lambda: clock[0])

    def archive(name: str) -> None:
        for _ in range(5):
            compaction.when_due(name)
            compaction.when_due("quarantine")
            clock[0] += LOOK_AGAIN_S

    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(archive, names))
    # Later than any thread has seen the clock, which they may also have set back.
    clock[0] = BEGAN_S + (5 * len(names) + 1) * LOOK_AGAIN_S
    for name in ("quarantine", *names):
        compaction.when_due(name)
    assert sorted(checkpoints.compacted(tmp_path)) == ["quarantine", *names]


def test_a_table_is_compacted_soon_after_another_process_ends_to_join_files(
    tmp_path: Path,
) -> None:
    no_spark: Any = None
    clock = [BEGAN_S]
    table = with_two_files(tmp_path)
    compaction = TableCompaction(no_spark, tmp_path, lambda: clock[0])
    compaction.when_due("stats")
    clock[0] += COMPACT_EVERY_S
    with checkpoints.alone(tmp_path, COMPACTION):
        compaction.when_due("stats")
    assert checkpoints.compacted(tmp_path) == {"stats": BEGAN_S}
    for later_s, files in ((LOOK_AGAIN_S - 1, 2), (1, 1)):
        clock[0] += later_s
        compaction.when_due("stats")
        table.update_incremental()
        assert len(table.file_uris()) == files
    assert checkpoints.compacted(tmp_path) == {"stats": clock[0]}


def test_a_table_that_another_process_joined_is_left_for_an_hour(tmp_path: Path) -> None:
    no_spark: Any = None
    table = with_two_files(tmp_path)
    clock = [BEGAN_S]
    compaction = TableCompaction(no_spark, tmp_path, lambda: clock[0])
    compaction.when_due("stats")
    clock[0] += COMPACT_EVERY_S
    checkpoints.note_compacted(tmp_path, "stats", clock[0])
    for later_s, files in ((COMPACT_EVERY_S - 1, 2), (1, 1)):
        clock[0] += later_s
        compaction.when_due("stats")
        table.update_incremental()
        assert len(table.file_uris()) == files


@pytest.mark.parametrize("content", ["", "[]", '{"stats": null}', "{"])
def test_a_note_that_is_damaged_is_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / checkpoints.FOLDER).mkdir()
    (tmp_path / checkpoints.FOLDER / checkpoints.COMPACTED).write_text(content)
    assert checkpoints.compacted(tmp_path) == {}
    checkpoints.note_compacted(tmp_path, "stats", BEGAN_S)
    assert checkpoints.compacted(tmp_path) == {"stats": BEGAN_S}
