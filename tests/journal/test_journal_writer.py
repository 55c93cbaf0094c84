"""The journal's thread: what is queued is on the disk, in order, whatever happens."""

import errno
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mdserver.config import JournalDiskFull, JournalFsync
from mdserver.journal import segments
from mdserver.journal.segments import JournalError, StreamWriter
from mdserver.journal.writer import (
    Blocked,
    Broken,
    Deleted,
    Event,
    JournalWriter,
    Stored,
    Unblocked,
    WriterSettings,
)
from mdserver.limits import NS_PER_MS, NS_PER_S

TIMEOUT_S = 60


class Heard:
    """The events of a writer, to wait for."""

    def __init__(self) -> None:
        self._events: queue.Queue[Event] = queue.Queue()
        self.put = self._events.put

    def next(self, kind: type[Event]) -> Event:
        """The next event of a kind; those before it are dropped."""
        while True:
            event = self._events.get(timeout=TIMEOUT_S)
            if isinstance(event, kind):
                return event


def texts(folder: Path) -> list[bytes]:
    return list(segments.lines(folder))


def full(stream: StreamWriter) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("fsync", JournalFsync)
def test_what_is_written_is_there_at_the_end(tmp_path: Path, fsync: JournalFsync) -> None:
    writer = JournalWriter(tmp_path, ("a", "b"), WriterSettings(fsync=fsync))
    writer.write("a", [b"before the start"])
    writer.start(Heard().put)
    for number in range(1000):
        writer.write("a" if number % 2 else "b", [b"%d" % number])
    assert writer.close() == 0
    assert texts(tmp_path / "a") == [b"before the start", *(b"%d" % n for n in range(1, 1000, 2))]
    assert texts(tmp_path / "b") == [b"%d" % n for n in range(0, 1000, 2)]


def test_a_request_is_answered_once_it_is_stored(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, ("log",), WriterSettings(fsync=JournalFsync.COMMIT), "log")
    heard = Heard()
    writer.start(heard.put)
    for request in range(1, 6):
        writer.write("log", [b"x"], request)
    while heard.next(Stored) != Stored(5):
        pass
    assert texts(tmp_path / "log")[1:] == [b"x"] * 5  # the first line is the segment's own
    writer.close()


def test_the_last_stream_is_written_after_what_was_queued_with_it(tmp_path: Path) -> None:
    order: list[str] = []
    writer = JournalWriter(tmp_path, ("log", "rows"), WriterSettings(), "log")
    writer.write("log", [lambda _: order.append("log")])
    writer.write("rows", [lambda _: order.append("rows")])
    writer.start(Heard().put)
    writer.close()
    assert order == ["rows", "log"]


def test_steps_are_taken_between_the_lines_around_them(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, ("a",), WriterSettings())
    writer.write("a", [b"1", StreamWriter.seal, b"2", b"3"])
    writer.start(Heard().put)
    writer.close()
    names = [segment.path.read_bytes() for segment in segments.sealed(tmp_path / "a")]
    assert names == [b"1\n", b"2\n3\n"]


def test_a_segment_is_sealed_when_its_time_is_over(tmp_path: Path) -> None:
    settings = WriterSettings(segment_time=NS_PER_MS)
    writer = JournalWriter(tmp_path, ("a",), settings)
    writer.start(Heard().put)
    done = threading.Event()
    writer.write("a", [b"one"])
    wait_for(lambda: segments.sealed(tmp_path / "a"))
    writer.write("a", [b"two", lambda _: done.set()])
    assert done.wait(TIMEOUT_S)
    wait_for(lambda: len(segments.sealed(tmp_path / "a")) == 2)
    writer.close()
    assert texts(tmp_path / "a") == [b"one", b"two"]


def wait_for(condition: Callable[[], object]) -> None:
    pause = threading.Event()
    for _ in range(TIMEOUT_S * 100):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not come true")


class Disk:
    """A step that fails as a full disk does until there is room again."""

    def __init__(self) -> None:
        self.room = threading.Event()

    def __call__(self, stream: StreamWriter) -> None:
        if not self.room.is_set():
            full(stream)


def test_refuse_keeps_what_waits_until_there_is_room(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, ("a",), WriterSettings(disk_full=JournalDiskFull.REFUSE))
    heard, disk = Heard(), Disk()
    writer.start(heard.put)
    writer.write("a", [b"1", disk, b"2"])
    assert heard.next(Blocked) == Blocked("No space left on device")
    writer.write("a", [b"3"])
    disk.room.set()
    assert heard.next(Unblocked) == Unblocked(0)
    writer.close()
    assert texts(tmp_path / "a") == [b"1", b"2", b"3"]


def test_continue_drops_what_waits_and_counts_it(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, ("a",), WriterSettings(disk_full=JournalDiskFull.CONTINUE))
    heard, disk = Heard(), Disk()
    writer.start(heard.put)
    writer.write("a", [b"1", full, b"2", b"3"])
    heard.next(Blocked)
    disk.room.set()
    writer.write("a", [disk, b"4"])
    assert heard.next(Unblocked) == Unblocked(3)  # the step itself counts as a line
    writer.close()
    assert texts(tmp_path / "a") == [b"1", b"4"]


def test_a_queue_at_its_bound_drops_lines_and_says_how_many(tmp_path: Path) -> None:
    settings = WriterSettings(queue_bytes_high=10, queue_bytes_max=20)
    writer = JournalWriter(tmp_path, ("a",), settings)
    heard, held = Heard(), threading.Event()
    writer.write("a", [lambda _: held.wait(TIMEOUT_S) and None])
    writer.start(heard.put)
    writer.write("a", [b"x" * 8])
    writer.write("a", [b"y" * 8])
    blocked = heard.next(Blocked)
    assert isinstance(blocked, Blocked)
    assert "slower" in blocked.reason
    writer.write("a", [b"z" * 8])
    held.set()
    assert heard.next(Unblocked) == Unblocked(1)
    writer.close()
    assert texts(tmp_path / "a") == [b"x" * 8, b"y" * 8]


def test_lines_that_a_full_disk_never_took_are_counted_at_the_end(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, ("a",), WriterSettings())
    heard = Heard()
    writer.start(heard.put)
    writer.write("a", [b"1", full, b"2"])
    heard.next(Blocked)
    assert writer.close() == 2
    assert texts(tmp_path / "a") == [b"1"]


def sealed_segments(folder: Path, count: int) -> None:
    with StreamWriter(folder, segment_bytes_max=1) as stream:
        for number in range(count):
            stream.append([b"%d" % number])


def test_segments_that_all_readers_are_done_with_are_deleted(tmp_path: Path) -> None:
    sealed_segments(tmp_path / "a", 4)
    segments.set_position(tmp_path / "a", "archive", 3)
    segments.set_position(tmp_path / "a", "derive", 2)
    writer = JournalWriter(tmp_path, ("a",), WriterSettings())
    heard = Heard()
    writer.start(heard.put)
    deleted = heard.next(Deleted)
    assert isinstance(deleted, Deleted)
    assert (deleted.segments, deleted.unread) == (2, 0)
    writer.close()
    assert [segment.number for segment in segments.sealed(tmp_path / "a")] == [3, 4]


@pytest.mark.parametrize(("readers", "unread"), [({}, 0), ({"archive": 1}, 2)])
def test_limits_delete_what_nobody_read_and_say_so(
    tmp_path: Path, readers: dict[str, int], unread: int
) -> None:
    sealed_segments(tmp_path / "a", 4)
    for reader, number in readers.items():
        segments.set_position(tmp_path / "a", reader, number)
    writer = JournalWriter(tmp_path, ("a",), WriterSettings(bytes_max=2))
    heard = Heard()
    writer.start(heard.put)
    deleted = heard.next(Deleted)
    assert isinstance(deleted, Deleted)
    assert (deleted.segments, deleted.unread) == (3, unread)
    writer.close()
    assert texts(tmp_path / "a") == [b"3"]


def test_old_segments_are_deleted(tmp_path: Path) -> None:
    sealed_segments(tmp_path / "a", 2)
    writer = JournalWriter(tmp_path, ("a",), WriterSettings(age_max=0 * NS_PER_S))
    heard = Heard()
    writer.start(heard.put)
    assert heard.next(Deleted) == Deleted("a", 2, 4, 0)
    writer.close()


def test_the_time_in_which_no_writer_ran_is_no_age(tmp_path: Path) -> None:
    """A clock that is ahead at a start, or a long pause: age goes on from where it was."""
    sealed_segments(tmp_path / "a", 3)
    sealed_segments(tmp_path / "b", 1)
    paths = [segment.path for segment in segments.sealed(tmp_path / "a")]
    (newest,) = (segment.path for segment in segments.sealed(tmp_path / "b"))
    for path, moment_s in zip((*paths, newest), (100, 250, 260, 300), strict=True):
        os.utime(path, (moment_s, moment_s))
    settings = WriterSettings(age_max=100 * NS_PER_S)
    writer = JournalWriter(tmp_path, ("a", "b"), settings, clock=lambda: 10_000 * NS_PER_S)
    heard = Heard()
    writer.start(heard.put)
    assert heard.next(Deleted) == Deleted("a", 1, 2, 0)
    writer.write("b", [b"of this run"])
    writer.close()
    writer = JournalWriter(tmp_path, ("a", "b"), settings, clock=lambda: 10_005 * NS_PER_S)
    heard = Heard()
    writer.start(heard.put)
    # The thread looks for what is too old before it waits for the next lines.
    for request in (1, 2):
        writer.write("b", [lambda _: None], request)
        assert heard.next(Stored) == Stored(request)
    writer.close()
    assert texts(tmp_path / "a") == [b"1", b"2"]


class CutError(Exception):
    """The process ended here."""


@pytest.mark.parametrize("calls", range(4))
def test_a_start_that_is_cut_while_it_sets_times_is_gone_on_with(
    calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever files have their new times by then, and whichever is the newest of them."""
    sealed_segments(tmp_path / "a", 2)
    sealed_segments(tmp_path / "b", 2)
    found = [each.path for name in "ab" for each in segments.sealed(tmp_path / name)]
    for path, moment_s in zip(found, (100, 300, 250, 260), strict=True):
        os.utime(path, (moment_s, moment_s))
    left = [calls]
    utime = os.utime

    def cut(path: Path, **times: tuple[int, int]) -> None:
        if not left[0]:
            raise CutError
        left[0] -= 1
        utime(path, **times)  # type: ignore[call-overload]

    def start(moment_s: int) -> None:
        settings = WriterSettings()
        JournalWriter(tmp_path, ("a", "b"), settings, clock=lambda: moment_s * NS_PER_S).close()

    with monkeypatch.context() as patched:
        patched.setattr(os, "utime", cut)
        with pytest.raises(CutError):
            start(10_000)
    start(20_000)
    assert [path.stat().st_mtime for path in found] == [19_800, 20_000, 19_950, 19_960]
    assert not (tmp_path / "pause.json").exists()


def test_two_writers_of_a_folder_are_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, ("a", "b"), WriterSettings())
    with pytest.raises(JournalError, match="another process"):
        JournalWriter(tmp_path, ("c", "b"), WriterSettings())
    writer.start(Heard().put)
    writer.write("b", [b"1"])
    assert writer.close() == 0
    JournalWriter(tmp_path, ("a", "b", "c"), WriterSettings()).close()


def test_repairs_are_told_by_stream(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "seg-000000000001.open").write_bytes(b"whole\ntorn")
    writer = JournalWriter(tmp_path, ("a", "b"), WriterSettings())
    assert {name: repair.torn_bytes for name, repair in writer.repairs.items()} == {"a": 4}
    writer.close()


def test_a_bug_in_the_thread_does_not_go_unnoticed(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, ("a",), WriterSettings())
    heard = Heard()

    def wrong(stream: StreamWriter) -> None:
        raise ValueError(f"{stream.folder.name} is wrong")

    writer.write("a", [wrong])
    writer.start(heard.put)
    assert heard.next(Broken) == Broken("ValueError: a is wrong")
    writer.close()


def test_a_queue_at_its_bound_drops_nothing_of_a_stream_whose_owner_bounds_it(
    tmp_path: Path,
) -> None:
    settings = WriterSettings(
        queue_bytes_high=10, queue_bytes_max=20, disk_full=JournalDiskFull.REFUSE
    )
    writer = JournalWriter(tmp_path, ("a", "b"), settings, last="b", kept=("b",))
    writer.write("b", [b"x" * 30])
    assert (writer.lost_lines, writer.waiting_bytes) == (0, 30)
    writer.write("a", [b"y" * 30])
    assert (writer.lost_lines, writer.waiting_bytes) == (1, 30)
    writer.start(Heard().put)
    writer.close()
    assert texts(tmp_path / "b")[1:] == [b"x" * 30]


def test_after_lines_of_the_last_stream_were_dropped_it_takes_none_until_it_is_opened(
    tmp_path: Path,
) -> None:
    settings = WriterSettings(queue_bytes_high=10, queue_bytes_max=20)
    writer = JournalWriter(tmp_path, ("a",), settings, last="a")
    heard, held, entered = Heard(), threading.Event(), threading.Event()
    writer.write("a", [lambda _: entered.set(), lambda _: held.wait(TIMEOUT_S) and None])
    writer.start(heard.put)
    assert entered.wait(TIMEOUT_S)
    writer.write("a", [b"x" * 8, b"y" * 8])
    heard.next(Blocked)
    writer.write("a", [b"z" * 8])
    held.set()
    assert heard.next(Unblocked) == Unblocked(3, True)
    writer.write("a", [b"behind the gap"])
    writer.open_last()
    writer.write("a", [b"anew"])
    writer.close()
    assert texts(tmp_path / "a")[-1] == b"anew"
    assert b"behind the gap" not in texts(tmp_path / "a")


def test_what_comes_behind_withdrawn_lines_is_dropped_until_the_stream_is_opened(
    tmp_path: Path,
) -> None:
    settings = WriterSettings(disk_full=JournalDiskFull.REFUSE)
    writer = JournalWriter(tmp_path, ("a",), settings, last="a", withdraws=True)
    heard, disk = Heard(), Disk()
    writer.start(heard.put)
    writer.write("a", [b"1", disk, b"2"])
    assert heard.next(Blocked) == Blocked("No space left on device", True)
    writer.write("a", [b"3"])
    disk.room.set()
    writer.open_last()
    writer.write("a", [b"4"])
    heard.next(Unblocked)
    writer.close()
    assert texts(tmp_path / "a")[1:] == [b"1", b"4"]
