"""Rules of docs/cluster.md, one scenario each, on members in memory."""

import pytest

from mdserver.core.events import StatusName
from tests.cluster.virtual import Cluster, S


def started(count: int = 3, **settings: object) -> Cluster:
    cluster = Cluster(count, **settings)  # type: ignore[arg-type]
    cluster.start()
    cluster.until(cluster.ready)
    return cluster


def acked(cluster: Cluster, name: str) -> dict[object, tuple[int | None, int | None]]:
    return {
        status.id: (status.epoch, status.seq)
        for status in cluster.members[name].statuses
        if status.status is StatusName.PUBLISH_OK
    }


def test_three_seeds_start_and_agree_on_coordinators() -> None:
    cluster = started()
    assert all(cluster.coordinator(group) for group in range(cluster.groups))
    histories = {member.node.history for member in cluster.members.values()}
    assert len(histories) == 1
    assert histories != {""}


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
