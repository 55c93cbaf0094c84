"""Cold starts that an operator orders, accepting what may be lost with a seed that is away."""

import msgspec
import pytest

from mdserver.cluster.messages import AdminReply
from mdserver.cluster.votes import Vote, VoteRecord
from mdserver.core.commands import PositionAfter, Subscribe
from mdserver.core.events import Reset, StatusName
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster

SUBJECT = "/a/b"


def started(**settings: object) -> Cluster:
    """A cluster that acknowledged one publication."""
    cluster = Cluster(3, **settings)  # type: ignore[arg-type]
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(S)
    cluster.open("m1:1", 1)
    publish(cluster, "m1:1", 1)
    return cluster


def publish(cluster: Cluster, name: str, session: int) -> int:
    """Publish through a member until it is acknowledged; returns the sequence number."""
    statuses = cluster.members[name].statuses
    before = len(statuses)
    cluster.publish(name, session, SUBJECT, "text")
    cluster.until(lambda: len(statuses) > before)
    assert statuses[-1].status is StatusName.PUBLISH_OK
    return statuses[-1].seq or 0


def order(cluster: Cluster, at: str) -> AdminReply:
    return cluster.operate(at, "cold-start", force=True)


def histories(cluster: Cluster) -> set[str]:
    return {
        group.history
        for member in cluster.members.values()
        for group in member.node.statistics().groups
    }


@pytest.mark.parametrize("at", ["m1:1", "m2:1"])
@pytest.mark.parametrize("without_record", [(), ("m1:1",), ("m2:1",), ("m1:1", "m2:1")])
def test_two_of_three_start_anew_when_an_operator_accepts_the_loss(
    at: str, without_record: tuple[str, ...]
) -> None:
    cluster = started()
    before = histories(cluster)
    for name in cluster.names:
        cluster.kill(name)
    for name in without_record:
        cluster.lose_votes(name)
    cluster.start("m1:1", "m2:1")
    cluster.run(5 * S)
    told = cluster.operate(at, "cold-start")
    assert "acknowledged messages that only others hold would be lost" in str(told.refused)
    assert told.answer == {"lost": list(range(cluster.groups))}
    assert order(cluster, at).refused is None
    cluster.until(cluster.ready)
    cluster.open(at, 2)
    assert publish(cluster, at, 2) == 1
    cluster.start("m3:1")
    cluster.until(cluster.ready)
    assert len(histories(cluster)) == 1
    assert not histories(cluster) & before
    cluster.kill("m1:1")
    cluster.until(cluster.ready)
    cluster.open("m3:1", 3)
    assert publish(cluster, "m3:1", 3) == 2


def test_the_log_of_the_seed_that_stayed_is_adopted() -> None:
    cluster = started()
    cluster.kill("m2:1")
    cluster.kill("m3:1")
    cluster.run(2 * S)
    cluster.start("m2:1")
    cluster.run(5 * S)
    assert order(cluster, "m2:1").refused is None
    cluster.until(cluster.ready)
    cluster.open("m2:1", 2)
    assert publish(cluster, "m2:1", 2) == 2


def two_lost() -> Cluster:
    """The third coordinates some groups still: it was elected for them before the others lost."""
    cluster = started()
    for name in ("m1:1", "m2:1"):
        cluster.kill(name)
        cluster.lose_votes(name)
        cluster.start(name)
        cluster.run(5 * S)
    assert cluster.statistics("m3:1").coordinated
    return cluster


@pytest.mark.parametrize("at", ["m1:1", "m2:1", "m3:1"])
def test_an_order_reaches_groups_whose_coordinator_has_no_majority_any_more(at: str) -> None:
    cluster = two_lost()
    before = histories(cluster)
    told = cluster.operate(at, "cold-start")
    assert told.answer == {"lost": list(range(cluster.groups))}
    assert "acknowledged messages that only others hold would be lost" in str(told.refused)
    assert order(cluster, at).refused is None
    cluster.until(cluster.ready)
    cluster.run(5 * S)
    (after,) = histories(cluster)
    assert after not in before
    cluster.open("m2:1", 5)
    assert publish(cluster, "m2:1", 5) == 2, "the log of the third was adopted"
    assert "nothing to start" in str(order(cluster, at).refused)


def test_readmitting_all_that_lost_their_records_starts_with_the_log_of_the_third() -> None:
    cluster = two_lost()
    for name in ("m1:1", "m2:1"):
        assert cluster.operate("m3:1", "readmit", name).refused is None
    cluster.until(cluster.ready)
    cluster.open("m2:1", 5)
    assert publish(cluster, "m2:1", 5) == 2


def test_a_coordinator_that_takes_a_restarted_seed_back_is_left_alone() -> None:
    """It does so by itself, and nothing is lost: every seed says so, that which is lost as well."""
    cluster = started()
    before = histories(cluster)
    for name in ("m1:1", "m2:1"):
        cluster.operate("m3:1", "drain", name, force=True)
    cluster.until(lambda: len(cluster.statistics("m3:1").coordinated) == cluster.groups)
    cluster.kill("m1:1")
    cluster.lose_votes("m1:1")
    cluster.start("m1:1")
    cluster.run(3 * S)
    cluster.kill("m2:1")
    cluster.start("m2:1")
    peers = cluster.members["m1:1"].node.members.peers
    while peers["m2:1"].not_voting is None:
        cluster.run(MS // 10)
    assert not cluster.ready("m2:1")
    for at in cluster.names:
        assert "nothing to start" in str(order(cluster, at).refused)
    cluster.until(lambda: cluster.ready("m2:1", "m3:1"))
    assert {cluster.statistics(name).histories[0] for name in ("m2:1", "m3:1")} == before


@pytest.mark.parametrize("slow", [2 * MS, 200 * MS, 1000 * MS])
def test_orders_at_two_seeds_at_once_come_to_one_history(slow: int) -> None:
    cluster = started()
    for name in cluster.names:
        cluster.kill(name)
    cluster.disk_delays = dict.fromkeys(cluster.names, slow)
    cluster.start("m1:1", "m2:1")
    cluster.run(5 * S)
    assert order(cluster, "m1:1").refused is None
    assert order(cluster, "m2:1").refused is None
    cluster.until(cluster.ready, limit=60 * S)
    for group in range(cluster.groups):
        histories = [
            member.node.group_statistics(group).history for member in cluster.members.values()
        ]
        assert histories[0] == histories[1]


def test_an_order_outlasts_a_link_that_breaks_as_it_is_given() -> None:
    cluster = started()
    for name in cluster.names:
        cluster.kill(name)
    cluster.start("m1:1", "m2:1")
    cluster.run(5 * S)
    assert order(cluster, "m1:1").refused is None
    cluster.disconnect("m1:1", "m2:1")
    cluster.run(2 * S)
    cluster.connect("m1:1", "m2:1")
    cluster.until(cluster.ready)


def test_a_seed_that_was_only_cut_off_follows_and_resets_its_clients() -> None:
    cluster = started()
    cluster.open("m3:1", 3)
    cluster.partition("m3:1")
    for name in ("m1:1", "m2:1"):
        cluster.kill(name)
    cluster.start("m1:1", "m2:1")
    cluster.run(300 * MS)
    assert order(cluster, "m1:1").refused is None
    cluster.until(lambda: cluster.ready("m1:1", "m2:1"))
    cluster.heal()
    cluster.until(cluster.ready)
    assert len(histories(cluster)) == 1
    cluster.open("m3:1", 4)
    assert publish(cluster, "m3:1", 4) == 1


def test_a_seed_alone_is_refused_and_so_is_a_cluster_that_goes_on() -> None:
    cluster = started()
    assert "nothing to start" in str(order(cluster, "m1:1").refused)
    for name in cluster.names:
        cluster.kill(name)
    cluster.start("m1:1")
    cluster.run(5 * S)
    assert "only 1 seeds are in sight" in str(order(cluster, "m1:1").refused)


def test_groups_that_are_just_between_coordinators_are_not_started_anew() -> None:
    cluster = started()
    before = histories(cluster)
    cluster.kill("m1:1")
    cluster.run(10 * MS)
    assert "nothing to start" in str(order(cluster, "m2:1").refused)
    cluster.until(cluster.ready)
    assert histories(cluster) == before


@pytest.mark.parametrize("victim", ["m1:1", "m2:1", "m3:1"])
def test_all_seeds_back_wait_for_the_word_on_one_that_lost_its_record(victim: str) -> None:
    """What it promised is not known: the start is of an epoch that is surely above it."""
    cluster = started()
    for name in cluster.names:
        cluster.kill(name)
    record = msgspec.json.decode(cluster.disks[victim].votes or b"", type=VoteRecord)
    cluster.lose_votes(victim)
    highest = max(vote.epoch for vote in record.promised)
    cluster.start()
    cluster.run(20 * S)
    assert not cluster.ready(victim)
    assert cluster.operate("m3:1", "readmit", victim).refused is None
    cluster.until(cluster.ready)
    views = cluster.statistics("m1:1").groups
    assert all(view.epoch > highest + 1000 for view in views)


def test_a_new_cluster_and_one_that_restarts_whole_count_their_epochs_on() -> None:
    cluster = started()
    for name in cluster.names:
        cluster.kill(name)
    cluster.start()
    cluster.until(cluster.ready)
    assert all(group.epoch < 100 for group in cluster.statistics("m1:1").groups)


def test_a_client_that_comes_with_a_position_of_the_old_history_is_reset() -> None:
    cluster = started()
    (before,) = histories(cluster)
    for name in cluster.names:
        cluster.kill(name)
    cluster.start("m1:1", "m2:1")
    cluster.run(5 * S)
    assert order(cluster, "m1:1").refused is None
    cluster.until(cluster.ready)
    cluster.open("m2:1", 5)
    known = {SUBJECT: PositionAfter(before, 1, 1)}
    cluster.say("m2:1", 5, Subscribe(subjects=[SUBJECT], positions=known))
    (after,) = histories(cluster)
    events = [send.event for send in cluster.members["m2:1"].events if send.session == 5]
    assert Reset(history=after, subjects=[SUBJECT]) in events


def test_an_order_ends_with_the_start_that_it_brought_about() -> None:
    """What fails a moment later is another loss, which nobody accepted."""
    cluster = started()
    for name in cluster.names:
        cluster.kill(name)
    cluster.start("m1:1", "m2:1")
    cluster.run(5 * S)
    assert order(cluster, "m1:1").refused is None
    cluster.until(cluster.ready)
    cluster.run(S)
    before = histories(cluster)
    cluster.kill("m2:1")
    cluster.run(2 * S)
    cluster.start("m2:1")
    cluster.run(20 * S)
    assert not cluster.ready("m1:1")
    assert before >= {group.history for group in cluster.statistics("m1:1").groups}


def test_an_ordered_start_is_of_an_epoch_above_what_the_missing_seed_may_have_promised() -> None:
    cluster = started()
    for name in cluster.names:
        cluster.kill(name)
    record = msgspec.json.decode(cluster.disks["m3:1"].votes or b"", type=VoteRecord)
    record.promised = [Vote(vote.epoch + 7, "m3:1") for vote in record.promised]
    cluster.disks["m3:1"].votes = record.encode()
    cluster.start("m1:1", "m2:1")
    cluster.run(5 * S)
    assert order(cluster, "m1:1").refused is None
    cluster.until(cluster.ready)
    views = cluster.statistics("m1:1").groups
    assert all(view.epoch > vote.epoch for view, vote in zip(views, record.promised, strict=True))
    cluster.start("m3:1")
    cluster.until(cluster.ready)
