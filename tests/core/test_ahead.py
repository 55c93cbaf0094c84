"""Clients that have seen more than this member wait for it, for a bounded time."""

from collections.abc import Iterator
from typing import Any

from mdserver.core.ahead import AheadWaits
from mdserver.core.inputs import Opened
from mdserver.core.interest import Interest
from mdserver.core.outputs import CancelTimer, Output, SetTimer
from mdserver.core.session import KnownPositions, Session
from mdserver.limits import AHEAD_WAIT_S, NS_PER_S

UNTIL = AHEAD_WAIT_S * NS_PER_S


def session() -> Session:
    return Session(Opened(1, "127.0.0.1"))


def waits(session: Session, *places: int) -> tuple[AheadWaits, list[Output]]:
    """A member that has nothing, and a client that knows these places; what that brings."""
    ahead = AheadWaits(len(places), Interest())
    out: list[Output] = []
    known = KnownPositions()
    known.places = list(places)
    ahead.compare(session, known, 0, out)
    return ahead, out


def test_a_client_that_saw_no_more_does_not_wait() -> None:
    one = session()
    ahead, out = waits(one, 0, 0)
    assert (out, ahead.waits_for_places(one)) == ([], False)


def test_a_client_waits_until_this_member_has_all_that_it_saw() -> None:
    one = session()
    ahead, out = waits(one, 3, 5)
    assert out == [SetTimer(("broker", "ahead", one.id), UNTIL)]
    ahead.reached[1] = 4
    assert ahead.reached_in(1) == []
    ahead.reached[0] = 3
    assert ahead.reached_in(0) == []
    assert ahead.waits_for_places(one)
    ahead.reached[1] = 5
    assert ahead.reached_in(1) == [one]
    assert not ahead.waits_for_places(one)
    assert not ahead.timed_out(one, UNTIL, []), "it waits for nothing more"


def test_a_wait_ends_when_its_time_is_over_and_not_before() -> None:
    one = session()
    ahead, _ = waits(one, 3)
    out: list[Output] = []
    assert not ahead.timed_out(one, UNTIL - 1, out)
    assert out == [SetTimer(("broker", "ahead", one.id), UNTIL)], "the timer is set again"
    assert ahead.timed_out(one, UNTIL, out)


def test_a_session_that_ended_waits_for_nothing() -> None:
    one = session()
    ahead, _ = waits(one, 3)
    out: list[Output] = []
    ahead.forget(one, out)
    assert out == [CancelTimer(("broker", "ahead", one.id))]
    ahead.reached[0] = 3
    assert ahead.reached_in(0) == []
    assert ahead.reached_anywhere() == []


def test_a_new_history_in_which_places_mean_nothing_ends_the_wait_for_them() -> None:
    one = session()
    ahead, _ = waits(one, 3, 5)
    ahead.places[one].places[:] = [-1, 5]
    assert ahead.reached_anywhere() == []
    ahead.reached[1] = 5
    assert ahead.reached_in(1) == [one]


class Counted(list[int]):
    """Places that count how often one of them is looked at."""

    looks = 0

    def __getitem__(self, index: Any) -> Any:
        Counted.looks += 1
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[int]:
        Counted.looks += len(self)
        return super().__iter__()


def test_places_that_clients_invent_cost_nothing_in_other_groups() -> None:
    """A thousand clients say that they saw what will never be."""
    groups, count = 128, 1000
    ahead = AheadWaits(groups, Interest())
    for number in range(count):
        known = KnownPositions()
        known.places = Counted([0] * (groups - 1) + [10**12])
        ahead.compare(Session(Opened(number, "127.0.0.1")), known, 0, [])
    assert len(ahead.places) == count
    Counted.looks = 0
    for group in range(groups - 1):
        ahead.reached[group] += 1
        assert ahead.reached_in(group) == []
    assert Counted.looks == 0
    ahead.reached[-1] += 1
    assert ahead.reached_in(groups - 1) == []
    assert Counted.looks == count
