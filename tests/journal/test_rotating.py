"""Lines reach their file, files rotate, and what is lost is counted."""

import os
import threading
from pathlib import Path

import pytest

from mdserver import limits
from mdserver.journal.rotating import LineWriter, RotatingFile, StreamSink


def lost(count: int) -> bytes:
    return b"lost %d\n" % count


class GatedSink:
    """Waits for its gate before the first write, and refuses as often as it is told to."""

    name = "the gate"
    trouble = None

    def __init__(self, refusals: int = 0) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.refusals = refusals
        self.written: list[bytes] = []
        self.closed = False

    def write(self, lines: bytes) -> None:
        self.entered.set()
        assert self.gate.wait(10)
        if self.refusals:
            self.refusals -= 1
            raise OSError(28, "No space left on device")
        self.written.append(lines)

    def close(self) -> None:
        self.closed = True


def test_lines_are_written_in_order_before_close_returns(tmp_path: Path) -> None:
    file = tmp_path / "new" / "x.log"
    with LineWriter(RotatingFile(file, 1 << 20, 3), lost) as writer:
        for number in range(1000):
            writer.write(b"%d\n" % number)
    assert file.read_bytes() == b"".join(b"%d\n" % number for number in range(1000))


def test_a_full_file_is_renamed_and_the_oldest_removed(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    sink = RotatingFile(file, bytes_max=10, files_max=3)
    for line in (b"1111\n", b"2222\n", b"3333\n", b"44444444444\n", b"5\n", b"6\n"):
        sink.write(line)
    sink.close()
    assert file.read_bytes() == b"5\n6\n"
    assert (tmp_path / "x.log.1").read_bytes() == b"44444444444\n"
    assert (tmp_path / "x.log.2").read_bytes() == b"3333\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.log", "x.log.1", "x.log.2"]


def test_a_single_file_starts_anew(tmp_path: Path) -> None:
    sink = RotatingFile(tmp_path / "x.log", bytes_max=4, files_max=1)
    sink.write(b"111\n")
    sink.write(b"222\n")
    sink.close()
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"222\n"]


def test_a_file_that_cannot_be_renamed_is_written_on_and_tried_again_later(tmp_path: Path) -> None:
    now = 0.0
    file = tmp_path / "x.log"
    sink = RotatingFile(file, bytes_max=4, files_max=3, clock=lambda: now)
    for number in range(2):
        sink.write(b"%d11\n" % number)
    (tmp_path / "x.log.1").rename(tmp_path / "kept")
    (tmp_path / "x.log.1" / "in the way").mkdir(parents=True)
    (tmp_path / "x.log.2" / "in the way").mkdir(parents=True)
    sink.write(b"222\n")
    assert sink.trouble is not None
    assert sink.trouble.startswith(f"{file} is full and cannot be renamed: ")
    for name in ("x.log.1", "x.log.2"):
        (tmp_path / name / "in the way").rmdir()
        (tmp_path / name).rmdir()
    sink.write(b"333\n")
    assert file.read_bytes() == b"111\n222\n333\n", "not tried at each line"
    now = limits.LOG_RENAME_RETRY_S
    sink.write(b"444\n")
    assert sink.trouble is None
    assert file.read_bytes() == b"444\n"
    assert (tmp_path / "x.log.1").read_bytes() == b"111\n222\n333\n"
    sink.close()


def test_a_renaming_that_ended_halfway_loses_no_older_file(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(b"newest\n")
    (tmp_path / "x.log.2").write_bytes(b"older\n")
    sink = RotatingFile(tmp_path / "x.log", bytes_max=4, files_max=3)
    sink.write(b"1\n")
    sink.close()
    assert (tmp_path / "x.log.1").read_bytes() == b"newest\n"
    assert (tmp_path / "x.log.2").read_bytes() == b"older\n"


def test_a_torn_last_line_does_not_join_the_next_one(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_bytes(b"whole\ntor")
    sink = RotatingFile(file, 1 << 20, 3)
    sink.write(b"next\n")
    sink.close()
    assert file.read_bytes() == b"whole\ntor\nnext\n"


def test_beyond_the_bound_lines_are_dropped_and_counted() -> None:
    sink = GatedSink()
    writer = LineWriter(sink, lost, queued_bytes_max=6)
    writer.write(b"a\n")
    assert sink.entered.wait(10)
    for line in (b"b\n", b"c\n", b"d\n", b"e\n", b"f\n"):
        writer.write(line)
    sink.gate.set()
    writer.close()
    assert sink.written == [b"a\n", b"lost 2\nb\nc\nd\n"]
    assert sink.closed


def test_lines_that_the_sink_refused_are_counted_in_the_next_that_it_takes() -> None:
    sink = GatedSink(refusals=1)
    told: list[str] = []
    writer = LineWriter(sink, lost, tell=told.append)
    writer.write(b"a\n")
    assert sink.entered.wait(10)
    writer.write(b"b\n")
    sink.gate.set()
    writer.close()
    assert sink.written == [b"lost 1\nb\n"]
    assert writer.trouble is None
    assert told == [
        "the gate cannot be written: No space left on device; lines are lost",
        "1 lines for the gate were lost",
    ]


def test_close_gives_up_at_its_timeout() -> None:
    sink = GatedSink()
    writer = LineWriter(sink, lost)
    writer.write(b"a\n")
    assert sink.entered.wait(10)
    writer.close(timeout_s=0.01)
    assert not sink.closed
    sink.gate.set()
    writer.close()
    assert sink.closed


def test_after_close_nothing_is_written(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    writer = LineWriter(RotatingFile(file, 100, 1), lost)
    writer.close()
    writer.write(b"late\n")
    assert not file.exists()


def test_a_stream_stays_open() -> None:
    reading, writing = os.pipe()
    try:
        with LineWriter(StreamSink(writing), lost) as writer:
            writer.write(b"hello\n")
        assert os.read(reading, 100) == b"hello\n"
        os.write(writing, b"still open")
    finally:
        os.close(reading)
        os.close(writing)


def test_a_folder_that_cannot_be_made_is_an_error_at_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match=r"exists|Not a directory"):
        RotatingFile(tmp_path / "file" / "x.log", 100, 1).open()


DAY_S = 86_400.0
NOON = 1_780_000_000.0


def aged(file: Path, now: list[float]) -> RotatingFile:
    return RotatingFile(file, 1 << 20, 3, age_max_s=DAY_S, wall_clock=lambda: now[0])


def test_a_file_is_renamed_when_its_first_line_is_old(tmp_path: Path) -> None:
    now, file = [NOON], tmp_path / "x.log"
    sink = aged(file, now)
    sink.write(b"first\n")
    now[0] += DAY_S - 1
    sink.write(b"same day\n")
    now[0] += 1
    sink.write(b"next day\n")
    now[0] += DAY_S - 1
    sink.write(b"still\n")
    sink.close()
    assert file.read_bytes() == b"next day\nstill\n"
    assert (tmp_path / "x.log.1").read_bytes() == b"first\nsame day\n"


@pytest.mark.parametrize(
    "first",
    [
        b'{"v":1,"ts":1780000000000000,"node":"n","event":"connect"}\n',
        b'{"time":"2026-05-28T20:26:40.000000Z","level":"info","event":"started"}\n',
        b"2026-05-28T20:26:40.000000Z [info     ] started    node=n\n",
        b"no time\n",
    ],
)
def test_a_restart_does_not_make_a_file_young(tmp_path: Path, first: bytes) -> None:
    now, file = [NOON + DAY_S - 1], tmp_path / "x.log"
    file.write_bytes(first)
    os.utime(file, (NOON, NOON))
    sink = aged(file, now)
    sink.write(b"same day\n")
    sink.close()
    if first != b"no time\n":
        os.utime(file, (now[0], now[0]))
    else:
        os.utime(file, (NOON, NOON))
    now[0] += 1
    sink = aged(file, now)
    sink.write(b"next day\n")
    sink.close()
    assert file.read_bytes() == b"next day\n"
    assert (tmp_path / "x.log.1").read_bytes() == first + b"same day\n"


def test_a_clock_that_was_set_back_does_not_keep_a_file_for_years(tmp_path: Path) -> None:
    now, file = [NOON], tmp_path / "x.log"
    file.write_bytes(b'{"v":1,"ts":1990000000000000,"event":"to come"}\n')
    sink = aged(file, now)
    sink.write(b"same day\n")
    now[0] += DAY_S
    sink.write(b"next day\n")
    sink.close()
    assert file.read_bytes() == b"next day\n"
