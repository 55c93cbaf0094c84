"""Whether a member serves clients, and where it sends them when it does not."""

from mdserver.cluster.messages import PeerReceived, ServerState
from mdserver.core.events import Move
from mdserver.core.inputs import Opened
from mdserver.limits import CLOSE_NO_QUORUM, PEER_SUSPECT_MS
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster
from tests.cluster.started import started

SUSPECT = PEER_SUSPECT_MS * MS


def moves(cluster: Cluster, name: str) -> list[tuple[str, list[str] | None]]:
    """Return why and where to the clients of a member were sent."""
    events = [send.event for send in cluster.members[name].events]
    return [(event.reason, event.servers) for event in events if isinstance(event, Move)]


def test_a_member_without_a_quorum_sends_its_clients_elsewhere_and_takes_no_others() -> None:
    cluster = started()
    cluster.open("m1:1", 1)
    cluster.partition("m1:1")
    cluster.run(3 * S)
    member = cluster.members["m1:1"]
    assert moves(cluster, "m1:1") == [("no-quorum", ["c-m2:1", "c-m3:1"])]
    assert [(closed.session, closed.code) for closed in member.closed] == [(1, CLOSE_NO_QUORUM)]
    cluster.feed("m1:1", Opened(2, "127.0.0.1"))
    assert member.closed[-1].session == 2


def test_clients_stay_when_links_break_for_a_moment() -> None:
    cluster = started()
    cluster.open("m1:1", 1)
    node = cluster.members["m1:1"].node
    for _ in range(4):
        cluster.partition("m1:1")
        cluster.until(lambda: node.unready() is not None)
        cluster.run(SUSPECT // 2)
        cluster.heal()
        cluster.until(cluster.ready)
        cluster.run(SUSPECT)  # or the next time would count from the one before
    assert moves(cluster, "m1:1") == []
    assert cluster.members["m1:1"].closed == []


def test_a_drained_member_says_so_and_keeps_its_clients() -> None:
    cluster = started()
    cluster.open("m1:1", 1)
    service = cluster.members["m1:1"].node.service
    assert service.drained() is None
    cluster.operate("m1:1", "drain", "m1:1")
    cluster.run(3 * S)
    assert "mdserver cluster drain --undo" in str(service.drained())
    assert service.elsewhere() == ["c-m2:1", "c-m3:1"]
    assert cluster.members["m1:1"].closed == []


def test_a_worker_goes_by_what_its_member_says_at_once() -> None:
    cluster = Cluster(workers=True)
    cluster.start()
    name = cluster.start_worker("m1:1")
    worker = cluster.members[name].running
    cluster.until(lambda: cluster.ready(name))
    cluster.open(name, 1)
    state = ServerState("it stops", "rebalance", ["c-m2:1"], ["c-m2:1", "c-m3:1"], "drained", "no")
    cluster.feed(name, PeerReceived("m1:1", [state]))
    cluster.feed(name, Opened(2, "127.0.0.1"))
    assert moves(cluster, name) == [("rebalance", ["c-m2:1"])]
    assert [closed.session for closed in cluster.members[name].closed] == [1, 2]
    assert (worker.unready(), worker.service.drained()) == ("it stops", "drained")
    assert worker.service.elsewhere() == ["c-m2:1", "c-m3:1"]
    assert worker.broker.publications.refusing == "no"
