"""Members that no list names, in memory."""

from mdserver.cluster.messages import Hello, PeerDiscovered, PeerDown, PeerReceived, PeerUp
from mdserver.limits import NS_PER_S as S
from mdserver.limits import PEER_FORGOTTEN_S
from simulation.cluster import Cluster


def started() -> Cluster:
    cluster = Cluster(3)
    cluster.start()
    cluster.until(cluster.ready)
    return cluster


def met(cluster: Cluster, *linked: str) -> list[str]:
    """Whom a member goes to meet when another one is linked to these."""
    hello = Hello(1, False, "", {}, linked)
    outputs = cluster.feed("m1:1", PeerReceived("m2:1", [hello]))
    return [output.peer for output in outputs if isinstance(output, PeerDiscovered)]


def test_a_member_meets_those_that_only_others_know() -> None:
    cluster = started()
    assert met(cluster, "m1:1", "m3:1", "m8:1", "m9:1") == ["m8:1", "m9:1"]
    cluster.start("m9:1")
    assert met(cluster, "m3:1", "m8:1", "m9:1") == ["m8:1"]


def test_a_member_says_whom_it_is_linked_to() -> None:
    cluster = started()
    cluster.start("m9:1")
    (sent,) = [
        output.message
        for output in cluster.feed("m1:1", PeerUp("m7:1"))
        if isinstance(getattr(output, "message", None), Hello)
    ]
    assert set(sent.linked) == {"m2:1", "m3:1", "m9:1", "m7:1"}


def addresses(cluster: Cluster) -> list[str]:
    members = cluster.operate("m1:1", "status").answer["members"]
    assert isinstance(members, list)
    return [row["address"] for row in members]


def test_a_member_that_no_list_names_is_forgotten_when_it_went_for_good() -> None:
    cluster = started()
    cluster.start("m9:1")
    cluster.until(cluster.ready)
    cluster.kill("m9:1")
    cluster.kill("m3:1")
    cluster.run(5 * S)
    assert addresses(cluster) == ["m1:1", "m2:1", "m3:1", "m9:1"]
    cluster.run(PEER_FORGOTTEN_S * S)
    assert addresses(cluster) == ["m1:1", "m2:1", "m3:1"]
    cluster.feed("m1:1", PeerDown("m9:1"))
    cluster.start("m9:1")
    cluster.until(lambda: cluster.ready("m9:1"))
