"""Segment files: what is appended is read back, whatever happened in between."""

import resource
import signal
from pathlib import Path

import pytest

from mdserver.journal import segments
from mdserver.journal.segments import (
    JournalError,
    Repair,
    Segment,
    StreamWriter,
    attend,
    positions,
    set_position,
)

LARGE = 1 << 20


def test_lines_come_back_in_order_over_segments(tmp_path: Path) -> None:
    with StreamWriter(tmp_path, segment_bytes_max=8) as writer:
        for number in range(10):
            writer.append([b"%d" % number, b"x"])
    assert list(segments.lines(tmp_path)) == [
        line for number in range(10) for line in (b"%d" % number, b"x")
    ]
    assert len(segments.sealed(tmp_path)) == 5


def test_an_open_segment_is_not_among_the_sealed_ones(tmp_path: Path) -> None:
    with StreamWriter(tmp_path, LARGE) as writer:
        writer.append([b"a"])
        assert segments.sealed(tmp_path) == []
        assert writer.open_bytes == 2
        writer.seal()
        assert [segment.number for segment in segments.sealed(tmp_path)] == [1]


def test_an_unused_writer_leaves_no_segment(tmp_path: Path) -> None:
    with StreamWriter(tmp_path, LARGE) as writer:
        writer.append([b"a"])
    with StreamWriter(tmp_path, LARGE):
        pass
    assert [path.name for path in sorted(tmp_path.glob("seg-*"))] == ["seg-000000000001.jsonl"]


@pytest.mark.parametrize("torn", [b"{", b'{"a": 1}', b"\xff" * 3])
def test_a_torn_last_line_is_cut_off_and_counted(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / "seg-000000000004.open").write_bytes(b"one\ntwo\n" + torn)
    with StreamWriter(tmp_path, LARGE) as writer:
        assert writer.repair == Repair(1, len(torn))
        writer.append([b"three"])
    assert list(segments.lines(tmp_path)) == [b"one", b"two", b"three"]
    assert [segment.number for segment in segments.sealed(tmp_path)] == [4, 5]


def test_a_segment_with_nothing_but_a_torn_line_goes(tmp_path: Path) -> None:
    (tmp_path / "seg-000000000002.open").write_bytes(b"half")
    with StreamWriter(tmp_path, LARGE) as writer:
        assert writer.repair == Repair(1, 4)
    assert segments.sealed(tmp_path) == []


def test_every_crash_point_leaves_whole_lines_only(tmp_path: Path) -> None:
    block = b"alpha\nbeta\ngamma\n"
    for cut in range(len(block) + 1):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / "seg-000000000001.open").write_bytes(block[:cut])
        with StreamWriter(folder, LARGE):
            pass
        assert list(segments.lines(folder)) == block[:cut].split(b"\n")[:-1]


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with (
        StreamWriter(tmp_path, LARGE),
        pytest.raises(JournalError, match="another process writes this journal"),
    ):
        StreamWriter(tmp_path, LARGE)


def test_a_folder_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(JournalError, match="Not a directory"):
        StreamWriter(tmp_path / "file" / "journal", LARGE)


def test_a_full_disk_leaves_the_lines_before(tmp_path: Path) -> None:
    """/dev/full cannot be truncated, so a file size limit of the process stands in for the disk."""
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with StreamWriter(tmp_path, LARGE) as writer:
        writer.append([b"kept"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
        try:
            with pytest.raises(OSError, match="File too large"):
                writer.append([b"does not fit"])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, ignored)
        writer.append([b"goes on"])
        writer.sync()
    assert list(segments.lines(tmp_path)) == [b"kept", b"goes on"]


def test_limits_take_the_oldest_first() -> None:
    found = [Segment(n, Path(f"{n}"), 10, modified=n * 100) for n in range(1, 5)]
    numbers = [segment.number for segment in segments.expired(found, 400, 25, None)]
    assert numbers == [1, 2]
    assert [s.number for s in segments.expired(found, 400, None, 150)] == [1, 2]
    assert segments.expired(found, 400, None, None) == []
    assert segments.expired(found, 400, 40, 300) == []


def test_deleting_twice_is_no_error(tmp_path: Path) -> None:
    with StreamWriter(tmp_path, LARGE) as writer:
        writer.append([b"a"])
    found = segments.sealed(tmp_path)
    writer.delete(found)
    writer.delete(found)
    assert [path.name for path in tmp_path.iterdir()] == ["writer.lock"]


def test_a_reader_that_begins_has_everything_kept(tmp_path: Path) -> None:
    attend(tmp_path, "late")
    assert positions(tmp_path) == {"late": 0}
    set_position(tmp_path, "late", 7)
    set_position(tmp_path, "early", 9)
    attend(tmp_path, "late")
    assert positions(tmp_path) == {"early": 9, "late": 7}
