"""What a server finds in its journal at a start, after every kind of end."""

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from attrs import define
from structlog.testing import capture_logs

from mdserver.client import Client
from mdserver.cluster.node import Node
from mdserver.cluster.votes import VoteRecord, read
from mdserver.cluster.wal import WalAppended
from mdserver.config import Config, load
from mdserver.errors import StartError
from mdserver.journal import segments
from mdserver.journal.segments import StreamWriter
from mdserver.journal.wal_lines import LOG, entry_of
from mdserver.server.member import open_member
from mdserver.server.server import Server
from mdserver.server.store import build_node, open_store
from tests.server.serving import route, serving

GROUPS = 4


def config_of(folder: Path, **settings: str) -> Config:
    named = {
        "Journal": "on",
        "JournalFolder": str(folder),
        "JournalFsync": "commit",
        "Entitlement": "None",
        "ClusterSubjectGroups": str(GROUPS),
        **settings,
    }
    return load(overrides=[f"{name}={value}" for name, value in named.items()]).config


@define
class Life:
    """One life of a server."""

    node: Node
    server: Server

    async def publish(self, *contents: str, subject: str = "/a/b") -> None:
        async with Client(self.server.urls, publisher=None) as client:
            for content in contents:
                await client.publish(subject, content)

    @property
    def history(self) -> str:
        return self.node.history

    def held(self) -> dict[str, list[str]]:
        """Subject -> contents."""
        return {
            image.subject: [entry.publication.content.decode() for entry in image.entries]
            for group in range(GROUPS)
            for image in self.node.broker.export_group(group).subjects
        }


@contextlib.asynccontextmanager
async def life(folder: Path, **settings: str) -> AsyncIterator[Life]:
    """A server in this process; it ends as it should at the end of the block."""
    config = config_of(folder, **settings)
    store = open_store(config, None)
    assert store is not None
    node = build_node(config, None, store)
    async with serving(node=node) as server:
        journal = store.journal(node, server.engine)
        assert journal.wal is not None
        route(server, committed=journal.committed, write_wal=journal.wal.write)
        async with journal.running(), trio.open_nursery() as nursery:
            nursery.start_soon(journal.run)
            await journal.settle(node)
            assert node.settled
            yield Life(node, server)
            nursery.cancel_scope.cancel()


def crashed(folder: Path) -> Path:
    """What a crash at this moment would leave."""
    left = folder.with_name(folder.name + "-crashed")
    shutil.copytree(folder, left)
    return left


async def test_a_clean_end_and_a_crash_leave_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    async with life(folder) as first:
        await first.publish("one", "two")
        await first.publish("three", subject="/a/c")
        left = crashed(folder)
        history = first.history
    for place in (folder, left):
        async with life(place) as again:
            assert again.history == history
            assert again.held() == {"/a/b": ["one", "two"], "/a/c": ["three"]}


async def test_every_message_has_one_row_however_often_it_restarts(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    for index in range(4):
        async with life(folder) as one:
            await one.publish(f"{index}")
            left = crashed(folder)
        shutil.rmtree(folder)
        left.rename(folder)
    async with life(folder) as one:
        await one.publish("last")
    lines = [line for line in segments.lines(folder / "messages") if b"/a/b" in line]
    assert len(lines) == 5
    assert len({line.partition(b'"seq"')[2][:3] for line in lines}) == 5


async def test_a_damaged_line_ends_what_is_believed_and_clients_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    async with life(folder) as first:
        await first.publish("one", "two", "three")
        history = first.history
    (segment,) = segments.sealed(folder / LOG)
    lines = segment.path.read_bytes().splitlines(keepends=True)
    second = [at for at, line in enumerate(lines) if isinstance(entry_of(line[:-1]), WalAppended)][
        1
    ]
    lines[second] = lines[second][:40] + b"AAAA" + lines[second][44:]
    segment.path.write_bytes(b"".join(lines))
    async with life(folder) as again:
        assert again.history != history
        assert again.held() == {"/a/b": ["one"]}
        await again.publish("four")
        renewed, held = again.history, again.held()
    async with life(folder) as third:
        assert (third.history, third.held()) == (renewed, held)


@pytest.mark.parametrize(
    ("fsync", "ended", "same"),
    [("commit", False, True), ("interval", False, False), ("interval", True, True)],
)
async def test_after_a_power_cut_the_history_goes_on_where_all_was_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: str, ended: bool, same: bool
) -> None:
    folder = tmp_path / "journal"
    async with life(folder, JournalFsync=fsync) as first:
        await first.publish("one")
        left = crashed(folder)
        history = first.history
    boot = tmp_path / "boot"
    boot.write_text("another\n")
    monkeypatch.setattr("mdserver.server.store.BOOT_ID", boot)
    async with life(folder if ended else left, JournalFsync=fsync) as again:
        assert (again.history == history) is same
        assert again.held() == {"/a/b": ["one"]}


async def test_another_number_of_groups_is_refused(tmp_path: Path) -> None:
    async with life(tmp_path):
        pass
    with pytest.raises(
        StartError, match="ClusterSubjectGroups = 4, and now ClusterSubjectGroups = 8"
    ):
        open_store(config_of(tmp_path, ClusterSubjectGroups="8"), None)


async def test_without_all_groups_the_history_begins_anew(tmp_path: Path) -> None:
    async with life(tmp_path) as first:
        await first.publish("one")
        history = first.history
    (segment,) = segments.sealed(tmp_path / LOG)
    lines = segment.path.read_bytes().splitlines(keepends=True)
    segment.path.write_bytes(b"".join(lines[:3]))
    async with life(tmp_path) as again:
        assert again.history != history
        await again.publish("two")
        assert "two" in again.held()["/a/b"]


async def test_the_log_is_written_anew_when_it_has_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdserver.server.disk.wal_writer.JOURNAL_LOG_BYTES_MIN", 20_000)
    settings: dict[str, Any] = {"MaxCachedMessagesPerSubject": "10"}
    async with life(tmp_path, **settings) as first:
        for _ in range(20):
            await first.publish(*["x" * 1000] * 10)
        with trio.fail_after(30):
            while segments.numbers(tmp_path / LOG)[0] == 1:  # noqa: ASYNC110 - a thread's doing
                await trio.sleep(0.02)
        held, history = first.held(), first.history
        left = crashed(tmp_path)
    size = sum(path.stat().st_size for path in (left / LOG).glob("seg-*"))
    assert size < 150_000  # 200 messages of 1,000 bytes were published
    async with life(left, **settings) as again:
        assert (again.held(), again.history) == (held, history)
        await again.publish("after")
        assert again.held()["/a/b"][-1] == "after"


def seed_config(folder: Path, fsync: str = "commit") -> Config:
    members = "127.0.0.1:1, 127.0.0.1:2, 127.0.0.1:3"
    return config_of(
        folder / "journal",
        JournalFsync=fsync,
        ClusterMembers=members,
        ClusterPassword="sixteen or more characters",
        ClusterMemberListen="127.0.0.1:1",
        ClusterMemberCoordinationFolder=str(folder),
    )


def found_by_seed(folder: Path, fsync: str = "commit") -> int | None:
    """How many entries a start of the seed relies on; None where it writes none."""
    config = seed_config(folder, fsync)
    member = open_member(config)
    store = open_store(config, member)
    assert store is not None
    assert member is not None
    assert member.file is not None
    if store.begun is not None:
        store.writer.start(lambda _: None)
    store.writer.close()
    member.file.close()
    return None if store.begun is None else len(store.wal)


def test_a_seed_relies_on_entries_only_if_every_start_since_wrote_them(tmp_path: Path) -> None:
    assert [found_by_seed(tmp_path) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(StartError, match="JournalFsync = interval it would not be used"):
        found_by_seed(tmp_path, "interval")
    assert found_by_seed(tmp_path) == 3
    (tmp_path / "journal" / "log").rename(tmp_path / "kept")
    assert found_by_seed(tmp_path, "interval") is None
    (tmp_path / "kept").rename(tmp_path / "journal" / "log")
    assert [found_by_seed(tmp_path) for _ in range(2)] == [0, 1]
    assert len(list((tmp_path / "journal" / "log" / "aside-1").iterdir())) == 4


def test_a_seed_that_was_none_for_a_while_does_not_rely_on_its_log(tmp_path: Path) -> None:
    me, *others = (f"127.0.0.1:{port}" for port in range(1, 5))

    def note(number: int, seeds: list[str]) -> None:
        """What a seed writes when it learns of another list of seeds."""
        (path,) = tmp_path.glob("votes-*.json")
        record = read(path.read_bytes())
        record.number, record.listed, record.recorded = number, seeds, False
        path.write_bytes(record.encode())

    assert [found_by_seed(tmp_path) for _ in range(2)] == [0, 1]
    note(2, others)
    assert found_by_seed(tmp_path) is None, "it is no seed, and writes no log"
    note(3, [*others, me])
    assert [found_by_seed(tmp_path) for _ in range(3)] == [0, 1, 2]
    assert len(list((tmp_path / "journal" / "log" / "aside-1").iterdir())) == 2


def test_a_seed_that_lost_its_vote_file_does_not_rely_on_its_log(tmp_path: Path) -> None:
    assert [found_by_seed(tmp_path) for _ in range(2)] == [0, 1]
    (path,) = tmp_path.glob("votes-*.json")
    path.unlink()
    with pytest.raises(StartError, match="There is no vote file"):
        found_by_seed(tmp_path)
    path.write_bytes(b"damaged")
    assert found_by_seed(tmp_path) == 0
    assert len(list((tmp_path / "journal" / "log" / "aside-1").iterdir())) == 2


def test_a_seed_with_a_damaged_log_takes_its_logs_from_others(tmp_path: Path) -> None:
    assert [found_by_seed(tmp_path) for _ in range(2)] == [0, 1]
    segment = segments.sealed(tmp_path / "journal" / LOG)[0]
    segment.path.write_bytes(b"damaged\n")
    assert [found_by_seed(tmp_path) for _ in range(2)] == [0, 1]


def test_the_journal_of_another_member_is_refused(tmp_path: Path) -> None:
    found_by_seed(tmp_path)
    with pytest.raises(StartError, match="by a member of a cluster, and this is a single server"):
        open_store(config_of(tmp_path / "journal"), None)


def copied(source: Path, target: Path) -> None:
    """What a backup that is restored does."""
    if target.is_dir():
        shutil.rmtree(target)
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)


@pytest.mark.parametrize("older", ["log", "votes", "segment", "middle"])
def test_an_older_copy_is_not_taken_for_whole(tmp_path: Path, older: str) -> None:
    """The log or the vote file is of an earlier start than the other, or a segment is missing."""
    assert [found_by_seed(tmp_path) for _ in range(2)] == [0, 1]
    (votes,) = tmp_path.glob("votes-*.json")
    record = msgspec.json.decode(votes.read_bytes(), type=VoteRecord)
    record.admitted = True
    votes.write_bytes(record.encode())
    folder = tmp_path / "journal" / "log"
    shutil.copytree(folder, tmp_path / "backup")
    shutil.copyfile(votes, tmp_path / "votes-backup")
    assert found_by_seed(tmp_path) == 2
    if older == "log":
        copied(tmp_path / "backup", folder)
    elif older == "votes":
        copied(tmp_path / "votes-backup", votes)
    else:
        segments.sealed(folder)[1 if older == "middle" else -1].path.unlink()
    with capture_logs() as logs:
        assert found_by_seed(tmp_path) == 0
    (said,) = [line for line in logs if line["event"].startswith("journal not used")]
    expected = {
        "log": "last start that it knows of is 2, and the vote file says that 3 wrote",
        "votes": "the vote file is an older copy: it knows of start 2 of this seed, and the log of"
        " start 3",
        "segment": "its last segment, 3, is missing",
        "middle": "a segment is missing before",
    }[older]
    assert expected in said["reason"]
    assert Path(said["kept_in"]).is_dir()
    record = msgspec.json.decode(votes.read_bytes(), type=VoteRecord)
    assert (record.admitted, record.incarnation) == (older != "votes", 4)
    assert [found_by_seed(tmp_path) for _ in range(2)] == [1, 2]


@pytest.mark.parametrize(("ends_at", "found"), [("append", 2), ("sync", 3)])
def test_a_start_that_ends_at_any_moment_leaves_what_fits(
    tmp_path: Path, ends_at: str, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vote file, the log and the vote file again are written: cut off between two of them."""
    folder = tmp_path / "seed"
    assert [found_by_seed(folder) for _ in range(2)] == [0, 1]

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(StreamWriter, ends_at, end)
        with pytest.raises(KeyboardInterrupt):
            found_by_seed(folder)
    assert found_by_seed(crashed(folder)) == found


async def test_a_single_server_without_its_last_segment_begins_a_new_history(
    tmp_path: Path,
) -> None:
    async with life(tmp_path) as first:
        await first.publish("one")
        history = first.history
    async with life(tmp_path) as second:
        await second.publish("two")
        assert second.history == history
    segments.sealed(tmp_path / LOG)[-1].path.unlink()
    async with life(tmp_path) as again:
        assert again.history != history
        assert again.held() == {"/a/b": ["one"]}
