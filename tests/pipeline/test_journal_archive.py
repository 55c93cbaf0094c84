"""The archive of a journal goes by numbers: neither clocks nor paths nor deletions mislead it."""

import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from mdserver.core.message import Publication
from mdserver.journal import segments
from mdserver.pipeline.archive import job as archive_job
from mdserver.pipeline.archive import journal as archive_journal
from mdserver.pipeline.common import delta
from mdserver.pipeline.common.numbered import sealed
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.sources import JournalSource

from .conftest import run_archive, write_lines, write_messages

pytestmark = pytest.mark.pipeline

WEEK_S = 7 * 86_400


def write(journal: Path, *subjects: str) -> None:
    """A segment for each subject."""
    for subject in subjects:
        write_messages(journal, [Publication(subject, b"x")])


def subjects(tables: Path) -> list[str]:
    return sorted(DeltaTable(tables / "messages").to_pyarrow_table()["subject"].to_pylist())


def set_aside(tables: Path) -> list[tuple[str, int, int]]:
    rows = DeltaTable(tables / "quarantine").to_pyarrow_table().to_pylist()
    return sorted((row["reason"], row["src_partition"], row["src_pos"]) for row in rows)


def test_times_of_files_have_no_influence(spark: Any, tmp_path: Path) -> None:
    """A clock that was set back, a segment that is dated a week ahead, a copy without its times."""
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    write(journal, "/a/1", "/a/2")
    ahead = time.time() + WEEK_S
    os.utime(sealed(journal / "messages", 1), (ahead, ahead))
    run_archive(spark, journal, tables, batch_bytes=1)
    write(journal, "/a/3", "/a/4")
    for number, moment in ((3, 0.0), (4, time.time() - 5 * WEEK_S)):
        os.utime(sealed(journal / "messages", number), (moment, moment))
    run_archive(spark, journal, tables)
    assert subjects(tables) == ["/a/1", "/a/2", "/a/3", "/a/4"]
    assert run_archive(spark, journal, tables) == []


def test_a_journal_that_was_moved_is_gone_on_with(spark: Any, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    write(tmp_path / "journal", "/a/1")
    run_archive(spark, tmp_path / "journal", tables)
    shutil.copytree(tmp_path / "journal", tmp_path / "moved")
    shutil.rmtree(tmp_path / "journal")
    write(tmp_path / "moved", "/a/2")
    run_archive(spark, tmp_path / "moved", tables)
    assert subjects(tables) == ["/a/1", "/a/2"]


def test_segments_that_are_missing_are_named(spark: Any, tmp_path: Path) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    write(journal, *(f"/a/{n}" for n in range(1, 7)))
    for number in (1, 3, 4):
        sealed(journal / "messages", number).unlink()
    told = run_archive(spark, journal, tables)
    assert [(str(hole), each.batch_id) for each in told for hole in each.missing] == [
        ("segment 1 is missing", 1),
        ("segments 3 to 4 are missing", 4),
    ]
    assert subjects(tables) == ["/a/2", "/a/5", "/a/6"]
    assert set_aside(tables) == [
        ("segment 1 is missing: deleted before it was archived", 1, 1),
        ("segments 3 to 4 are missing: deleted before it was archived", 3, 4),
    ]
    rows = DeltaTable(tables / "quarantine").to_pyarrow_table().to_pylist()
    assert {row["node"] for row in rows} == {"n1"}
    assert all(row["ts"] <= datetime.now(UTC) for row in rows)
    assert run_archive(spark, journal, tables) == []


class CrashError(Exception):
    """The process ends here."""


def crash(*_: Any) -> None:
    raise CrashError("crash")


def test_what_is_missing_is_named_once_although_more_was_deleted_after_a_crash(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends between the row in `quarantine` and the commit of the batch."""
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    write(journal, *(f"/a/{n}" for n in range(1, 6)))
    sealed(journal / "messages", 1).unlink()
    for gone in (2, 3):
        with monkeypatch.context() as patched:
            patched.setattr(delta, "commit_nothing", crash)
            with pytest.raises(PipelineError, match="archiving messages failed: crash"):
                run_archive(spark, journal, tables)
        sealed(journal / "messages", gone).unlink()
    run_archive(spark, journal, tables)
    assert subjects(tables) == ["/a/4", "/a/5"]
    assert [row[1:] for row in set_aside(tables)] == [(1, 1), (2, 2), (3, 3)]


def test_what_was_deleted_before_a_batch_is_repeated_is_named_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends between the lines in `quarantine` and the commit of the rows, twice."""
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    write(journal, "/a/1", "/a/2", "/a/3")
    write_lines(journal / "messages", [b"{no row"])
    for gone in (2, 1):
        with monkeypatch.context() as patched:
            patched.setattr(delta, "commit", crash_for_rows(delta.commit))
            with pytest.raises(PipelineError, match="archiving messages failed: crash"):
                run_archive(spark, journal, tables)
        sealed(journal / "messages", gone).unlink()
    run_archive(spark, journal, tables)
    assert subjects(tables) == ["/a/3"]
    assert [row[1:] for row in set_aside(tables) if "deleted" in row[0]] == [(1, 1), (2, 2)]
    assert len([row for row in set_aside(tables) if "deleted" not in row[0]]) == 1


def crash_for_rows(commit: Any) -> Any:
    """Crash before the commit of messages; lines that are set aside are committed."""

    def wrapped(staged: delta.Staged, batch: delta.TableBatch) -> None:
        if staged.table.table_uri.rstrip("/").endswith("messages"):
            crash()
        commit(staged, batch)

    return wrapped


def test_a_segment_that_is_deleted_under_a_batch(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    write(journal, "/a/1", "/a/2", "/a/3")
    read = archive_journal.segment_lines

    def deleting(spark: Any, paths: Any) -> Any:
        found = read(spark, paths)
        sealed(journal / "messages", 2).unlink(missing_ok=True)
        return found

    monkeypatch.setattr(archive_journal, "segment_lines", deleting)
    run_archive(spark, journal, tables)
    assert subjects(tables) == ["/a/1", "/a/3"]
    assert [row[1:] for row in set_aside(tables)] == [(2, 2)]


def test_the_server_is_told_what_it_may_delete(spark: Any, tmp_path: Path) -> None:
    """At once, and again by a run that finds everything archived."""
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    write(journal, "/a/1", "/a/2")
    run_archive(spark, journal, tables)
    assert segments.positions(journal / "messages") == {"archive": 2}
    segments.set_position(journal / "messages", "archive", 0)
    run_archive(spark, journal, tables)
    assert segments.positions(journal / "messages") == {"archive": 2}


def test_a_restored_copy_that_went_on_is_refused(spark: Any, tmp_path: Path) -> None:
    """Its last segment has a number that was archived, and other lines."""
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    write(journal, "/a/1")
    shutil.copytree(journal, tmp_path / "backup")
    write(journal, "/a/2")
    run_archive(spark, journal, tables)
    shutil.rmtree(journal)
    (tmp_path / "backup").rename(journal)
    write(journal, "/b/2", "/b/3")
    with pytest.raises(PipelineError, match="an older copy: its segment 2 is not the one that was"):
        run_archive(spark, journal, tables)


def test_an_archive_of_an_earlier_release_is_refused(spark: Any, tmp_path: Path) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    write(journal, "/a/1")
    (tables / "_checkpoints" / "messages-1").mkdir(parents=True)
    with pytest.raises(PipelineError, match=r"made by an earlier release, .* give --new-source"):
        run_archive(spark, journal, tables)


def test_a_stream_that_begins_later_is_archived_too(spark: Any, tmp_path: Path) -> None:
    """A server makes the folder of a stream with its first line."""
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    write(journal, "/a/1")
    told: list[str] = []

    class EnoughError(Exception):
        pass

    def report(batch: Any) -> None:
        told.append(batch.stream)
        if len(told) > 1:
            raise EnoughError("enough")
        (journal / "cache").mkdir()
        (journal / "cache" / "seg-000000000001.jsonl").write_bytes(b"{}\n")

    with pytest.raises(PipelineError, match="archiving cache failed: enough"):
        archive_job.run_archive(spark, JournalSource(journal), tables, report, once=False)
    assert told == ["messages", "cache"]
