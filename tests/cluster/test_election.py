"""Who stands for a group and when, what a candidacy may rely on, and how groups start anew."""

import msgspec

from mdserver.cluster.coordinator import CoordinatorState
from mdserver.cluster.votes import VoteRecord
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster
from tests.cluster.started import acked, started


def test_three_seeds_start_and_agree_on_coordinators() -> None:
    cluster = started()
    assert all(cluster.coordinator(group) for group in range(cluster.groups))
    histories = {member.node.history for member in cluster.members.values()}
    assert len(histories) == 1
    assert histories != {""}


def test_a_recovering_seed_does_not_vote() -> None:
    """Without a coordinator and with one NORMAL seed, a RECOVERING one makes no majority."""
    cluster = started()
    cluster.kill("m2:1")
    cluster.kill("m3:1")
    cluster.run(2 * S)  # every coordinator has stopped by now
    cluster.start("m2:1")
    cluster.run(10 * S)
    assert not cluster.ready("m1:1")
    assert not cluster.ready("m2:1")
    assert cluster.statistics("m2:1").not_voting


def test_a_cold_start_keeps_the_best_surviving_log_under_a_new_history_id() -> None:
    cluster = started()
    cluster.open("m1:1", 1)
    cluster.publish("m1:1", 1, "/a/b", "one")
    cluster.until(lambda: acked(cluster, "m1:1"))
    cluster.run(S)
    before = cluster.members["m1:1"].node.history
    cluster.kill("m2:1")
    cluster.kill("m3:1")
    cluster.run(2 * S)
    cluster.start("m2:1", "m3:1")
    cluster.until(cluster.ready)
    after = {member.node.history for member in cluster.members.values()}
    assert after != {before}
    assert len(after) == 1
    cluster.open("m3:1", 2)
    cluster.publish("m3:1", 2, "/a/b", "two")
    cluster.until(lambda: acked(cluster, "m3:1"))
    assert acked(cluster, "m3:1")["two"][1] == 2, "the log of the seed that stayed was kept"


def test_no_cold_start_while_a_seed_is_out_of_contact() -> None:
    cluster = started()
    for name in cluster.names:
        cluster.kill(name)
    cluster.start("m1:1", "m2:1")
    cluster.run(20 * S)
    assert not cluster.ready("m1:1")
    cluster.start("m3:1")
    cluster.until(cluster.ready)


def test_a_candidate_counts_on_its_own_promise_only_once_it_is_on_the_disk() -> None:
    cluster = started()
    cluster.run(3 * S)
    cluster.disk_delays["m3:1"] = 300 * MS
    cluster.operate("m1:1", "drain", "m1:1")
    cluster.operate("m1:1", "drain", "m2:1", force=True)
    for _ in range(3000):
        cluster.run(MS)
        for name, member in cluster.members.items():
            stored = msgspec.json.decode(cluster.disks[name].votes or b"", type=VoteRecord)
            for group in member.node.statistics().groups:
                if group.coordinator_state in (CoordinatorState.SYNCING, CoordinatorState.ACTIVE):
                    assert stored.promised[group.index].epoch >= group.own_epoch
    assert {cluster.coordinator(group) for group in range(cluster.groups)} == {"m3:1"}


def test_a_cluster_on_disks_slower_than_its_time_outs_elects_all_the_same() -> None:
    cluster = Cluster(3)
    cluster.disk_delays = dict.fromkeys(cluster.names, 1500 * MS)
    cluster.start()
    cluster.until(cluster.ready, limit=60 * S)
    cluster.kill("m1:1")
    cluster.open("m2:1", 1)
    for group in range(cluster.groups):
        cluster.until(lambda: cluster.coordinator(group) not in (None, "m1:1"), limit=60 * S)  # noqa: B023
    cluster.publish("m2:1", 1, "/a/b", "x")
    cluster.until(lambda: acked(cluster, "m2:1"))
    assert list(acked(cluster, "m2:1")) == ["x"]
    led = [cluster.statistics(name).coordinated for name in ("m2:1", "m3:1")]
    assert sorted(led[0] + led[1]) == list(range(cluster.groups))
