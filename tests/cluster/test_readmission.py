"""A seed that lost its vote record is taken back, whatever happens meanwhile."""

import random

import pytest

from mdserver.cluster.messages import Hello, PeerReceived, Readmit
from mdserver.core.events import StatusName
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster


def started(seed: int, count: int = 3, **settings: object) -> Cluster:
    """A cluster of varied size whose disks are of varied speed, up to 5 s after it is ready."""
    rng = random.Random(seed)
    cluster = Cluster(count, groups=rng.choice([1, 4, 16]), seed=seed, **settings)  # type: ignore[arg-type]
    for name in cluster.names:
        cluster.disk_delays[name] = rng.choice([1, 2, 10, 50, 200]) * MS
    cluster.start()
    cluster.until(cluster.ready, limit=100 * S)
    cluster.run(rng.randrange(5000) * MS)
    return cluster


def lose(cluster: Cluster, name: str, away: int) -> None:
    """A seed dies with its vote record, and starts again after a while."""
    cluster.kill(name)
    cluster.run(away)
    cluster.lose_votes(name)
    cluster.start(name)


def readmit(cluster: Cluster, at: str, name: str) -> None:
    """The command, again until the member has seen the loss."""
    cluster.until(lambda: cluster.operate(at, "readmit", name).refused is None)


def epochs(cluster: Cluster, name: str) -> list[int]:
    return [group.epoch for group in cluster.statistics(name).groups]


@pytest.mark.parametrize("seed", range(40))
def test_a_readmission_comes_to_its_end_whatever_its_timing(seed: int) -> None:
    cluster = started(seed)
    rng = random.Random(seed)
    lost = rng.choice(cluster.names)
    others = [name for name in cluster.names if name != lost]
    lose(cluster, lost, rng.randrange(3000) * MS)
    readmit(cluster, rng.choice([*others, lost]), lost)
    took = cluster.until(cluster.ready, limit=30 * S)
    assert took < 5 * S
    cluster.kill(others[0])
    cluster.until(cluster.ready)
    cluster.open(others[1], 1)
    cluster.publish(others[1], 1, "/a/b", "with the one that came back")
    statuses = cluster.members[others[1]].statuses
    cluster.until(lambda: [status.status for status in statuses] == [StatusName.PUBLISH_OK])


def test_each_group_is_elected_once_for_a_readmission() -> None:
    cluster = started(3)
    lose(cluster, "m2:1", 3 * S)
    cluster.run(5 * S)
    before = epochs(cluster, "m1:1")
    readmit(cluster, "m3:1", "m2:1")
    cluster.until(lambda: not cluster.statistics("m2:1").not_voting)
    assert epochs(cluster, "m1:1") == [epoch + 1 for epoch in before]


def test_two_lost_seeds_of_five_are_taken_back_together() -> None:
    cluster = started(5, count=5)
    cluster.kill("m2:1")
    lose(cluster, "m4:1", S)
    cluster.lose_votes("m2:1")
    cluster.start("m2:1")
    readmit(cluster, "m1:1", "m2:1")
    readmit(cluster, "m3:1", "m4:1")
    cluster.until(cluster.ready)
    cluster.kill("m1:1")
    cluster.kill("m3:1")
    cluster.until(cluster.ready)
    cluster.open("m5:1", 1)
    cluster.publish("m5:1", 1, "/a/b", "by those two and another")
    cluster.until(lambda: bool(cluster.members["m5:1"].statuses))
    (status,) = cluster.members["m5:1"].statuses
    assert (status.status, status.seq) == (StatusName.PUBLISH_OK, 1)


def test_the_word_is_heard_by_coordinators_that_are_elected_after_it_was_given() -> None:
    """All but one are coordinated by members that end before anybody can be elected."""
    cluster = started(5, count=5)
    lose(cluster, "m2:1", 3 * S)
    cluster.run(2 * S)
    word = cluster.operate("m2:1", "readmit", "m2:1")
    assert word.refused is None
    cluster.kill("m1:1")
    cluster.kill("m5:1")
    cluster.run(5 * S)
    cluster.start("m1:1", "m5:1")
    cluster.until(cluster.ready)


def test_the_word_outlasts_a_link_that_breaks_as_it_is_given() -> None:
    cluster = started(4)
    lose(cluster, "m3:1", S)
    cluster.run(S)
    assert cluster.operate("m1:1", "readmit", "m3:1").refused is None
    cluster.disconnect("m1:1", "m3:1")
    cluster.run(300 * MS)
    assert cluster.statistics("m3:1").record_lost
    cluster.connect("m1:1", "m3:1")
    cluster.until(cluster.ready)


@pytest.mark.parametrize("at", ["m1:1", "m3:1"])
def test_a_seed_that_restarts_before_it_is_back_waits_for_another_word(at: str) -> None:
    """What it voted since is lost with its memory: that is a loss of its own."""
    cluster = started(6)
    lose(cluster, "m3:1", S)
    cluster.run(S)
    cluster.loss |= {("m3:1", "m2:1")}
    assert cluster.operate(at, "readmit", "m3:1").refused is None
    cluster.run(200 * MS)
    assert cluster.statistics("m3:1").returning
    cluster.loss.clear()
    cluster.kill("m3:1")
    cluster.start("m3:1")
    cluster.run(20 * S)
    assert "mdserver cluster readmit m3:1" in str(cluster.members["m3:1"].node.unready())
    readmit(cluster, "m2:1", "m3:1")
    cluster.until(cluster.ready)


def test_a_returning_seed_says_that_it_recovers_and_a_second_word_is_refused() -> None:
    cluster = started(3)
    lose(cluster, "m3:1", S)
    cluster.run(S)
    for other in ("m1:1", "m2:1"):
        cluster.loss.add((other, "m3:1"))
    assert cluster.operate("m3:1", "readmit", "m3:1").refused is None
    assert "recovering" in str(cluster.members["m3:1"].node.unready())
    again = cluster.operate("m3:1", "readmit", "m3:1").refused
    assert again == "m3:1 did not lose its vote record"


def test_the_word_means_nothing_to_a_seed_that_lost_nothing() -> None:
    cluster = started(3)
    before = epochs(cluster, "m1:1")
    cluster.feed("m3:1", PeerReceived("m1:1", [Readmit()]))
    cluster.run(5 * S)
    assert epochs(cluster, "m1:1") == before
    assert cluster.ready()


@pytest.mark.parametrize("victim", ["m1:1", "m2:1", "m3:1"])
@pytest.mark.parametrize("later", [0, 1, 5, 20])
def test_a_record_that_is_lost_right_after_the_first_start_is_missed(
    victim: str, later: int
) -> None:
    """Whoever helped to start the cluster is known by a majority before anything is committed."""
    cluster = Cluster(3, seed=later)
    cluster.start()

    def active() -> bool:
        return any(
            group.active for m in cluster.members.values() for group in m.node.statistics().groups
        )

    while not active():
        cluster.run(MS // 10)
    cluster.run(later * MS)
    lose(cluster, victim, 0)
    cluster.run(10 * S)
    assert f"mdserver cluster readmit {victim}" in str(cluster.members[victim].node.unready())
    readmit(cluster, "m1:1", victim)
    cluster.until(cluster.ready)


def test_a_seed_hears_of_a_newer_incarnation_from_who_it_can_reach() -> None:
    """One member noted an incarnation that nobody else did, and has no link to the seed."""
    cluster = started(4, count=5)
    note = cluster.statistics("m5:1").known
    note["m2:1"] = 9
    cluster.operate("m5:1", "drain")  # as a coordinator it would be out of the seed's reach
    cluster.run(3 * S)
    cluster.cut.add(("m2:1", "m5:1"))
    cluster.kill("m1:1")  # so that every election needs the promise that tells of it
    lose(cluster, "m2:1", 3 * S)
    cluster.run(3 * S)
    readmit(cluster, "m4:1", "m2:1")
    cluster.until(lambda: cluster.ready("m2:1"))
    assert cluster.statistics("m2:1").incarnation > 9


def incarnation(cluster: Cluster, name: str) -> int:
    return cluster.statistics(name).incarnation


def test_a_loss_is_a_newer_incarnation_than_any_that_may_have_promised() -> None:
    """Restarts that nobody noted are below it: else what they promised would still count."""
    cluster = started(3)
    for _ in range(3):
        cluster.kill("m2:1")
        cluster.start("m2:1")
        cluster.until(cluster.ready)
    unnoted = incarnation(cluster, "m2:1")
    for name in ("m1:1", "m3:1"):
        cluster.members[name].node.storage.votes.known["m2:1"] = 1
        cluster.members[name].node.members.peers["m2:1"].newest = 1
    lose(cluster, "m2:1", 0)
    cluster.run(S)
    assert incarnation(cluster, "m2:1") > unnoted


def test_a_second_loss_is_told_from_the_first_whoever_tells_of_it() -> None:
    """The one that speaks first did not note the first loss; the other one did."""
    cluster = started(3)
    lose(cluster, "m2:1", S)
    readmit(cluster, "m1:1", "m2:1")
    cluster.until(cluster.ready)
    first = incarnation(cluster, "m2:1")
    cluster.members["m3:1"].node.storage.votes.known["m2:1"] = 1
    cluster.cut.add(("m1:1", "m2:1"))
    lose(cluster, "m2:1", 0)
    cluster.run(S)
    cluster.heal()
    cluster.run(S)
    assert incarnation(cluster, "m2:1") > first


def test_a_seed_counts_by_the_incarnation_with_which_it_was_taken_back() -> None:
    """Others had heard of a later one, which it lost before anybody relied on it."""
    cluster = started(3)
    lose(cluster, "m2:1", S)
    cluster.run(S)
    lost = incarnation(cluster, "m2:1")
    cluster.kill("m2:1")  # the record has the new incarnation, and nobody has noted it
    cluster.start("m2:1")
    cluster.run(S)
    assert incarnation(cluster, "m2:1") > lost, "it was told to take another one"
    lose(cluster, "m2:1", S)
    cluster.run(S)
    assert incarnation(cluster, "m2:1") == lost
    readmit(cluster, "m1:1", "m2:1")
    cluster.until(cluster.ready)
    cluster.run(S)
    for name in ("m1:1", "m3:1"):
        assert cluster.statistics(name).known["m2:1"] == lost
    lose(cluster, "m3:1", S)
    cluster.until(lambda: cluster.ready("m1:1", "m2:1"))


def test_a_seed_out_of_contact_with_the_majority_does_not_take_the_word() -> None:
    """Those who know of an earlier loss may be among the ones that it does not see."""
    cluster = started(5, count=5)
    for other in ("m1:1", "m3:1", "m4:1"):
        cluster.cut.add((min(other, "m2:1"), max(other, "m2:1")))
    lose(cluster, "m2:1", 0)
    cluster.run(S)
    refused = cluster.operate("m2:1", "readmit", "m2:1").refused
    assert refused == "m2:1 sees no majority of the seeds"
    assert cluster.operate("m5:1", "readmit", "m2:1").refused is None
    cluster.run(S)
    assert cluster.statistics("m2:1").record_lost
    cluster.heal()
    cluster.until(cluster.ready)


def test_a_seed_that_votes_by_an_old_record_stops_as_it_hears_of_a_newer_one() -> None:
    """Its logs were restored with the votes of a copy, so that it was NORMAL at once."""
    cluster = started(3)
    cluster.run(3 * S)
    assert cluster.statistics("m2:1").coordinated
    told = Hello(1, True, "", {"m2:1": 7}, ())
    cluster.feed("m2:1", PeerReceived("m1:1", [told]))
    assert cluster.statistics("m2:1").not_voting == list(range(cluster.groups))
    assert not cluster.statistics("m2:1").coordinated
    cluster.run(S)
    readmit(cluster, "m1:1", "m2:1")
    cluster.until(cluster.ready)


def test_a_seed_that_dies_before_its_record_says_that_it_is_known_lost_nothing() -> None:
    cluster = Cluster(3)
    cluster.disk_delays["m3:1"] = 500 * MS
    cluster.start()
    while not cluster.statistics("m3:1").admitted:
        cluster.run(MS)
    cluster.run(300 * MS)
    cluster.kill("m3:1")
    cluster.start("m3:1")
    cluster.until(cluster.ready)
    assert not any(cluster.statistics(name).not_voting for name in cluster.names)
    assert len({cluster.statistics(name).histories[0] for name in cluster.names}) == 1
