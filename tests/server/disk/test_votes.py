"""The vote file: one incarnation more at each start, whole or not there, damage is kept aside."""

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
import trio

from mdserver.cluster.identity import Identity
from mdserver.cluster.messages import Persist, Persisted
from mdserver.cluster.votes import Vote, VoteRecord
from mdserver.errors import StartError
from mdserver.server.disk.votes import VoteFile, VoteWriter
from mdserver.server.engine import Engine

ME = "127.0.0.1:8901"
OTHERS = "127.0.0.1:8902", "127.0.0.1:8903"
SEEDS = (ME, *OTHERS)
IDENTITY = Identity(ME, SEEDS, 2)


def content(
    member: str = ME, seeds: Sequence[str] = SEEDS, groups: int = 2, *, listed: bool = True
) -> bytes:
    """A vote file of another start."""
    identity = Identity(member, tuple(seeds), groups)
    record = VoteRecord(
        member, identity.cluster, 1, True, [Vote()] * groups, seeds=list(seeds) if listed else []
    )
    return record.encode()


def test_the_incarnation_rises_at_each_start_and_promises_stay(tmp_path: Path) -> None:
    file = VoteFile(tmp_path / "votes", ME)
    record = file.read(IDENTITY)
    assert (record.incarnation, record.admitted, file.found, file.damage) == (1, False, False, None)
    assert file.begin(record) is None
    record.promised[1] = Vote(7, "other")
    record.known["other"] = 3
    file.write(record.encode())
    file.close()
    file = VoteFile(tmp_path / "votes", ME)
    again = file.read(IDENTITY)
    assert (again.incarnation, again.promised, again.known) == (2, record.promised, {"other": 3})
    assert file.found
    names = {path.name for path in (tmp_path / "votes").iterdir()}
    assert names == {file.path.with_suffix(suffix).name for suffix in (".json", ".spare", ".lock")}


def test_damaged_files_are_kept_aside_however_many(tmp_path: Path) -> None:
    for number, damaged in enumerate((b"", b'{"member": "x"', b"[]")):
        file = VoteFile(tmp_path, ME)
        file.path.write_bytes(damaged)
        record = file.read(IDENTITY)
        assert (record.incarnation, record.admitted) == (1, False)
        assert file.path.read_bytes() == damaged, "reading changes nothing"
        aside = file.begin(record)
        assert aside is not None
        assert aside.read_bytes() == damaged
        assert len(list(tmp_path.glob("*.damaged*"))) == number + 1
        file.close()


@pytest.mark.parametrize(
    ("stored", "reasons"),
    [
        (content("127.0.0.1:1"), ["ClusterMemberListen = 127.0.0.1:1", f"= {ME}"]),
        (content(groups=1), ["ClusterSubjectGroups = 1", "ClusterSubjectGroups = 2"]),
        (content(groups=1, listed=False), ["ClusterSubjectGroups = 1"]),
        (content(seeds=SEEDS[::-1]), ["the order of ClusterMembers"]),
        (content(seeds=SEEDS[::-1], listed=False), ["other seeds than"]),
        (content(seeds=SEEDS[:1]), ["1 seed 127.0.0.1:8901", "3 seeds", "ClusterSeedMemberCount"]),
        (content(seeds=(*SEEDS[:2], "127.0.0.1:2")), ["127.0.0.1:2", "ClusterMembers differs"]),
    ],
)
def test_a_file_of_another_identity_is_refused_by_name(
    tmp_path: Path, stored: bytes, reasons: list[str]
) -> None:
    file = VoteFile(tmp_path, ME)
    file.path.write_bytes(stored)
    with pytest.raises(StartError) as refused:
        file.read(IDENTITY)
    for reason in reasons:
        assert reason in str(refused.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {file.path.name: stored}


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StartError, match="Cannot use the vote file"):
        VoteFile(tmp_path / "file" / "votes", ME).read(IDENTITY)


def test_members_of_one_host_do_not_share_a_file(tmp_path: Path) -> None:
    assert VoteFile(tmp_path, ME).path != VoteFile(tmp_path, "127.0.0.1:8902").path


def test_a_record_takes_no_space_that_the_file_does_not_have(tmp_path: Path) -> None:
    """So that a full disk keeps no seed from voting: two files take turns."""
    file = VoteFile(tmp_path, ME)
    record = file.read(IDENTITY)
    file.begin(record)
    files = file.path, file.path.with_suffix(".spare")

    def space() -> set[tuple[int, int, int]]:
        return {(stat.st_ino, stat.st_size, stat.st_blocks) for stat in map(Path.stat, files)}

    before = space()
    for epoch in range(1, 6):
        record.promised[0] = Vote(epoch * 1000, "candidate")
        file.write(record.encode())
        assert space() == before
        assert VoteFile(tmp_path, ME).read(IDENTITY).promised == record.promised
    names = {path.name for path in tmp_path.iterdir()} - {file.path.with_suffix(".lock").name}
    assert names == {path.name for path in files}


@pytest.mark.parametrize("step", ["spare", "old"])
def test_an_end_between_two_steps_leaves_the_old_record_or_the_new_one(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = VoteFile(tmp_path, ME)
    record = file.read(IDENTITY)
    file.begin(record)
    record.promised[0] = Vote(7, "candidate")
    replaced = Path.replace

    def ends(path: Path, target: Path) -> Path:
        if path.suffix == f".{step}":
            raise KeyboardInterrupt
        return replaced(path, target)

    monkeypatch.setattr(Path, "replace", ends)
    with pytest.raises(KeyboardInterrupt):
        file.write(record.encode())
    monkeypatch.undo()
    file.close()
    again = VoteFile(tmp_path, ME)
    found = again.read(IDENTITY)
    assert found.promised[0].epoch == (7 if step == "old" else 0)
    found.promised[0] = Vote(8, "candidate")
    again.begin(found)
    assert VoteFile(tmp_path, ME).read(IDENTITY).promised[0].epoch == 8
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".spare", ".lock"}


def test_a_file_is_written_by_one_process_at_a_time(tmp_path: Path) -> None:
    first, second, third = (VoteFile(tmp_path, ME) for _ in range(3))
    mine, theirs, late = (file.read(IDENTITY) for file in (first, second, third))
    first.begin(mine)
    first.begin(mine)
    stored = first.path.read_bytes()
    with pytest.raises(StartError, match="is used by another process"):
        second.begin(theirs)
    assert VoteFile(tmp_path, "127.0.0.1:8902").begin(theirs) is None, "another member's own"
    first.close()
    with pytest.raises(StartError, match="was written by another process meanwhile"):
        third.begin(late)
    assert first.path.read_bytes() == stored


def test_after_a_failed_sync_the_next_attempt_begins_with_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what of the file is on the disk, and a second sync of it may say all is."""
    file = VoteFile(tmp_path, ME)
    record = file.read(IDENTITY)
    file.begin(record)

    def fails(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fails)
        with pytest.raises(OSError, match="Input/output error"):
            file.write(record.encode())
    assert not file.path.with_suffix(".spare").exists()
    file.write(record.encode())


class Told:
    """The member that a writer tells what is on the disk."""

    def __init__(self) -> None:
        self.requests: list[int] = []
        self.last = trio.Event()

    def dispatch(self, persisted: Persisted) -> None:
        self.requests.append(persisted.request)
        if persisted.request == 2:
            self.last.set()


async def test_a_record_that_comes_while_another_is_written_is_written_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go = threading.Event(), threading.Event()
    original = VoteFile.write

    def write(self: VoteFile, content: bytes) -> None:
        began.set()
        assert go.wait(60)
        original(self, content)

    monkeypatch.setattr(VoteFile, "write", write)
    told = Told()
    writer = VoteWriter(VoteFile(tmp_path, ME), cast(Engine, told))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            writer.persist(Persist(1, content()))
            await trio.to_thread.run_sync(began.wait, 60)
            writer.persist(Persist(2, content()))
            go.set()
            await told.last.wait()
            nursery.cancel_scope.cancel()
    assert told.requests == [1, 2]
