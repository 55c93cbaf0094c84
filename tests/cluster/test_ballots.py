"""What one group of a seed answers to candidates, and what ends a candidacy of its member."""

from mdserver.cluster.coordinator import CoordinatorState
from mdserver.cluster.group import Group
from mdserver.cluster.guards import Guard
from mdserver.cluster.messages import (
    NackItem,
    Prepare,
    PrepareItem,
    PreVoteGrantedItem,
    PreVoteItem,
    Promise,
    PromiseItem,
)
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster

CANDIDATE = "m3:1"


def voter() -> tuple[Cluster, Group]:
    """Return a cluster without coordinators in sight of m1:1, and the first group of that seed."""
    cluster = Cluster(3)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(S)
    for peer in ("m2:1", "m3:1"):
        cluster.disconnect("m1:1", peer)
        cluster.loss |= {("m1:1", peer), (peer, "m1:1")}
    cluster.run(5 * S)
    group = cluster.members["m1:1"].running.groups[0]
    group.ballots.no_vote_until = 0
    return cluster, group


def test_a_pre_vote_changes_nothing_and_a_promise_binds() -> None:
    _, group = voter()
    epoch = group.promised_epoch + 1
    asked = PreVoteItem(0, epoch, 0, "")
    assert group.step(CANDIDATE, asked) == PreVoteGrantedItem(0, epoch, 0, "")
    assert group.promised_epoch == epoch - 1

    prepare = Prepare([PrepareItem(0, epoch, 0, "")], {}, False)
    promise = group.step(CANDIDATE, prepare.items[0], prepare)
    assert isinstance(promise, PromiseItem)
    assert (promise.group, promise.epoch, promise.length) == (0, epoch, group.log.length)
    assert group.promised_epoch == epoch

    refused = NackItem(0, epoch, epoch, CANDIDATE)
    assert group.step("m2:1", asked) == refused
    assert group.step("m2:1", prepare.items[0], prepare) == refused


def test_after_a_promise_other_candidates_wait() -> None:
    cluster, group = voter()
    epoch = group.promised_epoch + 1
    prepare = Prepare([PrepareItem(0, epoch, 0, "")], {}, False)
    group.step(CANDIDATE, prepare.items[0], prepare)
    before = cluster.members["m1:1"].running.refused[Guard.PRE_VOTE_EARLY]
    assert group.step("m2:1", PreVoteItem(0, epoch + 1, 0, "")) is None
    assert cluster.members["m1:1"].running.refused[Guard.PRE_VOTE_EARLY] == before + 1


def test_a_candidate_is_elected_by_a_majority_and_adopts_the_best_log() -> None:
    _, group = voter()
    coordinator = group.ballots.stand()
    assert group.coordinator is coordinator
    granted = PreVoteGrantedItem(0, coordinator.epoch, 0, group.history)
    assert group.step("m1:1", granted) is None
    assert isinstance(group.step("m2:1", granted), PrepareItem), "a majority would promise"
    prepare = Prepare([group.ballots.ballot(PrepareItem, coordinator)], {}, False)
    own = group.step("m1:1", prepare.items[0], prepare)
    assert isinstance(own, PromiseItem)
    assert group.coordinator is coordinator, "its own promise does not depose it"
    message = Promise(1, {}, [own])
    assert group.step("m1:1", own, message) is None
    best = group.step("m2:1", own, message)
    assert best is own
    assert group.ballots.adopt(own).state is CoordinatorState.SYNCING
    assert group.log.epoch == coordinator.epoch == group.leadership.epoch


def test_a_refusal_deposes_only_if_it_names_a_newer_epoch_of_another_candidate() -> None:
    _, group = voter()
    coordinator = group.ballots.stand()
    epoch = coordinator.epoch
    for harmless in (
        NackItem(0, epoch, epoch - 1, "m2:1"),  # that seed does not vote
        NackItem(0, epoch, epoch, "m1:1"),  # promised to this very candidate
        NackItem(0, epoch - 1, epoch + 1, "m2:1"),  # of an earlier candidacy
    ):
        group.step("m2:1", harmless)
        assert group.coordinator is coordinator
    group.step("m2:1", NackItem(0, epoch, epoch + 4, "m3:1"))
    assert group.coordinator is None
    assert group.ballots.stand().epoch == epoch + 5, "above everything heard of"
