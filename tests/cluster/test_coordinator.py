"""A candidate, then coordinator, of one epoch of one group: its table, promises and acks."""

import pytest

from mdserver.cluster.coordinator import (
    TRANSITIONS,
    Coordinator,
    CoordinatorEvent,
    CoordinatorState,
)
from mdserver.cluster.log import GroupLog
from mdserver.cluster.messages import PromiseItem
from mdserver.core.message import Publication
from mdserver.errors import LocalProtocolError

SEEDS = ("m1:1", "m2:1", "m3:1")


def coordinator(phase: CoordinatorState = CoordinatorState.PRE_VOTING) -> Coordinator:
    made = Coordinator(0, 7, GroupLog(10), SEEDS, 0)
    made.state = phase
    return made


def promised(accepted: int, length: int) -> PromiseItem:
    return PromiseItem(0, 7, accepted, length, 0, "h", 0, [], [], None)


@pytest.mark.parametrize("phase", CoordinatorState)
@pytest.mark.parametrize("move", CoordinatorEvent)
def test_every_pair_goes_where_the_table_says_or_is_refused(
    phase: CoordinatorState, move: CoordinatorEvent
) -> None:
    one = coordinator(phase)
    target = TRANSITIONS.get((phase, move))
    if target is None:
        with pytest.raises(LocalProtocolError, match="coordinator cannot be"):
            one.transition(move)
        target = phase
    else:
        one.transition(move)
    assert one.state is target


def test_a_majority_that_would_promise_is_told_of_once() -> None:
    one = coordinator()
    assert not one.pre_voted("m1:1")
    assert not one.pre_voted("m1:1"), "the same seed again"
    assert one.pre_voted("m2:1")
    assert not one.pre_voted("m3:1")


def test_the_best_log_is_of_the_highest_epoch_and_not_the_longest() -> None:
    one = coordinator(CoordinatorState.PREPARING)
    assert one.promised("m1:1", 1, {}, promised(3, 9)) is None
    best = one.promised("m2:1", 1, {}, promised(5, 2))
    assert best is not None
    assert (best.accepted, best.length) == (5, 2)


def test_a_promise_by_an_incarnation_that_others_know_to_be_over_does_not_count() -> None:
    one = coordinator(CoordinatorState.PREPARING)
    assert one.promised("m1:1", 1, {}, promised(3, 9)) is None
    assert one.promised("m2:1", 1, {"m1:1": 2}, promised(3, 1)) is None
    assert one.promised("m3:1", 1, {}, promised(3, 4)) is not None


def test_acks_of_a_majority_make_it_active_and_commit() -> None:
    one = coordinator(CoordinatorState.SYNCING)
    one.adopted()
    assert one.ack("m1:1", 1, 0) is None
    assert one.ack("m9:1", 1, 0) is None, "it is no seed"
    assert one.ack("m2:1", 1, 0) == 0
    assert one.state is CoordinatorState.ACTIVE


def numbered(*numbers: int) -> list[Publication]:
    return [Publication("/a/b", b"", publisher="~1/p", number=number) for number in numbers]


def told(one: Coordinator, *acks: tuple[str, int]) -> list[tuple[str, int, int | None]]:
    """Return what is answered, (contact, ticket, expected), once seeds acked so much."""
    for seed, length in acks:
        agreed = one.ack(seed, 1, length)
        if agreed is not None:
            one.log.commit(agreed)
    return [(contact, answer.ticket, answer.expected) for contact, answer in one.due()]


def test_a_gap_is_told_once_an_entry_that_was_appended_for_it_is_committed() -> None:
    """Until then a newer coordinator may have the number that is missing."""
    one = coordinator(CoordinatorState.ACTIVE)
    assert one.append(numbered(1), "m4:1", 1) == []
    assert told(one, ("m1:1", 1), ("m2:1", 1)) == []
    assert one.append(numbered(3, 4), "m4:1", 2) == []
    assert one.log.length == 2, "one entry for both"
    assert told(one, ("m1:1", 2)) == []
    assert told(one, ("m2:1", 2)) == [("m4:1", 2, 2), ("m4:1", 3, 2)]
    assert one.append(numbered(2), "m4:1", 4) == []
    assert one.log.entries[-1].publication.number == 2


def test_what_comes_with_a_gap_is_entry_enough() -> None:
    one = coordinator(CoordinatorState.ACTIVE)
    assert one.append(numbered(2, 1, 2), "m4:1", 1) == []
    assert [entry.publication.number for entry in one.log.entries] == [1, 2]
    assert told(one, ("m1:1", 2)) == []
    assert told(one, ("m2:1", 1)) == [("m4:1", 1, 1)], "before the rest is committed"


def test_an_entry_for_a_gap_changes_no_table() -> None:
    one = coordinator(CoordinatorState.ACTIVE)
    one.append(numbered(1), "m4:1", 1)
    told(one, ("m1:1", 1), ("m2:1", 1))
    publishers = one.log.publishers.told()
    one.append(numbered(3), "m4:1", 2)
    assert one.log.publishers.told() == publishers
    one.log.truncate(1)
    assert one.log.publishers.told() == publishers
    assert one.log.numbering == {"/a/b": 1}
