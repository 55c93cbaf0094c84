"""Rules of docs/cluster.md, one scenario each, on members in memory."""

import random

import msgspec
import pytest

from mdserver.cluster.coordinator import CoordinatorState
from mdserver.cluster.messages import Forward, ForwardItem, PeerReceived
from mdserver.cluster.votes import VoteRecord
from mdserver.core.events import Move, StatusName
from mdserver.core.inputs import Opened
from mdserver.core.message import Publication
from mdserver.limits import CLOSE_NO_QUORUM
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster


def started(count: int = 3, **settings: object) -> Cluster:
    cluster = Cluster(count, **settings)  # type: ignore[arg-type]
    cluster.start()
    cluster.until(cluster.ready, limit=1000 * S)
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


def logs_of(cluster: Cluster, name: str) -> list[str]:
    return cluster.members[name].logs


def test_a_restarted_seed_recovers_from_the_coordinator_and_votes_again() -> None:
    cluster = started()
    cluster.open("m1:1", 1)
    cluster.publish("m1:1", 1, "/a/b", "one")
    cluster.until(lambda: acked(cluster, "m1:1"))
    cluster.kill("m2:1")
    cluster.run(S)
    cluster.start("m2:1")
    assert cluster.members["m2:1"].node.unready() is not None
    cluster.until(cluster.ready)
    log = cluster.members["m2:1"].node.group_statistics(cluster.group("/a/b"))
    assert log.committed == 1
    cluster.kill("m3:1")  # the two others are a majority only with the recovered one
    cluster.publish("m1:1", 1, "/a/b", "two")
    cluster.until(lambda: "two" in acked(cluster, "m1:1"))


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


def test_a_seed_that_lost_its_vote_record_waits_for_its_readmission() -> None:
    cluster = started()
    cluster.open("m1:1", 1)
    cluster.publish("m1:1", 1, "/a/b", "one")
    cluster.until(lambda: acked(cluster, "m1:1"))
    cluster.run(S)
    cluster.kill("m2:1")
    cluster.lose_votes("m2:1")
    cluster.start("m2:1")
    cluster.run(10 * S)
    assert "mdserver cluster readmit m2:1" in str(cluster.members["m2:1"].node.unready())
    refused = cluster.operate("m1:1", "readmit", "m3:1").refused
    assert refused == "m3:1 is not in sight, or did not lose its vote record"
    assert cluster.operate("m1:1", "readmit", "m2:1").refused is None
    cluster.until(cluster.ready)
    cluster.kill("m3:1")
    cluster.publish("m1:1", 1, "/a/b", "two")
    cluster.until(lambda: "two" in acked(cluster, "m1:1"))
    cluster.start("m3:1")
    cluster.until(cluster.ready)
    cluster.kill("m2:1")
    cluster.start("m2:1")
    cluster.until(cluster.ready)


def test_a_seed_with_an_older_copy_of_its_vote_record_does_not_vote() -> None:
    cluster = started()
    cluster.run(S)
    old = cluster.disks["m2:1"].votes
    for _ in range(2):
        cluster.kill("m2:1")
        cluster.run(S)
        cluster.start("m2:1")
        cluster.until(cluster.ready)
        cluster.run(S)
    cluster.kill("m2:1")
    cluster.disks["m2:1"].votes = old
    cluster.start("m2:1")
    cluster.run(5 * S)
    assert "vote record of this seed was lost" in str(cluster.members["m2:1"].node.unready())


def test_coordinators_are_spread_by_orderly_hand_over() -> None:
    cluster = started(groups=30)
    cluster.run(5 * S)
    led = [cluster.coordinator(group) for group in range(30)]
    assert all(led.count(name) >= 4 for name in cluster.names)


def test_a_drained_member_coordinates_nothing() -> None:
    cluster = started(groups=12)
    cluster.run(3 * S)
    assert cluster.operate("m3:1", "drain", "m2:1").refused is None
    cluster.run(5 * S)
    assert "m2:1" not in {cluster.coordinator(group) for group in range(12)}
    assert cluster.operate("m1:1", "undrain", "m2:1").refused is None
    cluster.run(5 * S)
    assert "m2:1" in {cluster.coordinator(group) for group in range(12)}


def test_draining_a_second_seed_is_refused_without_force() -> None:
    cluster = started()
    cluster.kill("m3:1")
    cluster.run(3 * S)
    refused = cluster.operate("m1:1", "drain", "m2:1").refused
    assert "only 1 of 3 seeds would vote" in str(refused)
    assert cluster.operate("m1:1", "drain", "m2:1", force=True).refused is None


def test_seeds_that_are_drained_are_no_votes_to_rely_on() -> None:
    cluster = started()
    cluster.run(3 * S)
    assert cluster.operate("m1:1", "drain", "m1:1").refused is None
    for wait in (0, 3 * S):
        cluster.run(wait)
        for asked in ("m1:1", "m2:1", "m3:1")[: 3 if wait else 1]:
            refused = cluster.operate(asked, "drain", "m2:1").refused
            assert str(refused).startswith("m1:1 drained already: without m2:1 only 1 of 3 seeds")
    assert cluster.operate("m2:1", "drain", "m1:1").refused is None, "it is drained already"
    assert cluster.operate("m3:1", "drain", "m2:1", force=True).refused is None
    cluster.run(3 * S)
    assert {cluster.coordinator(group) for group in range(cluster.groups)} == {"m3:1"}
    assert "drained" in str(cluster.members["m1:1"].node.drained())
    assert cluster.operate("m2:1", "undrain", "m1:1").refused is None
    cluster.run(S)
    assert cluster.members["m1:1"].node.drained() is None


@pytest.mark.parametrize("seed", range(5))
def test_whatever_operators_drain_a_majority_of_seeds_is_left(seed: int) -> None:
    rng = random.Random(seed)
    cluster = started(count=5)
    cluster.run(3 * S)
    drained: dict[str, None] = {}
    for _ in range(20):
        asked, member = rng.choice(cluster.names), rng.choice(cluster.names)
        action = rng.choice(["drain", "drain", "undrain"])
        if cluster.operate(asked, action, member).refused is None:
            drained.pop(member, None)
            if action == "drain":
                drained[member] = None
        assert len(drained) <= 2
        cluster.run(rng.choice([S, 2 * S]))


def test_members_are_called_by_address_or_name() -> None:
    cluster = started()
    cluster.run(S)
    admin = cluster.members["m1:1"].node.admin
    peers = cluster.members["m1:1"].node.members.peers
    peers["m2:1"].name, peers["m3:1"].name = "paris", "m1:1"
    assert admin.called("") == ("m1:1", None)
    assert admin.called("paris") == ("m2:1", None)
    assert admin.called("m1:1") == ("m1:1", None), "an address comes before a name"
    peers["m3:1"].name = "paris"
    assert admin.called("paris") == ("", "paris is the name of m2:1 and m3:1: give the address")
    known = "m1:1 (m1:1), paris (m2:1), paris (m3:1)"
    assert admin.called("rome")[1] == f"there is no member rome; the members are {known}"


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


def test_a_member_without_a_quorum_sends_its_clients_elsewhere() -> None:
    cluster = started()
    cluster.open("m1:1", 1)
    cluster.partition("m1:1")
    cluster.run(3 * S)
    member = cluster.members["m1:1"]
    moves = [send.event for send in member.events if isinstance(send.event, Move)]
    assert [(move.reason, move.servers) for move in moves] == [("no-quorum", ["c-m2:1", "c-m3:1"])]
    assert [(closed.session, closed.code) for closed in member.closed] == [(1, CLOSE_NO_QUORUM)]
    cluster.feed("m1:1", Opened(2, "127.0.0.1"))
    assert member.closed[-1].session == 2


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


def test_the_status_names_members_groups_and_quorum() -> None:
    cluster = started()
    cluster.run(3 * S)
    status = cluster.operate("m2:1", "status").answer
    assert status["quorum"] is True
    members = status["members"]
    assert isinstance(members, list)
    assert {(row["address"], row["seed"], row["state"]) for row in members} == {
        (name, True, "NORMAL") for name in cluster.names
    }
    groups = status["groups"]
    assert isinstance(groups, list)
    assert [row["group"] for row in groups] == list(range(cluster.groups))
    assert all(row["coordinator"] in cluster.names and row["lag"] == 0 for row in groups)


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


def test_a_seed_knows_when_the_majority_ends_with_it() -> None:
    cluster = started()
    cluster.run(3 * S)
    node = cluster.members["m1:1"].node
    assert node.missed() is None
    assert node.elsewhere() == ["c-m2:1", "c-m3:1"]
    cluster.kill("m2:1")
    cluster.run(S)
    assert "only 1 of 3 seeds would vote" in str(node.missed())


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
