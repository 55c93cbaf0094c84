"""What was said is true after every crash: of votes, and of entries that are written down.

The product's own calls run under `Recorder`. Each rule is broken on purpose once, and found out.
"""

import os
import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from attrs import define, field

from mdserver.cluster.identity import Identity
from mdserver.cluster.messages import Persist, Persisted
from mdserver.cluster.votes import Vote, VoteRecord
from mdserver.config import JournalFsync
from mdserver.journal import segments
from mdserver.journal.segments import StreamWriter
from mdserver.journal.writer import Event, JournalWriter, Stored, WriterSettings
from mdserver.server.disk import votes
from mdserver.server.disk.votes import VoteFile, VoteWriter
from mdserver.server.engine import Engine
from tests.disk.recorder import Recorder

IDENTITY = Identity("a:1", ("a:1", "b:1", "c:1"), 128)
EPOCHS = range(7, 12)
"""One digit or two: an older record is shorter than its successor."""

LINES = 8
TIMEOUT_S = 60

Breaking = Callable[[pytest.MonkeyPatch], None]


# Votes


def record(epoch: int) -> bytes:
    promised = [Vote(epoch, "b:1")] * IDENTITY.groups
    return VoteRecord(
        "a:1", IDENTITY.cluster, epoch, True, promised, seeds=list(IDENTITY.seeds)
    ).encode()


def promised_after(folder: Path) -> int:
    """Return the epoch that a seed which starts with this folder knows that it promised."""
    file = VoteFile(folder, "a:1")
    found = file.read(IDENTITY)
    assert file.damage is None, file.damage
    return min(vote.epoch for vote in found.promised)


def votes_hold(folder: Path, said: list[int]) -> None:
    if said:
        assert promised_after(folder) >= said[-1], "a promise that was told is forgotten"


@define
class Teller:
    """Notes what the writer says is on the disk, as the member would tell others then."""

    recorder: Recorder
    told: trio.Event = field(factory=trio.Event)

    def dispatch(self, stored: Persisted) -> None:
        self.recorder.say(stored.request)
        self.told.set()


async def promise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    """Have a writer store five promises, one after another."""
    folder = tmp_path / "votes"
    folder.mkdir()
    with monkeypatch.context() as recorded:
        recorder = Recorder(recorded, folder, votes_hold)
        teller = Teller(recorder)
        writer = VoteWriter(VoteFile(folder, "a:1"), cast(Engine, teller))
        with trio.fail_after(TIMEOUT_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(writer.run)
                for epoch in EPOCHS:
                    teller.told = trio.Event()
                    writer.persist(Persist(epoch, record(epoch)))
                    await teller.told.wait()
                nursery.cancel_scope.cancel()
    return recorder


async def test_a_promise_that_was_told_survives_every_crash(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recorder = await promise(monkeypatch, tmp_path)

    assert recorder.failure is None
    assert recorder.said == list(EPOCHS)
    assert recorder.crashes > 50


def folder_is_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(votes, "sync_folder", lambda _: None)


def file_is_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(path: Path, content: bytes, size_min: int = 0) -> None:
        path.write_bytes(content.ljust(size_min))

    monkeypatch.setattr(votes, "_fill", fill)


def written_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(self: VoteFile, content: bytes) -> None:
        votes._fill(self.path, content)
        votes.sync_folder(self.path.parent)

    monkeypatch.setattr(VoteFile, "write", write)


def told_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    original = VoteFile.write
    late: list[bytes] = []

    def write(self: VoteFile, content: bytes) -> None:
        late.append(content)
        if len(late) > 1:
            original(self, late.pop(0))

    monkeypatch.setattr(VoteFile, "write", write)


def renamed_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(self: VoteFile, content: bytes) -> None:
        spare = self.path.with_suffix(".spare")
        spare.write_bytes(b"")
        spare.replace(self.path)
        votes._fill(self.path, content)
        votes.sync_folder(self.path.parent)

    monkeypatch.setattr(VoteFile, "write", write)


@pytest.mark.parametrize(
    "breaking",
    [
        folder_is_not_synced,
        file_is_not_synced,
        written_in_place,
        told_before_it_is_written,
        renamed_before_it_is_written,
    ],
)
async def test_a_vote_file_that_forgets_is_found_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, breaking: Breaking
) -> None:
    breaking(monkeypatch)

    assert (await promise(monkeypatch, tmp_path)).failure is not None


# Entries


def entries_hold(folder: Path, said: list[int]) -> None:
    """Nothing told is missing, and nothing stands there that was not written before it."""
    if not said:
        return
    stream = StreamWriter(folder, 80)
    try:
        assert not stream.ends_at, "a segment is missing"
        found = [line for line in segments.lines(folder) if line.startswith(b"line")]
    finally:
        stream.close()
    assert found == [b"line %d" % number for number in range(1, len(found) + 1)]
    assert len(found) >= said[-1], "an entry that was told to be on the disk is not"


def write_entries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    """Have the journal's writer write entries of several segments, each with a request."""
    folder = tmp_path / "journal" / "log"
    folder.mkdir(parents=True)
    with monkeypatch.context() as recorded:
        recorder = Recorder(recorded, folder, entries_hold)
        told: queue.Queue[int] = queue.Queue()

        def tell(event: Event) -> None:
            if isinstance(event, Stored):
                recorder.say(event.request)
                told.put(event.request)

        settings = WriterSettings(fsync=JournalFsync.COMMIT, segment_bytes_max=40)
        writer = JournalWriter(folder.parent, ("log",), settings, "log")
        writer.start(tell)
        for request in range(1, LINES + 1):
            writer.write("log", [b"line %d" % request], request)
            while told.get(timeout=TIMEOUT_S) < request:
                pass
        writer.close()
    return recorder


def test_entries_that_were_told_survive_every_crash(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recorder = write_entries(monkeypatch, tmp_path)

    assert recorder.failure is None
    assert recorder.said == list(range(1, LINES + 1))
    assert recorder.crashes > 50


def commit_never_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamWriter, "sync", lambda _: None)


def names_are_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamWriter, "_sync_names", lambda _: None)


def told_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    original: Any = JournalWriter._synced

    def synced(self: JournalWriter, now: float) -> None:
        if self._appended > self._stored:
            self._stored = self._appended
            self._tell(Stored(self._stored))
        original(self, now)

    monkeypatch.setattr(JournalWriter, "_synced", synced)


@pytest.mark.parametrize(
    "breaking", [commit_never_syncs, names_are_not_synced, told_before_the_sync]
)
def test_a_journal_that_forgets_is_found_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, breaking: Breaking
) -> None:
    breaking(monkeypatch)

    assert write_entries(monkeypatch, tmp_path).failure is not None


# The recorder


def test_half_of_a_write_may_be_there_until_the_sync(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    left: list[dict[str, bytes]] = []

    def look(found: Path, _: list[int]) -> None:
        left.append({path.name: path.read_bytes() for path in found.iterdir()})

    with monkeypatch.context() as recorded:
        Recorder(recorded, folder, look)
        file = os.open(folder / "a", os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(file, b"abcd")
        assert left[-4:] == [{}, {"a": b""}, {"a": b"abcd"}, {"a": b"ab"}]
        left.clear()
        os.fsync(file)
        assert left == [{}, {"a": b"abcd"}]
        left.clear()
        segments.sync_folder(folder)
        os.close(file)

    assert left == [{"a": b"abcd"}]
