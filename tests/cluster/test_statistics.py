"""What a node says of itself stays as it was said, and is what the others see of it."""

import attrs
import pytest

from mdserver.cluster.acceptor import Standing
from mdserver.cluster.coordinator import CoordinatorState
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster

SUBJECT = "/a/b"


def started() -> Cluster:
    cluster = Cluster(3)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(3 * S)
    cluster.open("m1:1", 1, "p")
    return cluster


def test_what_was_said_does_not_change_with_the_next_step() -> None:
    cluster = started()
    group = cluster.group(SUBJECT)
    before = cluster.statistics("m1:1")
    copied = attrs.evolve(before.groups[group])
    cluster.publish("m1:1", 1, SUBJECT, "one", number=1)
    cluster.run(S)
    assert before.groups[group] == copied
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        before.waiting = 1  # type: ignore[misc]
    now = cluster.statistics("m1:1").groups[group]
    assert (now.length, now.committed) == (copied.length + 1, copied.committed + 1)
    assert (now.numbering, now.publishers) == ({SUBJECT: 1}, {"p": 1})
    assert now == cluster.members["m1:1"].node.group_statistics(group)


def test_a_publication_waits_until_a_majority_has_it() -> None:
    cluster = started()
    cluster.publish("m1:1", 1, SUBJECT, "one")
    assert cluster.statistics("m1:1").waiting == 1
    cluster.run(S)
    assert cluster.statistics("m1:1").waiting == 0


def test_one_member_coordinates_a_group_and_all_know_which() -> None:
    cluster = started()
    everybody = {name: cluster.statistics(name) for name in cluster.names}
    coordinated = [index for one in everybody.values() for index in one.coordinated]
    assert sorted(coordinated) == list(range(cluster.groups))
    for name, one in everybody.items():
        assert set(one.linked) == set(cluster.names) - {name}
        for group in one.groups:
            assert (group.active, group.votes, group.standing) == (True, True, Standing.NORMAL)
            coordinator = everybody[group.coordinator].groups[group.index]
            assert (coordinator.coordinator_state, coordinator.own_epoch) == (
                CoordinatorState.ACTIVE,
                group.epoch,
            )
            assert coordinator.acked[name] == group.length


def test_a_member_that_is_no_seed_has_no_standing() -> None:
    cluster = Cluster(4)
    cluster.start()
    cluster.until(cluster.ready)
    one = cluster.statistics("m4:1")
    assert {group.standing for group in one.groups} == {None}
    assert (one.not_voting, one.record_lost, one.unverified) == ([], False, False)


def test_a_seed_that_lost_its_record_says_so_until_it_is_taken_back() -> None:
    cluster = started()
    cluster.kill("m2:1")
    cluster.lose_votes("m2:1")
    cluster.start("m2:1")
    cluster.run(3 * S)
    lost = cluster.statistics("m2:1")
    assert lost.record_lost
    assert lost.not_voting == list(range(cluster.groups))
    assert cluster.operate("m1:1", "readmit", "m2:1").refused is None
    cluster.until(cluster.ready)
    assert not cluster.statistics("m2:1").record_lost
