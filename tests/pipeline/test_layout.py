"""How tables are laid out: publishers name no folder; order and statistics help readers."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from mdserver.core.message import Publication
from mdserver.journal.rows import ROW_VERSION, StatRow, checked
from mdserver.pipeline.common import checkpoints, delta, maintenance, schema, tables
from mdserver.pipeline.common.compaction import TARGET_FILE_BYTES, PresentFile, bins
from mdserver.pipeline.common.requirements import PipelineError

from .conftest import archived, message_lines, run_archive, write_lines

pytestmark = pytest.mark.pipeline

KB = 1 << 10


def test_a_first_segment_of_any_length_and_many_of_them(spark: Any, tmp_path: Path) -> None:
    long = "/" + "s" * 300 + "/x"
    subjects = [long, *(f"/s{n}/x" for n in range(500))]
    folder = archived(spark, tmp_path, [Publication(subject, b"x") for subject in subjects])
    table = DeltaTable(folder / "messages")
    assert len(table.file_uris()) <= 2
    assert sorted(table.to_pyarrow_table().column("subject").to_pylist()) == sorted(subjects)
    assert len(tables.history(folder, long)) == 1


def test_files_are_sorted_and_have_statistics_before_and_after_compaction(
    spark: Any, tmp_path: Path
) -> None:
    journal, folder = tmp_path / "journal", tmp_path / "tables"
    for number in range(3):
        publications = [Publication(f"/a/{n % 7}", b"x") for n in range(50)]
        write_lines(journal / "messages", message_lines(publications, first_seq=1 + number * 10))
        run_archive(spark, journal, folder)
    check_files(folder, 3)
    assert delta.compact(spark, folder, "messages") == 3
    check_files(folder, 1)
    assert delta.compact(spark, folder, "messages") == 0


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_a_compaction_that_lost_its_lock_does_not_go_on(
    asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may be at work on the table by then, so each step asks before it begins."""
    delta.append_rows(tmp_path, "quarantine", "job", 1, [{}])
    delta.append_rows(tmp_path, "quarantine", "job", 2, [{}])
    calls: list[None] = []
    vacuums: list[None] = []
    vacuum = DeltaTable.vacuum

    def noted(*args: Any, **options: Any) -> list[str]:
        vacuums.append(None)
        return vacuum(*args, **options)

    monkeypatch.setattr(DeltaTable, "vacuum", noted)

    def held() -> None:
        calls.append(None)
        if len(calls) == asked:
            raise PipelineError("lost")

    no_spark: Any = None
    with pytest.raises(PipelineError, match="lost"):
        delta.compact(no_spark, tmp_path, "quarantine", held)
    table = DeltaTable(tmp_path / "quarantine")
    assert len(table.file_uris()) == (2 if asked == 1 else 1)
    assert bool(vacuums) is (asked == 3)
    assert not (tmp_path / "quarantine" / "_delta_log" / "_last_checkpoint").exists()


def check_files(folder: Path, count: int) -> None:
    """Each file is sorted, and the log says of each which subjects and numbers it has."""
    table = DeltaTable(folder / "messages")
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert len(files) == count
    for file in files:
        rows = pq.ParquetFile(folder / "messages" / file["path"]).read().to_pylist()
        places = [(row["subject"], row["epoch"], row["seq"]) for row in rows]
        assert places == sorted(places)
        assert (file["min.subject"], file["max.subject"]) == ("/a/0", "/a/6")
        numbers = [row["seq"] for row in rows]
        assert (file["min.seq"], file["max.seq"]) == (min(numbers), max(numbers))
        times = [row["ts_server"] for row in rows]
        assert (file["min.ts_server"], file["max.ts_server"]) == (min(times), max(times))


def test_a_history_after_statistics_of_every_kind(spark: Any, tmp_path: Path) -> None:
    """Rows that wrong statistics could hide: of subjects that are long, or not ASCII."""
    subjects = [
        "/\U0010ffff\U0010ffff/x",
        "/" + "ü" * 200 + "/x",
        "/" + "\U0010ffff" * 200 + "/x",
        "/a/x",
        "/~/x",
        "/\x7f/x",
    ]
    folder = archived(spark, tmp_path, [Publication(subject, b"x") for subject in subjects])
    for _ in range(2):
        assert [len(tables.history(folder, subject)) for subject in subjects] == [1] * 6
        delta.compact(spark, folder, "messages")


def test_filters_by_columns_with_and_without_nulls(spark: Any, tmp_path: Path) -> None:
    """No filter of a reader hides a row, whatever the statistics of its file say."""
    long = "c" * 10_000
    folder = archived(
        spark,
        tmp_path,
        [
            Publication("/a/b", b"x", closure=long, publisher="p", number=3),
            Publication("/a/c", b"\xff", text=False, retained=False),
        ],
    )
    first, second = (
        DeltaTable(folder / "messages").to_pyarrow_table().sort_by("subject").to_pylist()
    )
    for _ in range(2):
        table = DeltaTable(folder / "messages")
        for row in (first, second):
            for name, value in row.items():
                if value is not None and name != "fields":
                    found = table.to_pyarrow_table(filters=[(name, "=", value)]).to_pylist()
                    assert row in found, name
        without = table.to_pyarrow_dataset().to_table(filter=ds.field("closure").is_null())
        assert without.to_pylist() == [second]
        run_archive_again(spark, tmp_path)
        delta.compact(spark, folder, "messages")


def run_archive_again(spark: Any, tmp_path: Path) -> None:
    """One file more, so that there is something to join."""
    lines = message_lines([Publication("/z/z", b"z", closure="z")])
    write_lines(tmp_path / "journal" / "messages", lines)
    run_archive(spark, tmp_path / "journal", tmp_path / "tables")


def test_a_table_of_another_release_is_refused_by_name(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    DeltaTable.create(
        folder / "messages", schema=schema.TABLES["messages"], partition_by=["root", "dt"]
    )
    write_lines(tmp_path / "journal" / "messages", message_lines([Publication("/a/b", b"x")]))
    said = r"messages was made by another release, .*: archive into another folder"
    with pytest.raises(PipelineError, match=said):
        run_archive(spark, tmp_path / "journal", folder)
    with pytest.raises(PipelineError, match=said):
        tables.frame(spark, folder, "messages")


def test_what_is_joined() -> None:
    """Small files of one day, up to the size that is aimed at; a single one is left alone."""
    small, large = 40 << 20, TARGET_FILE_BYTES // 2
    files = [PresentFile(f"{n}", small, "2026-01-01") for n in range(5)]
    files += [PresentFile("6", large, "2026-01-01"), PresentFile("7", KB, "2026-01-02")]
    files += [PresentFile("8", KB, "2026-01-03"), PresentFile("9", KB, "2026-01-03")]
    assert [[file.path for file in each] for each in bins(files)] == [
        ["0", "1", "2"],
        ["3", "4"],
        ["8", "9"],
    ]


def stat_lines(first: int, count: int) -> list[bytes]:
    rows = [
        StatRow(v=ROW_VERSION, ts=1_000_000 + n, node="n1", indicator=f"i{n}", value=n / 2)
        for n in range(first, first + count)
    ]
    return [checked(msgspec.json.encode(row)) for row in rows]


def test_no_filter_hides_a_file_that_was_not_compacted_yet(spark: Any, tmp_path: Path) -> None:
    """Files of the archive, of a compaction and of other writers have statistics alike."""
    journal, folder = tmp_path / "journal", tmp_path / "tables"
    for number in range(3):
        write_lines(journal / "stats", [*stat_lines(number * 10, 5), b"no row %d" % number])
        run_archive(spark, journal, folder)
        if number == 1:
            assert delta.compact(spark, folder, "stats") == 2
            assert delta.compact(spark, folder, "quarantine") == 2
    row = {"stream": "derived", "reason": "late", "line": b"\xff", "src_partition": 9}
    delta.append_rows(folder, "quarantine", "derive", 1, [row])
    for name, count in (("stats", 15), ("quarantine", 4)):
        table = DeltaTable(folder / name)
        rows = table.to_pyarrow_table().to_pylist()
        assert len(rows) == count
        for row in rows:
            for column, value in row.items():
                if value is not None:
                    found = table.to_pyarrow_table(filters=[(column, "=", value)]).to_pylist()
                    assert row in found, (name, column)


def test_content_of_60_kb_and_a_long_closure(spark: Any, tmp_path: Path) -> None:
    large = bytes(range(256)) * 240
    given = [
        Publication("/a/b", large, text=False, closure="c" * 5_000),
        Publication("/a/b", b"x" * len(large)),
    ]
    folder = archived(spark, tmp_path, given)
    assert tables.history(folder, "/a/b")["content"].to_pylist() == [p.content for p in given]


def test_maintenance_of_all_tables(spark: Any, tmp_path: Path) -> None:
    journal, folder = tmp_path / "journal", tmp_path / "tables"
    for number in range(3):
        write_lines(journal / "stats", [*stat_lines(number * 10, 5), b"no row"])
        lines = message_lines([Publication("/a/b", b"x")], first_seq=number + 1)
        write_lines(journal / "messages", lines)
        run_archive(spark, journal, folder)
    told: list[maintenance.Maintained] = []
    with (
        checkpoints.alone(folder, maintenance.COMPACTION),
        pytest.raises(PipelineError, match="another maintain job is at work on"),
    ):
        maintenance.run_maintain(spark, folder, told.append)
    maintenance.run_maintain(spark, folder, told.append)
    assert [(done.table, done.joined, done.files) for done in told] == [
        ("messages", 3, 1),
        ("stats", 3, 1),
        ("quarantine", 3, 1),
    ]
    with pytest.raises(PipelineError, match="has no tables: run"):
        maintenance.run_maintain(spark, tmp_path, told.append)
