"""A member serves clients while it follows all groups; else it sends them to those that do."""

from mdserver.core.events import Move
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
