"""Seeds that lost what they knew, and what a member of this mode tells clients meanwhile."""

from mdserver.limits import NS_PER_S as S
from tests.cluster.started import acked, started


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
