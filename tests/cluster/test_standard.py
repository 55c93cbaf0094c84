"""Rules of docs/cluster.md, "Standard mode", one scenario each, on members in memory."""

import random
from functools import partial
from typing import Any

import msgspec
import pytest

from mdserver.cluster.messages import (
    AnyPeerMessage,
    Claim,
    ClosePeer,
    PeerReceived,
    PreVote,
    Sync,
    Yield,
)
from mdserver.cluster.votes import VoteRecord
from mdserver.core.commands import PositionAfter
from mdserver.core.events import Connected, Delivery, Move, Reset, Status, StatusName
from mdserver.core.message import MessageType
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S, STANDARD_ALONE_AFTER_S
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster, Member

ALONE = STANDARD_ALONE_AFTER_S * NS_PER_S


def standard(count: int = 3, *, groups: int = 12, **settings: Any) -> Cluster:
    """A cluster of this mode, all of whose members serve and coordinate their share."""
    cluster = Cluster(count, groups, guaranteed=False, **settings)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(3 * S)
    return cluster


def acked(cluster: Cluster, name: str) -> dict[object, Status]:
    return {
        status.id: status
        for status in cluster.members[name].statuses
        if status.status is StatusName.PUBLISH_OK
    }


def publish(cluster: Cluster, name: str, subject: str, content: str, **more: Any) -> Status:
    """Publish through a member and wait for the acknowledgement."""
    cluster.publish(name, 1, subject, content, **more)
    cluster.until(lambda: content in acked(cluster, name))
    return acked(cluster, name)[content]


def shown(events: list[Any]) -> list[str]:
    """What a session got, in words: `SNAPSHOT content 3`, `reset`, a status."""
    found: list[str] = []
    for event in events:
        match event:
            case Delivery():
                content = event.entry.publication.content.decode()
                found.append(f"{event.type.value} {content} {event.entry.seq}")
            case Reset():
                found.append("reset")
            case Status() if event.id is None:
                found.append(event.status.value)
            case Move():
                found.append("move")
    return found


def same_everywhere(cluster: Cluster) -> bool:
    """Whether all members hold the same logs of the same histories."""
    held = [
        [(group.history, group.length) for group in member.node.statistics().groups]
        for member in cluster.members.values()
    ]
    return all(one == held[0] for one in held)


def snapshots(cluster: Cluster) -> list[dict[str, bytes]]:
    """What each member holds as the last content of each subject."""
    found = []
    for member in cluster.members.values():
        broker = member.node.broker
        images = [broker.export_group(group).subjects for group in range(cluster.groups)]
        found.append(
            {
                image.subject: image.snapshot.publication.content
                for subjects in images
                for image in subjects
                if image.snapshot is not None
            }
        )
    return found


def test_members_share_the_groups_without_a_vote_or_a_disk() -> None:
    cluster = standard()
    led = [cluster.coordinator(group) for group in range(cluster.groups)]
    assert all(led.count(name) >= 2 for name in cluster.names)
    assert same_everywhere(cluster)
    records = [
        msgspec.json.decode(disk.votes or b"", type=VoteRecord) for disk in cluster.disks.values()
    ]
    assert {vote.epoch for record in records for vote in record.promised} == {0}
    assert not any(disk.wal for disk in cluster.disks.values())
    assert not any(member.node.seeds.include_me for member in cluster.members.values())


@pytest.mark.parametrize("contact", range(3))
def test_a_publication_is_delivered_everywhere_at_once(contact: int) -> None:
    cluster = standard()
    for name in cluster.names:
        cluster.open(name, 1)
        cluster.subscribe(name, 1, "/a/b")
    begin = cluster.heap.now
    status = publish(cluster, cluster.names[contact], "/a/b", "one")
    cluster.until(
        lambda: all("UPDATE one 1" in shown(m.inboxes[1]) for m in cluster.members.values())
    )
    assert cluster.heap.now - begin <= 20 * MS
    assert status.seq == 1


@pytest.mark.parametrize("last", range(3))
def test_the_last_member_goes_on_and_its_clients_are_told(last: int) -> None:
    cluster = standard()
    name = cluster.names[last]
    subjects = [f"/s/{index}" for index in range(12)]
    cluster.open(name, 1)
    cluster.subscribe(name, 1, *subjects)
    for subject in subjects:
        publish(cluster, name, subject, f"{subject} before")
    for other in cluster.names:
        if other != name:
            cluster.kill(other)
    for subject in subjects:
        status = publish(cluster, name, subject, f"{subject} after")
        assert status.seq == 2
    assert cluster.ready(name)
    member = cluster.members[name]
    assert not member.closed, "nobody is sent elsewhere for want of a majority"
    seen = shown(member.inboxes[1])
    assert "move" not in seen
    for subject in subjects:
        mine = [line for line in seen if f" {subject} " in line]
        led_here = mine == [f"UPDATE {subject} before 1", f"UPDATE {subject} after 2"]
        assert led_here or mine == [
            f"UPDATE {subject} before 1",
            f"SNAPSHOT {subject} before 1",
            f"UPDATE {subject} after 2",
        ]
    assert seen.count("reset") in {1, 2}
    assert cluster.operate(name, "status").answer["quorum"] is True


def test_publications_wait_for_a_successor_and_flow_within_a_second() -> None:
    cluster = standard()
    subject = cluster.subject_of("m2:1")
    cluster.open("m1:1", 1)
    publish(cluster, "m1:1", subject, "before")
    cluster.kill("m2:1")
    begin = cluster.heap.now
    publish(cluster, "m1:1", subject, "after")
    assert cluster.heap.now - begin < S


def test_a_coordinator_that_restarts_before_it_is_missed_is_succeeded() -> None:
    cluster = standard()
    subject = cluster.subject_of("m2:1")
    cluster.open("m1:1", 1)
    publish(cluster, "m1:1", subject, "before")
    cluster.run(S)
    cluster.kill("m2:1")
    cluster.run(50 * MS)
    cluster.start("m2:1")
    begin = cluster.heap.now
    publish(cluster, "m1:1", subject, "after")
    assert cluster.heap.now - begin < 2 * S
    cluster.until(lambda: cluster.ready("m2:1"))


class CutByYield(Cluster):
    """A cluster in which a link breaks as one member yields groups to another."""

    yields = ("", "")

    def send(self, sender: str, receiver: str, message: AnyPeerMessage, data: bytes) -> None:
        super().send(sender, receiver, message, data)
        if (sender, receiver) == self.yields and isinstance(message, Yield):
            self.cut.add(("m2:1", "m4:1"))
            self.heap.after(0, partial(self.disconnect, "m2:1", "m4:1"))


@pytest.mark.parametrize("seed", range(4))
def test_who_does_not_see_whom_a_coordinator_yielded_to_does_not_succeed_it(seed: int) -> None:
    """The one that yielded is in sight, has no groups any more, and did not restart."""
    cluster = CutByYield(4, 12, seed, guaranteed=False)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(3 * S)
    groups = [group for group in range(12) if cluster.coordinator(group) == "m2:1"]
    cluster.operate("m2:1", "drain", "m2:1")
    cluster.run(3 * S)
    group = next(group for group in groups if cluster.coordinator(group) == "m3:1")
    subject = next(f"/s/{at}" for at in range(100) if cluster.group(f"/s/{at}") == group)
    for name in cluster.names:
        cluster.open(name, 1)
        cluster.subscribe(name, 1, subject)
        publish(cluster, name, subject, f"{name} before")
    cluster.yields = ("m3:1", "m2:1")
    cluster.operate("m2:1", "undrain", "m2:1")
    coordinators: set[tuple[str, ...]] = set()
    for index in range(250):
        for name in cluster.names:
            cluster.publish(name, 1, subject, f"{name} {index}")
        cluster.run(20 * MS)
        members = cluster.members.items()
        coordinators.add(tuple(n for n, m in members if m.node.groups[group].coordinator))
    cluster.run(5 * S)
    assert cluster.cut
    assert ("m2:1",) in coordinators
    assert all(len(names) <= 1 for names in coordinators)
    assert same_everywhere(cluster)
    for name, member in cluster.members.items():
        assert "reset" not in shown(member.inboxes[1])
        assert len(acked(cluster, name)) == 1 + 250
        assert member.node.groups[group].log.length == len(cluster.names) * (1 + 250)


@pytest.mark.parametrize(
    ("members", "back", "seed"),
    [(3, True, 0), (3, True, 1), (3, True, 2), (4, False, 0), (4, False, 1), (4, False, 4)],
)
def test_of_two_that_do_not_see_each_other_one_succeeds_a_coordinator(
    members: int, back: bool, seed: int
) -> None:
    """Whom both see tells each of them that the groups go on; here the link broke just before.

    In a cluster of three that is the coordinator itself, which is back before it is missed.
    """
    cluster = Cluster(members, 12, seed, guaranteed=False)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(3 * S)
    victim, first, second, *_ = random.Random(seed).sample(cluster.names, members)
    cluster.cut.add((min(first, second), max(first, second)))
    cluster.disconnect(first, second)
    cluster.run(100 * MS)
    cluster.kill(victim)
    if back:
        cluster.run(50 * MS)
        cluster.start(victim)

    def coordinators(group: int) -> list[str]:
        led = cluster.members.items()
        return [name for name, member in led if member.node.groups[group].coordinator]

    unled = longest = 0
    for _ in range(500):
        cluster.run(10 * MS)
        found = [coordinators(group) for group in range(12)]
        assert max(map(len, found)) <= 1
        unled = 0 if min(map(len, found)) else unled + 1
        longest = max(longest, unled)
    assert longest * 10 * MS < 2 * S
    cluster.heal()
    if not back:
        cluster.start(victim)
    cluster.until(lambda: all(cluster.coordinator(group) for group in range(12)))


def test_members_that_come_back_get_the_cache_and_their_share_without_a_reset() -> None:
    cluster = standard(log_kept=2)
    cluster.open("m1:1", 1)
    cluster.kill("m2:1")
    cluster.kill("m3:1")
    for index in range(40):
        publish(cluster, "m1:1", f"/a/{index % 8}", f"{index}")
    cluster.subscribe("m1:1", 1, "/a/**")
    before = len(cluster.members["m1:1"].inboxes[1])
    cluster.start("m2:1", "m3:1")
    cluster.until(cluster.ready)
    cluster.open("m3:1", 2)
    cluster.subscribe("m3:1", 2, "/a/3")
    assert shown(cluster.members["m3:1"].inboxes[2]) == ["SNAPSHOT 35 5"]
    cluster.run(4 * S)
    led = {cluster.coordinator(group) for group in range(cluster.groups)}
    assert led == set(cluster.names)
    assert same_everywhere(cluster)
    publish(cluster, "m1:1", "/a/3", "more")
    assert shown(cluster.members["m1:1"].inboxes[1][before:]) == ["UPDATE more 6"]


def test_one_member_of_three_serves_alone_after_a_while() -> None:
    cluster = Cluster(3, guaranteed=False)
    cluster.start("m2:1")
    took = cluster.until(cluster.ready)
    assert ALONE <= took <= ALONE + S
    cluster.open("m2:1", 1)
    publish(cluster, "m2:1", "/a/b", "alone")
    cluster.start("m1:1")
    cluster.until(cluster.ready)
    cluster.run(3 * S)
    assert snapshots(cluster) == [{"/a/b": b"alone"}] * 2


def test_a_list_of_one_member_is_a_cluster_that_others_join() -> None:
    cluster = Cluster(1, guaranteed=False)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.open("m1:1", 1)
    publish(cluster, "m1:1", "/a/b", "one")
    cluster.start("m9:1")
    cluster.until(cluster.ready)
    cluster.run(3 * S)
    assert snapshots(cluster) == [{"/a/b": b"one"}] * 2
    assert {cluster.coordinator(group) for group in range(4)} == {"m1:1", "m9:1"}


@pytest.mark.parametrize("seed", range(8))
def test_both_sides_of_a_partition_serve_and_the_larger_one_stays(seed: int) -> None:
    cluster = standard(seed=seed)
    subjects = [f"/s/{index}" for index in range(12)]
    for name in cluster.names:
        cluster.open(name, 1)
        cluster.subscribe(name, 1, *subjects)
    for subject in subjects:
        publish(cluster, "m1:1", subject, f"{subject} before")
    cluster.partition("m3:1")
    for subject in subjects:
        for name in ("m1:1", "m3:1"):
            publish(cluster, name, subject, f"{subject} at {name}")
    cluster.run(S)
    marks = {name: len(member.inboxes[1]) for name, member in cluster.members.items()}
    cluster.heal()
    cluster.until(lambda: same_everywhere(cluster))
    cluster.run(3 * S)
    held = snapshots(cluster)
    assert held[0] == held[1] == held[2]
    kept = {subject: held[0][subject].decode().rpartition(" at ")[2] for subject in subjects}
    assert set(kept.values()) == {"m1:1"}, "the larger side"
    for name, member in cluster.members.items():
        told = shown(member.inboxes[1][marks[name] :])
        for subject, side in kept.items():
            here = "m3:1" if name == "m3:1" else "m1:1"
            mine = [line for line in told if f" {subject} " in line]
            wanted = [] if side == here else [f"SNAPSHOT {subject} at {side} 2"]
            assert mine == wanted
        assert ("reset" in told) == (name == "m3:1")
    for subject in subjects:
        publish(cluster, "m2:1", subject, f"{subject} together")
    cluster.run(S)
    assert len({tuple(sorted(held.items())) for held in snapshots(cluster)}) == 1


def test_the_larger_side_stays_with_a_group_that_was_yielded_as_the_cut_came() -> None:
    """Its new coordinator raises the epoch although it leads only since after the cut."""
    cluster = standard()
    subject = cluster.subject_of("m2:1")
    for name in cluster.names:
        cluster.open(name, 1)
    publish(cluster, "m1:1", subject, "before")
    cluster.run(S)
    cluster.operate("m2:1", "drain", "m2:1")
    cluster.partition("m3:1")
    cluster.run(200 * MS)
    cluster.feed("m2:1", PeerReceived("m1:1", [Claim([cluster.group(subject)])]))
    cluster.run(S)
    for name in ("m1:1", "m3:1"):
        publish(cluster, name, subject, f"at {name}")
    cluster.heal()
    cluster.until(lambda: same_everywhere(cluster))
    cluster.run(3 * S)
    assert [held[subject] for held in snapshots(cluster)] == [b"at m1:1"] * 3


def test_what_a_member_began_alone_gives_way_to_what_the_others_hold() -> None:
    cluster = standard()
    cluster.open("m1:1", 1)
    publish(cluster, "m1:1", "/a/b", "held by two")
    cluster.kill("m3:1")
    cluster.run(2 * S)
    cluster.partition("m3:1")
    cluster.start("m3:1")
    cluster.until(lambda: cluster.ready("m3:1"))
    cluster.heal()
    cluster.until(lambda: same_everywhere(cluster))
    cluster.run(3 * S)
    assert snapshots(cluster) == [{"/a/b": b"held by two"}] * 3


def position(cluster: Cluster, name: str, session: int, status: Status) -> PositionAfter:
    """The position of an acknowledged publication as that session knows it."""
    events = cluster.members[name].inboxes[session]
    history = next(event.history for event in events if isinstance(event, Connected))
    return PositionAfter(history, status.epoch or 0, status.seq or 0)


def test_a_client_recovers_at_the_same_member_and_gets_the_snapshot_at_another() -> None:
    cluster = standard()
    cluster.open("m1:1", 1)
    status = publish(cluster, "m1:1", "/a/b", "one")
    after = {"/a/b": position(cluster, "m1:1", 1, status)}
    publish(cluster, "m1:1", "/a/b", "two")
    publish(cluster, "m1:1", "/a/b", "three")
    cluster.run(S)
    for name in cluster.names:
        cluster.open(name, 2)
        cluster.subscribe(name, 2, "/a/b", positions=after)
    seen = {name: shown(member.inboxes[2]) for name, member in cluster.members.items()}
    assert seen == {
        "m1:1": ["DATA_SYNC", "RECOVERED two 2", "RECOVERED three 3"],
        "m2:1": ["reset", "SNAPSHOT three 3"],
        "m3:1": ["reset", "SNAPSHOT three 3"],
    }


def test_a_client_that_saw_more_than_the_successor_is_told_at_once() -> None:
    """The coordinator ended with an entry that only its own subscribers got."""
    cluster = standard()
    subject = cluster.subject_of("m2:1")
    cluster.open("m2:1", 1)
    publish(cluster, "m2:1", subject, "one")
    cluster.run(S)
    cluster.loss = {("m2:1", "m1:1"), ("m2:1", "m3:1")}
    lost = publish(cluster, "m2:1", subject, "two")
    after = {subject: position(cluster, "m2:1", 1, lost)}
    cluster.kill("m2:1")
    cluster.loss = set()
    cluster.open("m1:1", 2)
    cluster.subscribe("m1:1", 2, subject, positions=after)
    assert shown(cluster.members["m1:1"].inboxes[2]) == ["reset", "SNAPSHOT one 1"]
    cluster.open("m1:1", 1)
    again = publish(cluster, "m1:1", subject, "another two")
    assert again.seq == lost.seq
    assert shown(cluster.members["m1:1"].inboxes[2])[-1] == "UPDATE another two 2"


@pytest.mark.parametrize("lucky", ["m1:1", "m3:1"])
def test_survivors_that_got_more_or_less_of_a_dead_coordinator_agree(lucky: str) -> None:
    """Its last entry reached one of them: the other may be the one that goes on."""
    cluster = standard()
    subject = cluster.subject_of("m2:1")
    for name in cluster.names:
        cluster.open(name, 1)
        cluster.subscribe(name, 1, subject)
    publish(cluster, "m2:1", subject, "one")
    cluster.run(S)
    unlucky = "m3:1" if lucky == "m1:1" else "m1:1"
    cluster.loss = {("m2:1", unlucky)}
    publish(cluster, "m2:1", subject, "two")
    cluster.run(20 * MS)
    cluster.kill("m2:1")
    cluster.loss = set()
    cluster.run(3 * S)
    publish(cluster, "m1:1", subject, "last")
    cluster.run(S)
    assert same_everywhere(cluster)
    assert snapshots(cluster) == [{subject: b"last"}] * 2
    group = cluster.group(subject)
    kept = "two" if cluster.coordinator(group) == lucky else "one"
    number = 2 if kept == "two" else 1
    for name in (lucky, unlucky):
        seen = shown(cluster.members[name].inboxes[1])
        before = ["UPDATE one 1", "UPDATE two 2"][: 2 if name == lucky else 1]
        assert seen == [*before, "reset", f"SNAPSHOT {kept} {number}", f"UPDATE last {number + 1}"]


class Starved(Cluster):
    """A cluster in which one member gets nobody's log."""

    starved = ""

    def send(self, sender: str, receiver: str, message: AnyPeerMessage, data: bytes) -> None:
        if receiver != self.starved or not isinstance(message, Sync):
            super().send(sender, receiver, message, data)


def test_who_lacks_the_log_of_a_leadership_does_not_succeed_it_before_others() -> None:
    """Just back from the smaller side of a partition, without the larger one's log."""
    cluster = Starved(3, 12, guaranteed=False)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(3 * S)
    subjects = [f"/s/{index}" for index in range(30)]
    cluster.open("m1:1", 1)
    cluster.partition("m3:1")
    cluster.run(2 * S)
    for subject in subjects:
        publish(cluster, "m1:1", subject, f"{subject} of the larger side")
    cluster.starved = "m3:1"
    cluster.heal()
    cluster.run(300 * MS)
    cluster.kill("m2:1")
    cluster.run(3 * S)
    cluster.starved = ""
    cluster.until(lambda: same_everywhere(cluster))
    held = {subject: f"{subject} of the larger side".encode() for subject in subjects}
    assert snapshots(cluster) == [held, held]


def test_a_numbering_publisher_counts_from_1_again_after_a_reset_and_not_after_a_hand_over() -> (
    None
):
    cluster = standard()
    subject = cluster.subject_of("m2:1")
    cluster.open("m1:1", 1, publisher="p")
    publish(cluster, "m1:1", subject, "one", number=1)
    cluster.operate("m1:1", "drain", "m2:1")
    cluster.run(3 * S)
    publish(cluster, "m1:1", subject, "two", number=2)
    cluster.open("m3:1", 1, publisher="p")
    repeat = publish(cluster, "m3:1", subject, "two", number=2)
    assert (repeat.seq, repeat.duplicate) == (2, True)
    coordinator = cluster.coordinator(cluster.group(subject))
    assert coordinator is not None
    name = "m3:1" if coordinator == "m1:1" else "m1:1"
    cluster.kill(coordinator)
    cluster.publish(name, 1, subject, "three", number=3)
    cluster.until(lambda: cluster.members[name].statuses[-1].id == "three")
    refused = cluster.members[name].statuses[-1]
    assert (refused.status, refused.expected) == (StatusName.PUBLISH_FAILED, 1)
    again = publish(cluster, name, subject, "three", number=1)
    assert (again.seq, again.duplicate) == (3, False)
    cluster.open("m2:1", 1, publisher="p")
    repeat = publish(cluster, "m2:1", subject, "three", number=1)
    assert (repeat.seq, repeat.duplicate) == (3, True)


def test_a_link_that_breaks_and_comes_back_moves_nothing() -> None:
    cluster = standard()
    for name in cluster.names:
        cluster.open(name, 1)
        cluster.subscribe(name, 1, "/a/**")
    for index in range(12):
        publish(cluster, "m1:1", f"/a/{index}", f"{index} before")
    cluster.disconnect("m1:1", "m2:1")
    for index in range(12):
        cluster.publish("m1:1", 1, f"/a/{index}", f"{index} meanwhile")
    cluster.run(100 * MS)
    cluster.connect("m1:1", "m2:1")
    cluster.run(3 * S)
    for name, member in cluster.members.items():
        seen = shown(member.inboxes[1])
        assert "reset" not in seen, name
        assert sum(line.startswith("UPDATE") for line in seen) == 24, name


def test_operators_drain_members_and_have_nothing_to_readmit() -> None:
    cluster = standard()
    status = cluster.operate("m2:1", "status").answer
    assert (status["mode"], status["quorum"]) == ("Standard", True)
    members = status["members"]
    assert isinstance(members, list)
    assert {(row["address"], row["seed"], row["state"]) for row in members} == {
        (name, False, "NORMAL") for name in cluster.names
    }
    for action in ("readmit", "cold-start"):
        refused = cluster.operate("m1:1", action, "m2:1", force=True).refused
        assert refused == f"nobody votes in Standard mode: there is nothing to {action}"
    cluster.kill("m3:1")
    assert cluster.operate("m1:1", "drain", "m2:1").refused is None
    cluster.run(4 * S)
    assert {cluster.coordinator(group) for group in range(cluster.groups)} == {"m1:1"}
    assert cluster.members["m1:1"].node.needed_for_quorum() is None
    refused = cluster.operate("m2:1", "drain", "m1:1").refused
    assert refused == (
        "no other member would take the groups of m1:1: m2:1 drained already; --force drains it"
    )


def test_a_message_of_the_other_mode_ends_the_link() -> None:
    cluster = standard()
    outputs = cluster.feed("m1:1", PeerReceived("m2:1", [PreVote([])]))
    (closed,) = [output for output in outputs if isinstance(output, ClosePeer)]
    assert closed == ClosePeer("m2:1", "PreVote says nothing in this delivery mode")


class Reader:
    """Reads a session's inbox as a client does; complains about silent holes and steps back."""

    def __init__(self) -> None:
        self.read = 0
        self.seen: dict[str, tuple[int, int]] = {}
        self.last: dict[str, bytes] = {}

    def check(self, inbox: list[Any]) -> None:
        for event in inbox[self.read :]:
            if isinstance(event, Reset):
                for subject in event.subjects:
                    self.seen.pop(subject, None)
            elif isinstance(event, Status) and event.status is StatusName.DATA_RESYNC:
                self.seen.pop(str(event.subject), None)
            elif isinstance(event, Delivery):
                entry = event.entry
                before = self.seen.get(entry.publication.subject)
                if before is not None and event.type is MessageType.UPDATE:
                    assert entry.seq == before[1] + 1
                    assert entry.epoch >= before[0]
                self.seen[entry.publication.subject] = (entry.epoch, entry.seq)
                self.last[entry.publication.subject] = entry.publication.content
        self.read = len(inbox)


class Chaos:
    """Publications, faults and readers, all drawn from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cluster = Cluster(3 + seed % 3, 6, seed, guaranteed=False, log_kept=3)
        self.subjects = [f"/s/{index}" for index in range(6)]
        self.readers: list[tuple[Reader, Member]] = []
        self.published = 0

    def read(self) -> None:
        """Every member that serves has a reader; each reads what came."""
        cluster = self.cluster
        for name, member in cluster.members.items():
            if cluster.ready(name) and not member.inboxes:
                cluster.open(name, 1)
                cluster.subscribe(name, 1, *self.subjects)
                self.readers.append((Reader(), member))
        for reader, member in self.readers:
            reader.check(member.inboxes[1])

    def step(self) -> None:
        cluster, rng = self.cluster, self.rng
        name, what = rng.choice(list(cluster.members)), rng.random()
        if what < 0.6 and cluster.ready(name):
            self.publish(name)
        elif what < 0.7 and cluster.ready(name):
            # A link that breaks and is dialled anew, under publications.
            pair = rng.sample(cluster.names, 2)
            cluster.disconnect(*pair)
            cluster.connect_later(rng.randrange(400) * MS, *pair)
            for _ in range(10):
                self.publish(name)
                cluster.run(50 * MS)
        elif what < 0.8 and len(cluster.members) > 1:
            cluster.kill(name)
        elif what < 0.87:
            cluster.partition(name)
        elif what < 0.92:
            cluster.heal()
        elif what < 0.96:
            cluster.operate(name, rng.choice(["drain", "undrain"]))
        else:
            self.start(1)

    def publish(self, name: str) -> None:
        self.published += 1
        self.cluster.publish(name, 1, self.rng.choice(self.subjects), f"{self.published}")

    def start(self, count: int) -> None:
        missing = [name for name in self.cluster.names if name not in self.cluster.members]
        if missing:
            self.cluster.start(*missing[:count])


@pytest.mark.parametrize("seed", range(12))
def test_no_client_sees_a_silent_hole_and_members_agree_in_the_end(seed: int) -> None:
    chaos = Chaos(seed)
    cluster = chaos.cluster
    cluster.start()
    cluster.until(cluster.ready)
    for _ in range(80):
        chaos.read()
        chaos.step()
        cluster.run(chaos.rng.randrange(800) * MS)
    cluster.heal()
    chaos.start(len(cluster.names))
    cluster.until(lambda: cluster.ready() and same_everywhere(cluster))
    cluster.run(4 * S)
    chaos.read()
    for subject in chaos.subjects:
        publish(cluster, cluster.names[0], subject, f"{subject} in the end")
    cluster.run(S)
    chaos.read()
    last = {subject: f"{subject} in the end".encode() for subject in chaos.subjects}
    assert snapshots(cluster) == [last] * len(cluster.names)
    for member in cluster.members.values():
        waiting = member.node.statistics().waiting
        assert not waiting, "every publication has its result"
    assert all(reader.last == last for reader, member in chaos.readers if cluster.alive(member))
