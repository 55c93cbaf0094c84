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
    assert (tmp_path / "seg-000000000004.jsonl").read_bytes() == b"one\ntwo\n"


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
        (opened,) = tmp_path.glob("seg-*.open")
        assert opened.read_bytes() == b"kept\n", "nothing of the refused line stays"
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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stream.id", "writer.lock"]


def test_a_reader_that_begins_has_everything_kept(tmp_path: Path) -> None:
    attend(tmp_path, "late")
    assert positions(tmp_path) == {"late": 0}
    set_position(tmp_path, "late", 7)
    set_position(tmp_path, "early", 9)
    attend(tmp_path, "late")
    assert positions(tmp_path) == {"early": 9, "late": 7}


def test_a_number_is_given_once_however_much_was_deleted(tmp_path: Path) -> None:
    for number in range(1, 4):
        with StreamWriter(tmp_path, LARGE) as writer:
            writer.append([b"a"])
            assert segments.numbers(tmp_path) == [number]
        for path in tmp_path.glob("seg-*"):
            path.unlink()


def test_numbers_stay_above_positions_of_an_earlier_version(tmp_path: Path) -> None:
    (tmp_path / "archive.position").write_text("7\n")
    with StreamWriter(tmp_path, LARGE) as writer:
        writer.append([b"a"])
    assert segments.numbers(tmp_path) == [8]


def test_a_stream_keeps_its_identifier_until_it_is_replaced(tmp_path: Path) -> None:
    first, moved = tmp_path / "first", tmp_path / "moved"
    with StreamWriter(first, LARGE) as writer:
        writer.append([b"a"])
        identifier = writer.identifier
    set_position(first, "archive", 1)
    first.rename(moved)
    with StreamWriter(moved, LARGE) as writer:
        assert writer.identifier == identifier
    assert positions(moved) == {"archive": 1}
    position = (moved / "archive.position").read_bytes()
    with StreamWriter(first, LARGE) as writer:
        assert writer.identifier != identifier
    (first / "archive.position").write_bytes(position)
    assert positions(first) == {"archive": 0}, "it is about another stream"
    attend(first, "archive")
    set_position(first, "archive", 2)
    assert positions(first) == {"archive": 2}


def test_a_damaged_identity_makes_another_stream_with_higher_numbers(tmp_path: Path) -> None:
    with StreamWriter(tmp_path, LARGE) as writer:
        writer.append([b"a"])
        identifier = writer.identifier
    (tmp_path / "stream.id").write_bytes(b"0" * 46)
    with StreamWriter(tmp_path, LARGE) as writer:
        writer.append([b"b"])
        assert writer.identifier != identifier
    assert segments.numbers(tmp_path) == [1, 2]


@pytest.mark.parametrize("left", [b"", b"half a line"])
def test_a_segment_without_a_line_is_gone_on_with(tmp_path: Path, left: bytes) -> None:
    with StreamWriter(tmp_path, LARGE) as writer:
        writer.append([b"a"])
    (tmp_path / "seg-000000000002.open").write_bytes(left)
    known = segments.identified(tmp_path)
    assert known is not None
    (tmp_path / "stream.id").write_bytes(segments.Identified(known.identifier, 2).encode())
    for _ in range(2):
        with StreamWriter(tmp_path, LARGE) as writer:
            assert writer.ends_at == 0
    with StreamWriter(tmp_path, LARGE) as writer:
        writer.append([b"b"])
    assert [segment.number for segment in segments.sealed(tmp_path)] == [1, 2]


def test_a_missing_last_segment_is_noticed(tmp_path: Path) -> None:
    with StreamWriter(tmp_path, segment_bytes_max=1) as writer:
        for _ in range(3):
            writer.append([b"a"])
    segments.sealed(tmp_path)[-1].path.unlink()
    with StreamWriter(tmp_path, LARGE) as writer:
        assert writer.ends_at == 3
        writer.append([b"b"])
    assert segments.numbers(tmp_path) == [1, 2, 4]


def test_what_is_set_aside_is_no_part_of_the_stream_and_stays(tmp_path: Path) -> None:
    for number in (1, 2):
        with StreamWriter(tmp_path, LARGE) as writer:
            writer.append([b"a"])
            writer.seal()
            aside = writer.set_aside(writer.sealed)
            assert aside == tmp_path / f"aside-{number}"
            assert writer.sealed == segments.sealed(tmp_path) == []
    assert [path.name for path in sorted(tmp_path.glob("aside-*/*"))] == [
        "seg-000000000001.jsonl",
        "seg-000000000002.jsonl",
    ]


def test_setting_aside_goes_on_after_an_error_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it is tried, no folder is made in vain, and no segment is left behind."""
    with StreamWriter(tmp_path, LARGE) as writer:
        for _ in range(4):
            writer.append([b"a"])
            writer.seal()
        renamed, left = Path.rename, [0]

        def rename(path: Path, target: Path) -> Path:
            if not left[0]:
                raise OSError(5, "Input/output error")
            left[0] -= 1
            return renamed(path, target)

        monkeypatch.setattr(Path, "rename", rename)
        for left[0] in (0, 0, 1):
            with pytest.raises(OSError, match="Input/output error"):
                writer.set_aside(writer.sealed)
        left[0] = 4
        assert writer.set_aside(writer.sealed) == tmp_path / "aside-2"
        monkeypatch.undo()
        assert writer.sealed == segments.sealed(tmp_path) == []
    kept = [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.glob("aside-*/*"))]
    assert kept == [
        "aside-1/seg-000000000001.jsonl",
        "aside-2/seg-000000000002.jsonl",
        "aside-2/seg-000000000003.jsonl",
        "aside-2/seg-000000000004.jsonl",
    ]


def test_a_gap_is_known_by_whoever_opens_the_stream_until_it_ends(tmp_path: Path) -> None:
    with StreamWriter(tmp_path, LARGE) as writer:
        assert not writer.gap
        identifier = writer.identifier
        writer.begin_gap()
        writer.begin_gap()
    with StreamWriter(tmp_path, LARGE) as writer:
        assert (writer.gap, writer.identifier) == (True, identifier)
        writer.append([b"a"])
        known = segments.identified(tmp_path)
        assert known is not None
        assert (known.identifier, known.number) == (identifier, 1)
        writer.end_gap()
        writer.end_gap()
    with StreamWriter(tmp_path, LARGE) as writer:
        assert (writer.gap, writer.identifier) == (False, identifier)


def test_a_segment_is_on_the_disk_before_its_name_says_that_it_is_final(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []
    with StreamWriter(tmp_path, LARGE) as writer:
        writer.append([b"a"])
        fdatasync = segments.os.fdatasync

        def recorded(file: int) -> None:
            fdatasync(file)
            synced.append(not list(tmp_path.glob("seg-*.jsonl")))

        monkeypatch.setattr(segments.os, "fdatasync", recorded)
        writer.seal()
        assert synced == [True]
