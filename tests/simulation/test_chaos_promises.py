"""Promises of live members: what answers of different moments can still contradict."""

from collections.abc import Mapping

import pytest

from simulation.chaos.promises import Cached, HeldByMajorities, Witness, unlike
from simulation.chaos.statuses import NoAnswerError, Status
from simulation.history import Acked

SEEDS = (0, 1, 2)
ACKED = Acked(1, "pub0-7", "/s/1", "h", 3, 7)


def status(committed: int, length: int, state: str = "NORMAL", history: str = "h") -> Status:
    return Status(
        at=0.0,
        state=state,
        quorum=True,
        coordinators=["m0"],
        epochs=[1],
        committed=[committed],
        lengths=[length],
        lag=length - committed,
        history=history,
        led=0,
        seeds=None,
    )


def begun() -> HeldByMajorities:
    """Nine entries are known to be committed."""
    held = HeldByMajorities()
    assert held.see(0, status(9, 9), held.known(), SEEDS) is None
    return held


def test_a_majority_that_votes_and_lacks_what_is_committed_is_found() -> None:
    held = begun()
    assert held.see(1, status(5, 6), held.known(), SEEDS) is None, "one of three"
    found = held.see(2, status(5, 8), held.known(), SEEDS)
    assert found == "I1: 9 entries of group 0 are committed, but m1, m2 vote and hold fewer"


@pytest.mark.parametrize(
    "second",
    [
        status(5, 9),
        status(5, 8, state="RECOVERING"),
        status(5, 8, history="another"),
    ],
)
def test_who_holds_it_or_does_not_vote_is_counted_for_nothing(second: Status) -> None:
    held = begun()
    assert held.see(1, status(5, 6), held.known(), SEEDS) is None
    assert held.see(2, second, held.known(), SEEDS) is None


def test_what_was_committed_after_a_seed_was_asked_says_nothing_of_its_answer() -> None:
    held = begun()
    early = held.known()
    assert held.see(0, status(20, 20), held.known(), SEEDS) is None
    assert held.see(1, status(9, 9), early, SEEDS) is None
    assert held.see(2, status(9, 9), early, SEEDS) is None
    assert held.see(1, status(9, 9), held.known(), SEEDS) is None
    assert held.see(2, status(9, 9), held.known(), SEEDS) is not None


def test_who_ended_and_members_of_another_list_are_not_counted() -> None:
    held = begun()
    assert held.see(1, status(5, 6), held.known(), SEEDS) is None
    held.gone(1)
    assert held.see(2, status(5, 8), held.known(), SEEDS) is None
    others = (0, 1, 3)
    for number in (0, 0):
        assert held.see(number, status(9, 9), held.known(), others) is None
    for number in (1, 2):
        assert held.see(number, status(5, 6), held.known(), others) is None
    assert held.see(3, status(5, 6), held.known(), others) is not None


def test_what_was_known_of_another_history_says_nothing() -> None:
    held = begun()
    early = held.known()
    assert held.see(0, status(1, 1, history="next"), early, SEEDS) is None
    for number in (1, 2):
        assert held.see(number, status(1, 1, history="next"), early, SEEDS) is None


@pytest.mark.parametrize(
    ("cached", "found"),
    [
        ({7: (3, "pub0-7")}, None),
        ({8: (3, "pub0-8")}, None),
        ({7: (3, "pub1-2")}, "where its member has (3, 'pub1-2')"),
        ({7: (2, "pub0-7")}, "where its member has (2, 'pub0-7')"),
        ({6: (3, "pub0-6")}, "where its member has nothing"),
        ({6: (3, "pub0-6"), 8: (3, "pub0-8")}, "where its member has nothing"),
        ({}, "where its member has nothing"),
    ],
)
def test_what_a_member_acknowledged_it_has_there(cached: Cached, found: str | None) -> None:
    said = unlike(ACKED, cached)
    assert said is None if found is None else found in (said or "")


def witness(answers: Mapping[int, Cached]) -> Witness:
    """Of members that have these messages of every subject; others do not answer."""

    async def read(member: int, _: str) -> Cached:
        if member not in answers:
            raise NoAnswerError(f"m{member} is down")
        return answers[member]

    return Witness(read)


async def test_the_member_that_acknowledged_is_asked_once_and_not_after_another_start() -> None:
    asked = witness({0: {}, 1: {7: (3, "pub0-7")}})
    asked.acked("pub0", ACKED, 0, 1)
    assert "I8" in (await asked.look(0, lambda: 1) or "")
    assert await asked.look(0, lambda: 1) is None, "it was asked about it already"
    for member, start in ((0, 2), (1, 1), (2, 1)):
        asked.acked("pub0", ACKED, member, 1)
        assert await asked.look(member, lambda n=start: n) is None
    assert asked.looked == 2


async def test_a_member_is_ready_once_it_holds_what_was_acknowledged_before() -> None:
    asked = witness({0: {6: (3, "pub0-6")}})
    asked.started(0, {("h", "/s/1"): 7, ("h", "/s/2"): 6})
    assert asked.waits(0)
    assert await asked.ready(0, lambda: 1) == "I10: m0 is ready with 6 of /s/1; 7 was acked before"
    assert not asked.waits(0)
    asked.started(0, {("h", "/s/1"): 6})
    assert await asked.ready(0, lambda: 1) is None
    starts = iter((1, 2))
    asked.started(0, {("h", "/s/1"): 7})
    assert await asked.ready(0, lambda: next(starts)) is None, "it is another start already"
