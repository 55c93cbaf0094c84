"""What a member does with the groups that it coordinates, until another one does."""

import random

import pytest

from mdserver.cluster.messages import Forward, ForwardItem, PeerReceived
from mdserver.core.message import Publication
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from tests.cluster.started import acked, started


def test_a_publication_is_acked_once_and_committed_everywhere() -> None:
    cluster = started()
    for name in cluster.names:
        cluster.open(name, 1)
        cluster.publish(name, 1, "/a/b", f"from {name}")
    cluster.until(lambda: all(acked(cluster, name) for name in cluster.names))
    cluster.run(S)
    logs = [member.committed[cluster.group("/a/b")] for member in cluster.members.values()]
    assert logs[0] == logs[1] == logs[2]
    assert [entry.seq for entry in logs[0]] == [1, 2, 3]


@pytest.mark.parametrize("victim", range(3))
def test_publications_flow_on_after_a_member_is_killed(victim: int) -> None:
    cluster = started()
    dead = cluster.names[victim]
    contact = cluster.names[(victim + 1) % 3]
    cluster.open(contact, 1)
    cluster.publish(contact, 1, "/a/b", "before")
    cluster.until(lambda: acked(cluster, contact))
    cluster.kill(dead)
    cluster.publish(contact, 1, "/a/b", "after")
    took = cluster.until(lambda: len(acked(cluster, contact)) == 2)
    assert took < 2 * S
    assert acked(cluster, contact)["after"][1] == 2


def test_coordinators_are_spread_by_orderly_hand_over() -> None:
    cluster = started(groups=30)
    cluster.run(5 * S)
    led = [cluster.coordinator(group) for group in range(30)]
    assert all(led.count(name) >= 4 for name in cluster.names)


def test_a_cut_off_coordinator_acknowledges_nothing_and_forks_nothing() -> None:
    cluster = started()
    cluster.run(3 * S)
    subject = cluster.subject_of("m1:1")
    cluster.open("m1:1", 1)
    cluster.partition("m1:1")
    cluster.publish("m1:1", 1, subject, "cut off")
    cluster.open("m2:1", 2)
    cluster.publish("m2:1", 2, subject, "majority")
    cluster.until(lambda: acked(cluster, "m2:1"))
    assert not acked(cluster, "m1:1")
    cluster.heal()
    cluster.run(5 * S)
    cluster.until(cluster.ready)
    group = cluster.group(subject)
    rows = [
        [(e.epoch, e.seq, e.publication.content) for e in member.committed.get(group, [])]
        for member in cluster.members.values()
    ]
    assert rows[0] == rows[1] == rows[2]
    assert b"majority" in {content for _, _, content in rows[0]}


def test_a_number_is_taken_once_whichever_member_and_coordinator_gets_it() -> None:
    cluster = started()
    cluster.run(3 * S)
    subject = cluster.subject_of("m1:1")
    cluster.open("m2:1", 1, publisher="p")
    cluster.publish("m2:1", 1, subject, "x", number=1)
    cluster.until(lambda: acked(cluster, "m2:1"))
    cluster.kill("m1:1")
    cluster.run(2 * S)
    cluster.open("m3:1", 2, publisher="p")
    cluster.publish("m3:1", 2, subject, "x", number=1)
    cluster.until(lambda: acked(cluster, "m3:1"))
    assert acked(cluster, "m3:1") == acked(cluster, "m2:1")
    again = cluster.members["m3:1"].statuses[-1]
    assert again.duplicate


def test_a_coordinator_that_is_no_seed_stops_when_its_successor_establishes_the_log() -> None:
    """It hears of no PREPARE: the successor's log is the first that it learns of the new epoch."""
    cluster = started(count=4)
    cluster.run(4 * S)
    subject = cluster.subject_of("m4:1")
    group = cluster.group(subject)
    cluster.open("m1:1", 1)
    cluster.operate("m1:1", "drain", "m4:1")
    node = cluster.members["m4:1"].node
    while node.group_statistics(group).coordinator == "m4:1":
        cluster.run(MS // 2)
    late = Forward("m1:1#1", [ForwardItem(group, 2, 1, [Publication(subject, b"late")])])
    cluster.feed("m4:1", PeerReceived("m1:1", [late]))
    cluster.publish("m1:1", 1, subject, "after")
    cluster.run(3 * S)
    rows = [
        [(e.epoch, e.seq, e.publication.content) for e in member.committed[group]]
        for member in cluster.members.values()
    ]
    assert all(row == rows[0] for row in rows)
    assert not node.group_statistics(group).coordinates


def test_what_is_held_back_for_the_disk_is_taken_once_after_a_link_broke() -> None:
    """The contact of a link that broke forwards anew what the coordinator still holds back."""
    cluster = started(groups=1, writes_wal=True, acks_wait_for_wal=True, hold_bytes=0)
    cluster.run(3 * S)
    coordinator = cluster.coordinator(0)
    assert coordinator is not None
    busy, contact = (name for name in cluster.names if name != coordinator)
    for name in (busy, contact):
        cluster.open(name, 1)
    cluster.members[coordinator].stall(S)
    cluster.publish(busy, 1, "/a/b", "on its way to the disk")
    cluster.run(20 * MS)
    cluster.publish(contact, 1, "/a/b", "held back")
    cluster.run(20 * MS)
    cluster.disconnect(coordinator, contact)
    cluster.connect(coordinator, contact)
    cluster.until(lambda: acked(cluster, contact) and acked(cluster, busy))
    cluster.run(S)
    taken = [entry.publication.content for entry in cluster.members[contact].committed[0]]
    assert taken == [b"on its way to the disk", b"held back"]


@pytest.mark.parametrize("seed", range(6))
def test_publications_without_a_number_are_taken_once_whatever_links_and_disks_do(
    seed: int,
) -> None:
    """Disks stall, links break and are dialled anew; no member ends, so no contact forgets."""
    rng = random.Random(seed)
    hold_bytes = rng.choice((0, 30, 300))
    cluster = started(
        groups=2, seed=seed, writes_wal=True, acks_wait_for_wal=True, hold_bytes=hold_bytes
    )
    cluster.run(3 * S)
    for name in cluster.names:
        cluster.open(name, 1)
    contents = [f"publication {number}" for number in range(120)]
    for content in contents:
        cluster.publish(rng.choice(cluster.names), 1, f"/a/{rng.randrange(4)}", content)
        chance = rng.random()
        if chance < 0.15:
            pair = rng.sample(cluster.names, 2)
            cluster.disconnect(*pair)
            cluster.connect_later(rng.randrange(100 * MS), *pair)
        elif chance < 0.3:
            cluster.members[rng.choice(cluster.names)].stall(rng.randrange(400 * MS))
        cluster.run(rng.randrange(60 * MS))
    results = [status for member in cluster.members.values() for status in member.statuses]
    assert len(results) <= len(contents)
    cluster.until(lambda: sum(len(acked(cluster, name)) for name in cluster.names) == len(contents))
    cluster.run(S)
    for member in cluster.members.values():
        taken = [e.publication.content.decode() for log in member.committed.values() for e in log]
        assert sorted(taken) == sorted(contents)


def test_a_publication_is_committed_although_both_acks_were_lost_with_links_one_by_one() -> None:
    """Neither seed sees the coordinator gone together with the other, so no newer epoch comes."""
    cluster = started()
    cluster.run(3 * S)
    coordinator, *seeds = cluster.names
    subject = cluster.subject_of(coordinator)
    cluster.open(coordinator, 1)
    cluster.loss.update((seed, coordinator) for seed in seeds)
    cluster.publish(coordinator, 1, subject, "the last one")
    cluster.run(10 * MS)
    group = cluster.members[coordinator].node.groups[cluster.group(subject)]
    epoch = group.log.epoch
    for seed in seeds:
        cluster.disconnect(coordinator, seed)
        cluster.loss.discard((seed, coordinator))
        cluster.connect(coordinator, seed)
        cluster.run(100 * MS)
    cluster.until(lambda: acked(cluster, coordinator))
    assert group.log.epoch == epoch


def test_entries_of_an_earlier_start_of_a_contact_are_no_results_of_this_one() -> None:
    """Its tickets begin at 1 again, and an entry of the earlier start is committed after that."""
    cluster = started(5)
    cluster.run(3 * S)
    contact, coordinator, *others = cluster.names
    subject = cluster.subject_of(coordinator)
    cluster.open(contact, 1)
    cluster.loss.update((other, coordinator) for other in others)
    cluster.publish(contact, 1, subject, "before")
    cluster.run(10 * MS)
    cluster.kill(contact)
    cluster.start(contact)
    cluster.until(lambda: cluster.ready(contact))
    cluster.open(contact, 2)
    cluster.publish(contact, 2, subject, "after")
    cluster.run(10 * MS)
    for other in others:
        cluster.disconnect(other, coordinator)
        cluster.loss.discard((other, coordinator))
        cluster.connect(other, coordinator)
    cluster.until(lambda: acked(cluster, contact))
    cluster.run(S)
    log = cluster.members[contact].committed[cluster.group(subject)]
    assert [entry.publication.content for entry in log] == [b"before", b"after"]
    assert acked(cluster, contact) == {"after": (log[1].epoch, 2)}
