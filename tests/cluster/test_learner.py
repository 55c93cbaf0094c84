"""What a member takes of coordinators' logs, and what it says to what does not fit."""

from typing import Any

import msgspec

from mdserver.cluster.messages import (
    Accept,
    AcceptItem,
    Ack,
    AnyPeerMessage,
    Commit,
    CommitItem,
    Nack,
    NackItem,
    PeerReceived,
    SendPeer,
    Sync,
    SyncItem,
    SyncRequest,
)
from mdserver.core.message import Entry, Publication
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster

SUBJECT = "/a/b"


class Group:
    """A group that holds one entry, its coordinator, and a seed that learns from it."""

    def __init__(self) -> None:
        self.cluster = cluster = Cluster(3)
        cluster.start()
        cluster.until(cluster.ready)
        cluster.run(3 * S)
        self.index = cluster.group(SUBJECT)
        cluster.open("m1:1", 1)
        cluster.publish("m1:1", 1, SUBJECT, "one")
        cluster.run(S)
        self.coordinator = str(cluster.coordinator(self.index))
        self.seed = next(name for name in cluster.names if name != self.coordinator)
        self.epoch = self.held.epoch

    @property
    def held(self) -> Any:
        return self.cluster.statistics(self.seed).groups[self.index]

    def say(self, message: Any, peer: str | None = None) -> list[Any]:
        """What the seed answers, without acks that wait for its disk."""
        received = PeerReceived(peer or self.coordinator, [message])
        outputs = self.cluster.feed(self.seed, received)
        return [output.message for output in outputs if isinstance(output, SendPeer)]

    def accept(self, start: int, *contents: str, epoch: int = 0, committed: int = 0) -> Accept:
        epoch = epoch or self.epoch
        entries = [
            Entry(epoch, start + 1 + at, Publication(SUBJECT, content.encode()), start + 1 + at)
            for at, content in enumerate(contents)
        ]
        return Accept([AcceptItem(self.index, epoch, start, committed, entries, [])])

    def sync(self, start: int, *contents: str, epoch: int, committed: int = 0) -> Sync:
        item = self.accept(start, *contents, epoch=epoch).items[0]
        return Sync(
            [
                SyncItem(
                    self.index,
                    epoch,
                    self.held.history,
                    start,
                    item.entries,
                    [],
                    committed,
                    active=True,
                    cold=False,
                    register=0,
                    state=None,
                )
            ]
        )


def requests(messages: list[Any], group: int) -> list[tuple[int, int]]:
    """What is asked for of a group: after how many committed entries, and with which epoch."""
    return [
        (item.committed, item.accepted)
        for message in messages
        if isinstance(message, SyncRequest)
        for item in message.items
        if item.group == group
    ]


def test_entries_that_follow_on_are_taken_and_acknowledged() -> None:
    group = Group()
    (ack,) = group.say(group.accept(1, "two", "three"))
    assert isinstance(ack, Ack)
    assert [(item.group, item.epoch, item.length) for item in ack.items] == [
        (group.index, group.epoch, 3)
    ]
    assert (group.held.length, group.held.committed) == (3, 1)


def test_entries_that_are_here_already_are_acknowledged_again_and_not_taken_twice() -> None:
    """A link was lost with the first ack."""
    group = Group()
    group.say(group.accept(1, "two"))
    before = group.held
    (ack,) = group.say(group.accept(1, "two"))
    assert isinstance(ack, Ack)
    assert group.held == before


def test_what_is_committed_is_shown_once_and_never_beyond_what_is_held() -> None:
    group = Group()
    group.say(group.accept(1, "two", committed=2))
    assert group.held.committed == 2
    group.say(group.accept(2, "three", committed=7))
    assert group.held.committed == 3
    shown = group.cluster.members[group.seed].committed[group.index]
    assert [entry.publication.content for entry in shown] == [b"one", b"two", b"three"]


def test_an_older_epoch_is_told_of_the_newer_one() -> None:
    group = Group()
    before = group.held
    stale = group.accept(1, "two", epoch=group.epoch - 1)
    peer = next(name for name in group.cluster.names if name not in (group.seed, group.coordinator))
    assert group.say(stale, peer) == [
        Nack([NackItem(group.index, group.epoch - 1, group.epoch, group.coordinator)])
    ]
    assert group.held == before


def test_a_gap_is_asked_for_and_not_again_at_once() -> None:
    group = Group()
    before = group.held
    assert requests(group.say(group.accept(5, "six")), group.index) == [(1, group.epoch)]
    assert requests(group.say(group.accept(6, "seven")), group.index) == []
    group.cluster.run(3 * S)
    assert requests(group.say(group.accept(7, "eight")), group.index) == [(1, group.epoch)]
    assert group.held == before


def test_a_newer_epoch_is_asked_for_at_once_and_nothing_of_it_is_taken_before_its_log() -> None:
    group = Group()
    group.say(group.accept(5, "six"))
    newer = group.accept(1, "two", epoch=group.epoch + 1)
    assert requests(group.say(newer), group.index) == [(1, group.epoch)]
    assert group.held.length == 1


def test_a_commit_of_what_is_not_here_is_asked_for() -> None:
    group = Group()
    beyond = Commit([CommitItem(group.index, group.epoch, 4)])
    assert requests(group.say(beyond), group.index) == [(1, group.epoch)]
    assert group.held.committed == 1
    old = Commit([CommitItem(group.index, group.epoch - 1, 4)])
    assert group.say(old) == []


def test_a_log_that_lacks_what_is_committed_here_is_not_taken() -> None:
    """Its coordinator hears what is held here, and starts a new history."""
    group = Group()
    before = group.held
    other = group.sync(0, "another", epoch=group.epoch + 1, committed=1)
    assert requests(group.say(other), group.index) == [(1, group.epoch)]
    assert group.held == before


def test_a_log_replaces_what_is_not_committed() -> None:
    group = Group()
    group.say(group.accept(1, "two", "three"))
    group.say(group.sync(1, "other two", epoch=group.epoch + 1, committed=2))
    held = group.held
    assert (held.length, held.committed, held.log_epoch) == (2, 2, group.epoch + 1)
    shown = group.cluster.members[group.seed].committed[group.index]
    assert [entry.publication.content for entry in shown] == [b"one", b"other two"]


class Starved(Cluster):
    """A cluster in which one member gets nobody's log."""

    starved = ""

    def send(self, sender: str, receiver: str, message: AnyPeerMessage, data: bytes) -> None:
        if receiver != self.starved or not isinstance(message, Sync):
            super().send(sender, receiver, message, data)


def test_a_seed_that_missed_a_cold_start_keeps_its_log_until_all_of_the_new_one_is_there() -> None:
    """It votes, so it must not begin anew with a log that it cannot take."""
    cluster = Starved(3, 1)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.open("m3:1", 1)
    for number in range(3):
        cluster.publish("m3:1", 1, SUBJECT, str(number))
        cluster.run(S)
    for name in ("m1:1", "m2:1"):
        cluster.kill(name)
    cluster.run(2 * S)
    cluster.starved = "m3:1"
    cluster.start("m1:1", "m2:1")
    cluster.until(lambda: cluster.ready("m1:1", "m2:1"))
    cold, missed = (cluster.statistics(name).groups[0] for name in ("m1:1", "m3:1"))
    assert cold.history != missed.history
    cluster.starved = ""
    cluster.kill(str(cold.coordinator))
    held = []
    while cluster.coordinator(0) is None:
        cluster.run(MS)
        held.append(cluster.statistics("m3:1").groups[0].length)
    assert min(held) == 3
    assert cluster.statistics("m3:1").groups[0].history == cold.history
    assert cluster.statistics("m3:1").groups[0].epoch == cold.epoch + 1, "one election is enough"


def test_the_end_of_a_log_under_another_history_id_replaces_nothing() -> None:
    group = Group()
    before = group.held
    sync = group.sync(1, "two", epoch=group.epoch + 1, committed=2)
    other = msgspec.structs.replace(sync.items[0], history="another", active=True)
    (asked,) = group.say(msgspec.structs.replace(sync, items=[other]))
    assert isinstance(asked, SyncRequest)
    assert (asked.items[0].history, group.held) == (before.history, before)
