"""The archive read back: as a frame, and without a JVM, before and after compaction."""

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from mdserver.core.message import Publication
from mdserver.pipeline.common import delta, tables
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.replay.job import parse_speed, plan, rows
from mdserver.pipeline.replay.windows import Selection

from .conftest import BASE, archived, run_archive, write_messages

pytestmark = pytest.mark.pipeline

SUBJECTS = ["/a=b 1/x", "/a=b 1/it's/z", "/ü{,}[*]/x", "/c/x"]


def test_frame_and_history_agree_before_and_after_compaction(spark: Any, tmp_path: Path) -> None:
    given = [Publication(SUBJECTS[n % 4], b"%d" % n, fields={"n": str(n)}) for n in range(40)]
    folder = archived(spark, tmp_path, given)
    for _ in range(2):
        frame = tables.frame(spark, folder, "messages")
        assert frame.count() == 40
        assert {row.root for row in frame.select("root").distinct().collect()} == {
            subject.split("/")[1] for subject in SUBJECTS
        }
        for index, subject in enumerate(SUBJECTS):
            found = tables.history(folder, subject).to_pylist()
            assert [row["content_text"] for row in found] == [str(n) for n in range(index, 40, 4)]
        delta.compact(spark, folder, "messages")


def test_a_history_is_read_without_python_on_the_threads_of_arrow(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that ended while such a thread let go of a file was aborted."""
    folder = archived(spark, tmp_path, [Publication("/a/b", b"1", text=True)])
    monkeypatch.setattr(pyarrow.fs, "PyFileSystem", None)
    assert tables.history(folder, "/a/b")["content_text"].to_pylist() == ["1"]
    nothing = tables.history(folder, "/a/c")
    assert len(nothing) == 0
    assert nothing.schema == tables.history(folder, "/a/b").schema


def test_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="run `mdserver pipeline archive` first"):
        tables.opened(tmp_path, "messages")


def test_only_files_that_may_have_the_rows_are_read(spark: Any, tmp_path: Path) -> None:
    """Three batches with a subject each, a file each; their times are a millisecond apart."""
    for number, subject in enumerate(["/a/x", "/b/x", "/c/x"]):
        journal = tmp_path / "journal"
        write_messages(journal, [Publication(subject, b"%d" % n) for n in range(10 + 5 * number)])
        run_archive(spark, journal, tmp_path / "tables")

    def read(**within: Any) -> tuple[int, int]:
        frame = tables.frame(spark, tmp_path / "tables", "messages", within)
        return len(frame.inputFiles()), frame.count()

    first = dt.datetime.fromtimestamp(BASE / 1e9, dt.UTC)
    assert read() == (3, 45)
    assert read(subject=("/b/", "/b/~")) == (1, 15)
    assert read(ts_server=(first, first + dt.timedelta(milliseconds=4))) == (3, 15)
    later = first + dt.timedelta(milliseconds=16), first + dt.timedelta(seconds=60)
    assert read(ts_server=later) == (1, 4)
    assert read(subject=("/a/x", "/a/x"), ts_server=later) == (0, 0)


@pytest.mark.parametrize(
    ("selected", "expected"),
    [("/c/x", 10), ("/*/x", 30), ("/**", 40), ("/a=b 1/**", 20), ("/none/**", 0)],
)
def test_what_a_replay_selects(stored: Path, selected: str, expected: int) -> None:
    assert len(list(rows(stored, Selection(selected)))) == expected


@pytest.fixture(scope="module")
def stored(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = [Publication(SUBJECTS[n % 4], b"%d" % n, fields={"n": str(n)}) for n in range(40)]
    return archived(spark, tmp_path_factory.mktemp("stored"), given)


def test_a_replay_keeps_order_and_pauses(stored: Path) -> None:
    (planned,) = plan(rows(stored, Selection("/**")), 0.5, "/replay")
    assert [again.command.content for again in planned] == [str(n) for n in range(40)]
    # The fixture's messages are a millisecond apart; half the speed doubles that.
    assert [round(again.after_s, 6) for again in planned] == [
        pytest.approx(0.002 * n) for n in range(40)
    ]
    assert planned[0].command.subject == "/replay" + SUBJECTS[0]


def test_speeds() -> None:
    assert (parse_speed("10x"), parse_speed("0.5"), parse_speed("max")) == (10.0, 0.5, None)
    for wrong in ("0x", "fast", "-1", "inf"):
        with pytest.raises(PipelineError, match="--speed is a factor like 10x"):
            parse_speed(wrong)
