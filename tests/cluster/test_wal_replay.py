"""Seeds that write their logs down have them again after a restart, and vote at once."""

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from mdserver.cluster.node import TICK
from mdserver.cluster.settings import alone
from mdserver.cluster.votes import Vote, VoteRecord
from mdserver.cluster.wal import (
    AnyWalEntry,
    Checkpoint,
    WalAppended,
    WalBegun,
    WalCommitted,
    WalLog,
    WalRenamed,
    WalResumed,
    WalSynced,
    WriteWal,
)
from mdserver.cluster.wal_replay import WalError
from mdserver.core.commands import PositionAfter, Publish, Subscribe
from mdserver.core.events import Delivery, Error, Status, StatusName
from mdserver.core.inputs import Opened, Received, TimerDue
from mdserver.core.message import Entry, MessageType
from mdserver.core.outputs import Committed, Deliver, Send
from mdserver.core.settings import BrokerSettings
from mdserver.core.subjects import group_of
from mdserver.limits import FORWARD_BYTES_MAX, JOURNAL_HOLD_BYTES
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from simulation.clock import Heap
from simulation.cluster import PUBLISHER_SECRET, WAL, Cluster, Disk, Driver, known

GROUPS = 4


def written(*entries: AnyWalEntry) -> list[bytes]:
    """Return entries of a write-ahead log as a disk has them."""
    return [msgspec.msgpack.encode(entry) for entry in entries]


class Single(Driver):
    """A single server in memory, on a disk that has these entries.

    Its disk takes nothing until `write`. `requested` are the writes that the node asked for.
    """

    def __init__(self, wal: Sequence[bytes] = (), *, synced: bool = True) -> None:
        # Each start has an incarnation of its own, which is later the more is on the disk.
        votes = VoteRecord("one", "", len(wal), False, [Vote()] * GROUPS, {})
        super().__init__("one", Heap(), Disk(votes.encode(), list(wal)))
        self.requested: list[WriteWal] = []
        self.committed: list[Entry] = []
        self.sent: list[Send] = []
        self.delivered: list[Deliver] = []
        self.carriers |= {
            WriteWal: self._note_requested,
            Committed: lambda output: self.committed.extend(output.entries),
            Send: self.sent.append,
            Deliver: self.delivered.append,
        }
        settings = alone("one", writes_wal=True, acks_wait_for_wal=synced)
        broker = BrokerSettings(member="one", groups=GROUPS, publisher_secret=PUBLISHER_SECRET)
        self.boot(broker, settings, "", random.Random(7))
        self.step(TimerDue(TICK))

    def _note_requested(self, output: WriteWal) -> None:
        self.requested.append(output)
        self._write_wal(output)

    @property
    def wal(self) -> list[bytes]:
        return self.disk.wal

    def disk_delay(self) -> int:
        return 0

    def write(self) -> None:
        """The disk takes what waits for it."""
        while self.heap.step(self.heap.now):
            pass

    def connect(self, session: int, publisher: str | None = None) -> None:
        self.step(Opened(session, "127.0.0.1"))
        self.step(Received(session, [known(publisher)]))

    def publish(self, session: int, subject: str, content: str, **more: Any) -> None:
        command = Publish(subject=subject, content=content, id=content, **more)
        self.step(Received(session, [command]))

    def acks(self) -> dict[object, tuple[int | None, int | None]]:
        return {
            send.event.id: (send.event.epoch, send.event.seq)
            for send in self.sent
            if isinstance(send.event, Status) and send.event.status is StatusName.PUBLISH_OK
        }

    def held(self) -> list[tuple[Any, ...]]:
        """All that a restart must not change."""
        return [
            (group.history, group.log.length, group.log.tables(), group.state.image())
            for group in self.running.groups
        ]

    def second(self) -> None:
        """Let a second go by; the disk takes what waits for it first."""
        end = self.heap.now + S
        while self.heap.step(end):
            pass


def running(**options: Any) -> Single:
    single = Single(**options)
    single.write()
    single.connect(1, "p")
    return single


def test_an_ack_waits_for_the_disk() -> None:
    single = running()
    single.publish(1, "/a/b", "one")
    assert single.acks() == {}
    assert single.committed == []
    single.write()
    assert single.acks() == {"one": (1, 1)}
    assert [entry.publication.content for entry in single.committed] == [b"one"]


def test_an_ack_does_not_wait_where_it_need_not() -> None:
    single = running(synced=False)
    single.publish(1, "/a/b", "one")
    assert single.acks() == {"one": (1, 1)}


def test_publications_that_wait_share_a_request() -> None:
    single = running()
    before = len(single.requested)
    for index in range(20):
        single.publish(1, f"/a/{index}", f"{index}")
    assert single.wal_writes == GROUPS
    single.step(WalSynced(single.requested[-1].request))
    assert len(single.acks()) == GROUPS
    (record,) = single.requested[before + GROUPS :]
    assert len(record.entries) == GROUPS  # with all that came to each group meanwhile
    single.step(WalSynced(record.request))
    assert len(single.acks()) == 20


def test_a_restart_gives_the_same_logs_tables_caches_and_history_id() -> None:
    single = running()
    for index in range(50):
        single.publish(1, f"/a/{index % 7}", f"{index}", retained=index % 3 > 0)
        single.publish(1, "/numbered/one", f"n{index}", number=index + 1)
        single.write()
    again = Single(single.wal)
    again.write()
    assert again.held() == single.held()
    assert again.running.history == single.running.history
    again.connect(1, "p")
    again.publish(1, "/a/3", "after")
    again.write()
    assert again.acks()["after"] == (2, 8)  # a new epoch; the numbering goes on


def test_a_repeated_number_gets_its_old_place_after_a_restart() -> None:
    single = running()
    single.publish(1, "/a/b", "one", number=1)
    single.write()
    again = running(wal=single.wal)
    again.publish(1, "/a/b", "one", number=1)
    again.write()
    assert again.acks() == {"one": (1, 1)}
    assert again.running.group_statistics(group_of("/a/b", GROUPS)).length == 1


def test_a_client_recovers_over_a_restart() -> None:
    single = running()
    history = single.running.history
    for text in "abc":
        single.publish(1, "/a/b", text)
        single.write()
    again = running(wal=single.wal)
    position = PositionAfter(history=history, epoch=1, seq=1)
    again.step(Received(1, [Subscribe(subjects=["/a/b"], positions={"/a/b": position})]))
    texts = [
        (send.event.type, send.event.entry.publication.content)
        for send in again.sent
        if isinstance(send.event, Delivery)
    ]
    assert texts == [(MessageType.RECOVERED, b"b"), (MessageType.RECOVERED, b"c")]
    assert not any(isinstance(send.event, Error) for send in again.sent)


def test_what_was_not_said_to_be_learned_is_handed_on_again() -> None:
    single = running()
    single.publish(1, "/a/b", "noted")
    single.write()
    single.second()
    single.write()
    single.publish(1, "/a/b", "not noted")
    single.write()
    again = Single(single.wal)
    assert [entry.publication.content for entry in again.committed] == [b"not noted"]
    again.write()
    assert len(again.committed) == 1
    assert again.delivered == []


@pytest.mark.parametrize("seed", range(20))
def test_every_prefix_of_the_records_gives_what_was_acknowledged_by_then(seed: int) -> None:
    """A crash after any record: all that was acknowledged is there, at its place."""
    rng = random.Random(seed)
    single = running()
    acked_at: list[tuple[int, str, str]] = []
    for index in range(30):
        subject = f"/a/{rng.randrange(5)}"
        single.publish(1, subject, f"{index}")
        if rng.random() < 0.5:
            single.write()
        if rng.random() < 0.2:
            single.second()
        if rng.random() < 0.1:
            single.step(Checkpoint(range(GROUPS)))
        known = {text for _, text, _ in acked_at}
        acked_at += [
            (len(single.wal), str(text), single.running.history)
            for text in single.acks()
            if text not in known
        ]
    assert len(acked_at) > 10
    for cut in rng.sample(range(GROUPS * 3, len(single.wal) + 1), 8):
        again = Single(single.wal[:cut])
        again.write()
        there = {
            entry.publication.content.decode()
            for group in range(GROUPS)
            for image in again.running.broker.export_group(group).subjects
            for entry in image.entries
        }
        assert {text for at, text, _ in acked_at if at <= cut} <= there
        assert again.running.history == single.running.history


def test_records_before_a_picture_can_go() -> None:
    single = running()
    for index in range(10):
        single.publish(1, f"/a/{index}", f"{index}")
        single.write()
    before = len(single.wal)
    single.step(Checkpoint(range(GROUPS)))
    single.write()
    single.publish(1, "/a/1", "later")
    single.write()
    again = Single(single.wal[before:])
    again.write()
    assert again.held() == single.held()


@pytest.mark.parametrize("seed", range(20))
def test_every_prefix_of_records_with_a_gap_has_what_was_acknowledged_before(seed: int) -> None:
    """Some were left out; then groups are written anew one after the other, while others go on."""
    rng = random.Random(seed)
    single = running()
    number = 0

    def publish() -> None:
        nonlocal number
        for _ in range(rng.randrange(1, 4)):
            number += 1
            single.publish(1, f"/a/{rng.randrange(9)}", f"{number}")
        single.write()
        if rng.random() < 0.2:
            single.second()
            single.write()

    def texts(one: Single) -> set[str]:
        images = [one.running.broker.export_group(group).subjects for group in range(GROUPS)]
        return {
            entry.publication.content.decode()
            for subjects in images
            for image in subjects
            for entry in image.entries
        }

    single.wal[:0] = written(WalBegun("one", "", GROUPS, 1, "", True))
    for _ in range(10):
        publish()
    before, acked = len(single.wal), {str(name) for name in single.acks()}
    for _ in range(3):
        publish()
    del single.wal[before:]
    single.wal.extend(written(WalBegun("one", "", GROUPS, 1, "", True), WalResumed()))
    for group in rng.sample(range(GROUPS), GROUPS):
        publish()
        single.step(Checkpoint((group,)))
        single.write()
    publish()
    for end in range(before, len(single.wal) + 1):
        again = Single(
            [
                *single.wal[:end],
                *written(WalRenamed("new"), WalBegun("one", "", GROUPS, 2, "", True)),
            ]
        )
        again.write()
        assert acked <= texts(again), end
        again.connect(1)
        for subject in range(9):
            again.publish(1, f"/a/{subject}", f"after {subject}")
            again.write()
        third = Single(again.wal)
        assert texts(third) == texts(again)
    assert texts(again) >= texts(single)


def test_a_renewed_history_id_keeps_what_is_held() -> None:
    single = running()
    single.publish(1, "/a/b", "one")
    single.write()
    again = Single([*single.wal, *written(WalRenamed("new"))])
    again.write()
    assert again.running.history == "new"
    images = [again.running.broker.export_group(group) for group in range(GROUPS)]
    assert {image.history for image in images} == {"new"}
    assert [image.subject for group in images for image in group.subjects] == ["/a/b"]
    assert Single(again.wal).running.history == "new"


def test_records_that_do_not_follow_each_other_are_refused() -> None:
    single = running()
    single.publish(1, "/a/b", "one")
    single.publish(1, "/a/b", "two")
    single.write()
    added = [entry for entry in single.wal if isinstance(WAL.decode(entry), WalAppended)]
    entries = [entry for entry in single.wal if entry is not added[0]]
    with pytest.raises(WalError, match=r"WalAppended\) starts at 1, but the log ends at 0"):
        Single(entries)
    held = WalLog(0, 3, single.running.history, 99, [], [], 0, True, None)
    with pytest.raises(WalError, match=r"WalLog\) starts at 99, but the log ends at"):
        Single([*single.wal, *written(held)])


def test_records_of_groups_that_are_not_held_yet_mean_nothing() -> None:
    single = Single(
        written(
            WalAppended(0, 5, [], []),
            WalCommitted(1, 3),
            WalLog(2, 4, "h", 7, [], [], 0, True, None),
        )
    )
    single.write()
    assert [group.length for group in single.running.statistics().groups] == [0] * GROUPS


# Three seeds


def recording(count: int = 3) -> Cluster:
    cluster = Cluster(count, writes_wal=True, acks_wait_for_wal=True)
    cluster.start()
    cluster.until(cluster.ready, limit=1000 * S)
    return cluster


def acked(cluster: Cluster, name: str) -> dict[object, int | None]:
    return {
        status.id: status.seq
        for status in cluster.members[name].statuses
        if status.status is StatusName.PUBLISH_OK
    }


def histories(cluster: Cluster) -> set[str]:
    return {group.history for m in cluster.members.values() for group in m.node.statistics().groups}


def test_all_seeds_killed_at_once_come_back_normal_with_everything() -> None:
    cluster = recording()
    history = histories(cluster)
    for name in cluster.names:
        cluster.open(name, 1)
        for index in range(10):
            cluster.publish(name, 1, f"/a/{index}", f"{name} {index}")
    cluster.until(lambda: all(len(acked(cluster, name)) == 10 for name in cluster.names))
    for name in cluster.names:
        cluster.kill(name)
    cluster.start()
    assert all(not member.node.statistics().not_voting for member in cluster.members.values())
    cluster.until(cluster.ready)
    assert histories(cluster) == history
    for index in range(10):
        subject = f"/a/{index}"
        images = [
            image
            for member in cluster.members.values()
            for image in member.node.broker.export_group(cluster.group(subject)).subjects
            if image.subject == subject
        ]
        texts = [{e.publication.content.decode() for e in image.entries} for image in images]
        assert texts == [{f"{name} {index}" for name in cluster.names}] * 3
        assert [image.seq for image in images] == [3, 3, 3]


@pytest.mark.parametrize("seed", range(12))
def test_crashes_of_all_seeds_lose_nothing_acknowledged(seed: int) -> None:
    """Again and again all seeds die at a random moment, each in the midst of writing."""
    rng = random.Random(seed)
    cluster = Cluster(3, seed=seed, writes_wal=True, acks_wait_for_wal=True)
    cluster.disk_delays = dict.fromkeys(cluster.names, 20 * MS)
    cluster.start()
    cluster.until(cluster.ready, limit=1000 * S)
    history = histories(cluster)
    told: dict[object, tuple[str, int | None]] = {}
    for life in range(5):
        names = cluster.names
        for name in names:
            cluster.open(name, 1)
        for index in range(30):
            subject, name = f"/a/{rng.randrange(6)}", rng.choice(names)
            cluster.publish(name, 1, subject, f"{subject} {life} {index}")
            cluster.run(rng.randrange(5 * MS))
        for name in names:
            for text, seq in acked(cluster, name).items():
                told[text] = (str(text).partition(" ")[0], seq)
        for name in rng.sample(names, 3):
            cluster.kill(name)
            cluster.run(rng.randrange(2 * MS))
        cluster.start()
        cluster.until(cluster.ready, limit=60 * S)
    cluster.run(S)
    assert histories(cluster) == history
    assert len(told) > 30
    for member in cluster.members.values():
        places = {
            entry.publication.content.decode(): (image.subject, entry.seq)
            for group in range(cluster.groups)
            for image in member.node.broker.export_group(group).subjects
            for entry in image.entries
        }
        assert {text: places.get(str(text)) for text in told} == told


def test_a_seed_that_comes_back_alone_waits_for_a_majority() -> None:
    cluster = recording()
    for name in cluster.names:
        cluster.kill(name)
    cluster.start(cluster.names[0])
    cluster.run(10 * S)
    assert not cluster.ready(cluster.names[0])
    cluster.start(cluster.names[1])
    cluster.until(cluster.ready)


def test_a_seed_that_missed_nothing_follows_the_coordinators_it_finds() -> None:
    cluster = recording()
    cluster.run(5 * S)
    cluster.kill(cluster.names[2])
    cluster.start(cluster.names[2])
    cluster.until(cluster.ready, limit=5 * S)
    assert {group.log_epoch for group in cluster.statistics(cluster.names[2]).groups} == {
        group.log_epoch for group in cluster.statistics(cluster.names[0]).groups
    }


def test_a_coordinator_takes_no_more_than_its_disk_does() -> None:
    """What comes beyond is held back, and taken as the disk goes on."""
    single = running()
    content = "x" * 60_000
    for number in range(600):  # 36 MB in four groups
        single.publish(1, f"/a/{number % 16}", f"{number:03}{content}")
    bound = JOURNAL_HOLD_BYTES + FORWARD_BYTES_MAX + 2 * len(content)
    while single.wal_writes:
        on_their_way = single.requested[-single.wal_writes :]
        assert sum(map(recorded_bytes, on_their_way)) <= bound
        single.heap.step(single.heap.now)
    assert len(single.acks()) == 600


def recorded_bytes(output: WriteWal) -> int:
    return sum(
        len(entry.publication.content)
        for record in output.entries
        if isinstance(record, WalAppended)
        for entry in record.entries
    )
