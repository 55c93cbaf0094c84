"""Rules of docs/cluster.md, one scenario each, on members in memory."""

import pytest

from mdserver.core.events import StatusName
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster
from tests.cluster.started import acked, started


def logs_of(cluster: Cluster, name: str) -> list[str]:
    return cluster.members[name].logs


def test_a_joining_member_gets_caches_and_serves_while_publications_go_on() -> None:
    cluster = started(count=4, log_kept=2)
    cluster.kill("m4:1")
    cluster.open("m1:1", 1)
    for index in range(40):
        cluster.publish("m1:1", 1, f"/a/{index % 5}", f"{index}")
    cluster.run(S)
    cluster.start("m4:1")
    for index in range(40, 60):
        cluster.publish("m1:1", 1, f"/a/{index % 5}", f"{index}")
        cluster.run(10 * MS)
    cluster.until(cluster.ready)
    cluster.run(S)
    for group in range(cluster.groups):
        logs = [member.node.group_statistics(group) for member in cluster.members.values()]
        assert len({(log.length, log.committed) for log in logs}) == 1
        tables = [dict(sorted(log.numbering.items())) for log in logs]
        assert tables.count(tables[0]) == 4
    assert len(acked(cluster, "m1:1")) == 60


def test_a_member_that_is_not_in_the_list_joins_and_serves() -> None:
    cluster = started()
    cluster.start("m9:1")
    cluster.until(cluster.ready)
    cluster.open("m9:1", 5)
    cluster.publish("m9:1", 5, "/a/b", "from outside")
    cluster.until(lambda: acked(cluster, "m9:1"))
    cluster.run(S)
    held = [cluster.statistics(name).groups[cluster.group("/a/b")] for name in cluster.members]
    assert [(one.length, one.committed) for one in held] == [(1, 1)] * 4


def test_a_publication_without_a_majority_fails_as_uncertain_after_its_time() -> None:
    cluster = started(suspect=60 * S)  # nobody notices, so that the time-out has to
    cluster.run(3 * S)
    subject = cluster.subject_of("m1:1")
    cluster.open("m1:1", 1)
    for other in ("m2:1", "m3:1"):
        cluster.loss.add(("m1:1", other))
    cluster.publish("m1:1", 1, subject, "x")
    cluster.run(12 * S)
    (failed,) = cluster.members["m1:1"].statuses
    assert (failed.status, failed.certain) == (StatusName.PUBLISH_FAILED, False)


def test_an_idle_publisher_is_forgotten_by_every_member() -> None:
    cluster = started(heartbeat=30 * S, suspect=300 * S)
    cluster.open("m1:1", 1, publisher="p")
    cluster.publish("m1:1", 1, "/a/b", "x", number=1)
    cluster.until(lambda: acked(cluster, "m1:1"), limit=100 * S)
    cluster.run(3800 * S)
    group = cluster.group("/a/b")
    for member in cluster.members.values():
        assert not member.node.group_statistics(group).publishers


@pytest.mark.parametrize("wrong", [5000 * S, -5000 * S])
def test_no_wrong_clock_makes_a_coordinator_forget_a_publisher(wrong: int) -> None:
    cluster = Cluster(3)
    cluster.clocks_ahead["m1:1"] = wrong
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(3 * S)
    cluster.open("m1:1", 1, publisher="p")
    subject = cluster.subject_of("m2:1")
    for step, number in enumerate((1, 2, 1)):
        cluster.publish("m1:1", 1, subject, f"{step}", number=number)
        cluster.run(100 * S)
    places = [seq for _, seq in acked(cluster, "m1:1").values()]
    assert places == [1, 2, 1]
