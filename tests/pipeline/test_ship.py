"""`mdserver ship`: every line once in the place that members share, whatever is killed."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mdserver.cli.main import mdserver
from mdserver.errors import MdserverError
from mdserver.journal import segments
from mdserver.journal.segments import StreamWriter
from mdserver.pipeline.common import object_store
from mdserver.pipeline.common.numbered import Missing
from mdserver.pipeline.common.object_store import FolderStore, ObjectStore
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.ship.destination import READER, SharedPlace, Shipped
from mdserver.pipeline.ship.job import run_ship

from .conftest import write_lines
from .shipping import lines_of, ship

SEED = 20_261_122


def position(journal: Path, stream: str = "messages") -> int:
    return segments.positions(journal / stream)[READER]


def test_segments_of_all_streams_are_sent_once(store: ObjectStore, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write_lines(journal / "messages", [b"1", b"2"])
    write_lines(journal / "messages", [b"3"])
    write_lines(journal / "stats", [b"s"])
    told = ship(journal, store)
    assert [(each.stream, each.segment, each.lines, each.new) for each in told] == [
        ("messages", 1, 2, True),
        ("messages", 2, 1, True),
        ("stats", 1, 1, True),
    ]
    assert lines_of(store) == [b"1", b"2", b"3"]
    assert lines_of(store, "stats") == [b"s"]
    assert (position(journal), position(journal, "stats")) == (2, 1)
    assert ship(journal, store) == []


def test_a_run_that_lost_its_position_finds_what_is_there(
    store: ObjectStore, tmp_path: Path
) -> None:
    """As after a kill between the object and the position."""
    journal = tmp_path / "journal"
    write_lines(journal / "messages", [b"1"])
    ship(journal, store)
    segments.set_position(journal / "messages", READER, 0)
    assert [each.new for each in ship(journal, store)] == [False]
    assert lines_of(store) == [b"1"]
    assert position(journal) == 1


def test_a_report_that_fails_is_no_fault_of_the_journal(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    write_lines(tmp_path / "journal" / "messages", [b"1"])

    def tell(_: Shipped) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_ship(
            tmp_path / "journal", SharedPlace(FolderStore(tmp_path / "place")), tell, once=True
        )


def test_two_members_share_a_place(store: ObjectStore, tmp_path: Path) -> None:
    for member in ("m1", "m2"):
        write_lines(tmp_path / member / "messages", [member.encode()])
        ship(tmp_path / member, store)
    assert sorted(lines_of(store)) == [b"m1", b"m2"]


def test_segments_that_were_deleted_before_are_told(tmp_path: Path, store: ObjectStore) -> None:
    journal = tmp_path / "journal"
    for number in range(4):
        write_lines(journal / "messages", [b"%d" % number])
    (journal / "messages" / "seg-000000000002.jsonl").unlink()
    told = ship(journal, store)
    assert [(each.segment, each.missing) for each in told] == [
        (1, None),
        (3, Missing(2, 2)),
        (4, None),
    ]


def test_a_store_that_refuses_ends_the_job_with_a_line(bucket: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "journal" / "messages", [b"1"])
    with pytest.raises(PipelineError, match=r"\As3://no-such-bucket/x: NoSuchBucket: [^\n]+\Z"):
        ship(tmp_path / "journal", object_store.opened("s3://no-such-bucket/x"))
    assert segments.positions(tmp_path / "journal" / "messages") == {}


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (
            "hdfs://name/x",
            "give a folder (what Hadoop has can be mounted as one), file:// or s3://",
        ),
        ("s3://key:secret@bucket/x", "an address with a password would be seen by all users"),
        ("s3://key:se/secret@bucket/x", "an address with a password would be seen by all users"),
        ("s3://key@secret/x", "an address with a password would be seen by all users"),
        ("abfss://key:secret@account/x", "an address with a password would be seen by all users"),
        ("missing", "missing is no folder: make it, or mount what it stands for"),
    ],
)
def test_a_place_that_is_no_use_is_one_line(
    place: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "journal" / "messages", [b"1"])
    result = CliRunner().invoke(
        mdserver, ["ship", "--journal", "journal", "--to", place, "--once"], catch_exceptions=True
    )
    assert isinstance(result.exception, MdserverError)
    assert line in str(result.exception)
    assert "secret" not in str(result.exception)


def test_a_folder_that_is_no_journal_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    with pytest.raises(
        PipelineError, match=r"has none of the streams messages, receipts, .* of a journal"
    ):
        ship(tmp_path, FolderStore(tmp_path / "place"))


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    (tmp_path / "place").mkdir()
    write_lines(journal / "messages", [b"1"])

    def second(_: Shipped) -> None:
        with pytest.raises(PipelineError, match=r"another process ships .*journal already"):
            ship(journal, FolderStore(tmp_path / "place"))
        told.append(1)

    told: list[int] = []
    run_ship(journal, SharedPlace(FolderStore(tmp_path / "place")), second, once=True)
    assert told == [1]


class CrashError(Exception):
    """The process ends here."""


@pytest.mark.slow
@pytest.mark.parametrize("cases", [10, pytest.param(300, marks=pytest.mark.soak)])
def test_a_run_that_ends_anywhere_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cases: int
) -> None:
    """Lines, crashes, deletions behind the position and new writers, in a random order.

    A crash is before or after each call that changes something.
    """
    draw = random.Random(SEED)
    for case in range(cases):
        journal, place = tmp_path / f"j{case}", tmp_path / f"p{case}"
        place.mkdir()
        store = FolderStore(place)
        written: list[bytes] = []
        for _ in range(draw.randint(3, 12)):
            for _ in range(draw.randint(0, 3)):
                lines = [b"%d" % (len(written) + n) for n in range(draw.randint(1, 3))]
                write_lines(journal / "messages", lines)
                written += lines
            if not written:
                continue
            with monkeypatch.context() as patched:
                crash_after(patched, draw, draw.randint(0, 6))
                with contextlib.suppress(CrashError):
                    ship(journal, store)
            clean(journal / "messages")
        write_lines(journal / "messages", [b"end"])
        ship(journal, store)
        assert lines_of(store) == [*written, b"end"], case


def crash_after(patched: pytest.MonkeyPatch, draw: random.Random, steps: int) -> None:
    """End the run at a step that is drawn: before or after it has its effect."""
    left = [steps]

    def around(module: Any, name: str) -> None:
        function: Callable[..., Any] = getattr(module, name)

        def wrapped(*args: Any, **options: Any) -> Any:
            left[0] -= 1
            late = draw.random() < 0.5
            if left[0] == 0 and not late:
                raise CrashError(name)
            result = function(*args, **options)
            if left[0] == 0:
                raise CrashError(name)
            return result

        patched.setattr(module, name, wrapped)

    around(FolderStore, "create")
    around(segments, "set_position")
    around(Path, "hardlink_to")


def clean(folder: Path) -> None:
    """Delete what every reader is done with, as the server does."""
    with StreamWriter(folder, 1 << 20) as writer:
        writer.delete(segments.read_by_all(writer.sealed, segments.positions(folder)))


@pytest.fixture
def shipper(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts `mdserver ship` in a process of its own; it is ended after the test."""
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        words = ["ship", "--journal", str(tmp_path / "journal"), "--to", str(tmp_path / "place")]
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "mdserver.cli.main", *words],
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_processes_that_are_killed_send_every_line_once(
    tmp_path: Path, shipper: Callable[[], subprocess.Popen[str]]
) -> None:
    """Three processes, each killed as soon as it says that it sent a segment; then one to the end.

    Meanwhile the writer goes on, and deletes what the position allows.
    """
    (tmp_path / "place").mkdir()
    folder = tmp_path / "journal" / "messages"
    written: list[bytes] = []
    with StreamWriter(folder, 1 << 20) as writer:
        for killed in range(3):
            for _ in range(20):
                line = b"%d" % len(written)
                written.append(line)
                writer.append([line])
                writer.seal()
            process = shipper()
            assert process.stdout is not None
            assert process.stdout.readline().startswith("messages segment"), killed
            process.send_signal(signal.SIGKILL)
            process.wait(60)
            writer.delete(segments.read_by_all(writer.sealed, segments.positions(folder)))
    ship(tmp_path / "journal", FolderStore(tmp_path / "place"))
    assert lines_of(FolderStore(tmp_path / "place")) == written


@pytest.mark.slow
def test_a_process_that_sigterm_ends_leaves_nothing_behind(
    tmp_path: Path, shipper: Callable[[], subprocess.Popen[str]]
) -> None:
    """The signal comes while the file that is to become an object is being written."""
    place = tmp_path / "place"
    place.mkdir()
    written = 0
    deadline = time.monotonic() + 60
    with StreamWriter(tmp_path / "journal" / "messages", 64 << 20) as writer:
        process = shipper()
        while not stopped_at_work(process, place):
            assert process.poll() is None
            assert time.monotonic() < deadline
            if len(list(place.rglob("seg-*"))) == written:
                writer.append([bytes(8 << 20)])
                writer.seal()
                written += 1
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    assert process.wait(60) == -signal.SIGTERM
    assert list(place.rglob(".seg-*")) == []
    ship(tmp_path / "journal", FolderStore(place))
    assert len(lines_of(FolderStore(place))) == written


def stopped_at_work(process: subprocess.Popen[str], place: Path) -> bool:
    """Stop the process if it is writing a file that is no object yet."""
    if not any(place.rglob(".seg-*")):
        return False
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    for left in place.rglob(".seg-*"):
        if not left.with_name(left.name[1:].rpartition(".")[0]).exists():
            return True
    process.send_signal(signal.SIGCONT)
    return False
