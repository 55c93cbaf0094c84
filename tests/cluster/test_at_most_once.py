"""Publications of QoS STANDARD between members: once to each that is in sight, and to no other."""

from mdserver.core.events import Delivery
from mdserver.core.inputs import Announce
from mdserver.core.message import Publication, Qos
from mdserver.core.subjects import STATISTICS
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster
from tests.cluster.started import started


def listening(subject: str) -> Cluster:
    """Return a cluster with a subscriber at each member."""
    cluster = started()
    for name in cluster.names:
        cluster.open(name, 1)
        cluster.subscribe(name, 1, subject)
    cluster.run(S)
    return cluster


def got(cluster: Cluster, name: str) -> list[tuple[int, int, bytes]]:
    """Return epoch, seq and content of each message that the subscriber of a member got."""
    inbox = cluster.members[name].inboxes.get(1, [])
    entries = [one.entry for one in inbox if isinstance(one, Delivery)]
    return [(entry.epoch, entry.seq, entry.publication.content) for entry in entries]


def test_every_member_delivers_it_once_and_no_log_has_it() -> None:
    cluster = listening("/a/b")
    cluster.publish("m2:1", 1, "/a/b", "x", qos=Qos.STANDARD)
    cluster.run(S)
    assert [got(cluster, name) for name in cluster.names] == 3 * [[(0, 0, b"x")]]
    logs = [log for name in cluster.names for log in cluster.statistics(name).groups]
    assert {log.length for log in logs} == {0}


def test_a_member_that_is_out_of_sight_never_gets_it() -> None:
    cluster = listening("/a/b")
    cluster.partition("m3:1")
    cluster.run(S // 2)
    cluster.publish("m2:1", 1, "/a/b", "x", qos=Qos.STANDARD)
    cluster.run(S // 2)
    cluster.heal()
    cluster.until(cluster.ready)
    cluster.run(S)
    assert [got(cluster, name) for name in cluster.names] == [[(0, 0, b"x")]] * 2 + [[]]


def test_what_a_server_announces_comes_to_subscribers_of_all_members() -> None:
    cluster = listening(f"{STATISTICS}m1")
    cluster.feed("m1:1", Announce([Publication(f"{STATISTICS}m1", b"7")]))
    cluster.run(S)
    assert [got(cluster, name) for name in cluster.names] == 3 * [[(0, 0, b"7")]]
