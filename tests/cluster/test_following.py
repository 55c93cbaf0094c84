"""A member serves clients while it follows all groups; else it sends them to those that do."""

from typing import Any

from mdserver.cluster.messages import Accept, AnyPeerMessage, Commit, Sync
from mdserver.core.events import Move
from mdserver.core.subjects import group_of
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from mdserver.limits import PEER_SUSPECT_MS, UNFOLLOWED_AFTER_SUSPICIONS
from simulation.cluster import Cluster

GROUPS = 16
LATE = UNFOLLOWED_AFTER_SUSPICIONS * PEER_SUSPECT_MS * MS
"""How long a group may stand still here before clients are better served elsewhere."""


def started() -> Cluster:
    cluster = Cluster(3, GROUPS)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(4 * S)
    return cluster


def blinks(seed: int) -> list[tuple[str, str | None]]:
    """Start slow members from their disks; returns what unready ones that had been ready say."""
    cluster = Cluster(3, GROUPS, seed=seed)
    for index, name in enumerate(cluster.names):
        cluster.disk_delays[name] = (100 + 150 * index) * MS
    cluster.start()
    ready: set[str] = set()
    said: list[tuple[str, str | None]] = []
    for _ in range(400):
        cluster.run(10 * MS)
        for name, member in cluster.members.items():
            reason = member.node.unready()
            if reason is None:
                ready.add(name)
            elif name in ready:
                said.append((name, reason))
    assert len(ready) == 3
    return said


def test_a_member_that_just_joined_stays_ready_until_its_coordinators_are_heard() -> None:
    assert {seed: said for seed in range(20) if (said := blinks(seed))} == {}


def test_a_member_joins_once_every_group_has_a_coordinator_that_it_follows() -> None:
    cluster = Cluster(3, GROUPS)
    cluster.start("m1:1")
    member = cluster.members["m1:1"].node
    assert member.following.joining() == "joining: 16 of 16 groups are missing"
    cluster.start("m2:1", "m3:1")
    cluster.until(lambda: member.following.joining() is None)
    assert all(group.active for group in cluster.statistics("m1:1").groups)


def test_a_member_does_not_join_by_a_coordinator_that_lost_contact_with_the_seeds() -> None:
    """It holds all that this one has committed, but a newer one may have committed more."""
    cluster = Cluster(4, groups=1)
    cluster.start("m1:1", "m2:1", "m3:1")
    cluster.until(cluster.ready)
    cluster.run(4 * S)
    deposed = str(cluster.coordinator(0))
    others = [name for name in ("m1:1", "m2:1", "m3:1") if name != deposed]
    cluster.loss |= {(name, deposed) for name in others} | {(deposed, name) for name in others}
    cluster.cut |= {(name, "m4:1") for name in others}
    cluster.start("m4:1")
    member = cluster.members["m4:1"].running
    cluster.until(lambda: member.groups[0].leadership.active)
    assert member.groups[0].leadership.coordinator == deposed
    cluster.run(PEER_SUSPECT_MS * MS // 2)
    assert member.following.joining() == "joining: 1 of 1 groups are missing"
    cluster.heal()
    cluster.until(lambda: cluster.ready("m4:1"))


def test_a_member_that_coordinates_everything_follows_everything() -> None:
    cluster = started()
    assert all(member.node.following.follows_all for member in cluster.members.values())
    for name in ("m2:1", "m3:1"):
        cluster.operate("m1:1", "drain", name, force=True)
    cluster.until(lambda: len(cluster.statistics("m1:1").coordinated) == GROUPS)
    cluster.run(LATE)
    assert cluster.members["m1:1"].node.following.follows_all
    assert cluster.ready()


def test_groups_leave_a_coordinator_that_a_member_hears_no_more_and_clients_stay() -> None:
    """The link carries one way only. Members say whom they miss, so all agree who coordinates."""
    cluster = started()
    for name in cluster.names:
        cluster.open(name, 1)
    assert cluster.statistics("m3:1").coordinated
    cluster.loss.add(("m3:1", "m1:1"))
    cluster.run(2 * LATE)
    assert cluster.statistics("m3:1").coordinated == []
    assert cluster.ready()
    assert not any(member.closed for member in cluster.members.values())


def test_clients_leave_a_member_whose_groups_go_on_elsewhere_only() -> None:
    """Nobody else may take the groups: the others are drained."""
    cluster = started()
    member = cluster.members["m1:1"]
    cluster.open("m1:1", 1)
    for name in ("m1:1", "m2:1"):
        cluster.operate("m3:1", "drain", name, force=True)
    cluster.until(lambda: len(cluster.statistics("m3:1").coordinated) == GROUPS)
    cluster.run(S)
    cluster.loss.add(("m3:1", "m1:1"))
    cluster.run(PEER_SUSPECT_MS * MS // 2)
    assert cluster.ready(), "a link may pause for a moment"
    cluster.until(lambda: bool(member.closed))
    assert "16 of 16 groups do not go on here: m3:1 of group 0 is out of sight" in str(
        member.node.unready()
    )
    (move,) = [send.event for send in member.events if isinstance(send.event, Move)]
    assert (move.reason, move.servers) == ("rebalance", ["c-m2:1"])


def test_nobody_is_sent_to_members_that_follow_no_more_than_this_one() -> None:
    cluster = started()
    member = cluster.members["m1:1"].node
    assert member.following.servers() == ["c-m2:1", "c-m3:1"]
    member.following.late_groups = [0]
    assert "1 of 16 groups do not go on here" in str(member.following.unready())
    cluster.partition("m1:1")
    assert member.following.servers() == []
    assert member.following.unready() is None


class DeafCluster(Cluster):
    """A cluster in which `deaf` hears heartbeats and gets no entries."""

    deaf = ""

    def send(self, sender: str, receiver: str, message: AnyPeerMessage, data: bytes) -> None:
        if receiver == self.deaf and isinstance(message, Accept | Commit | Sync):
            return
        super().send(sender, receiver, message, data)


def rows(cluster: Cluster, asked: str, kind: str) -> list[dict[str, Any]]:
    found = cluster.operate(asked, "status").answer[kind]
    assert isinstance(found, list)
    return found


def behind(cluster: Cluster, asked: str, member: str) -> int | None:
    """How far a member is behind its coordinators, as another one says."""
    (found,) = (row["behind"] for row in rows(cluster, asked, "members") if row["name"] == member)
    assert found is None or isinstance(found, int)
    return found


def test_all_members_know_how_far_one_of_them_is_behind() -> None:
    cluster = DeafCluster(3, GROUPS)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(4 * S)
    for asked in cluster.names:
        assert [behind(cluster, asked, name) for name in cluster.names] == [0, 0, 0]
        assert {row["behind"] for row in rows(cluster, asked, "groups")} == {0}
    cluster.open("m1:1", 1)
    cluster.deaf = "m3:1"
    subject = cluster.subject_of("m1:1")
    for _ in range(7):
        cluster.publish("m1:1", 1, subject, "x")
    cluster.run(2 * S)
    assert [behind(cluster, asked, "m3:1") for asked in cluster.names] == [7, 7, 7]
    assert [behind(cluster, asked, "m2:1") for asked in cluster.names] == [0, 0, 0]
    group = group_of(subject, GROUPS)
    assert [row["behind"] for row in rows(cluster, "m3:1", "groups")] == [
        7 if row == group else 0 for row in range(GROUPS)
    ]
    assert cluster.members["m3:1"].node.following.behind_in_all() == 7
    cluster.deaf = ""
    cluster.until(lambda: behind(cluster, "m1:1", "m3:1") == 0)


def test_nobody_knows_how_far_a_member_without_a_coordinator_is_behind() -> None:
    cluster = started()
    cluster.partition("m3:1")
    cluster.run(2 * S)
    assert behind(cluster, "m3:1", "m3:1") is None
    assert behind(cluster, "m1:1", "m3:1") is None
    assert behind(cluster, "m1:1", "m1:1") == 0
    cluster.heal()
    cluster.until(lambda: behind(cluster, "m1:1", "m3:1") == 0)
