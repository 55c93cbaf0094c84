"""Clients that have seen more than this member wait for it, for a bounded time."""

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
    ahead.reached[:] = [3, 4]
    assert ahead.reached_by() == []
    assert ahead.waits_for_places(one)
    ahead.reached[1] = 5
    assert ahead.reached_by() == [one]
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
    assert ahead.reached_by() == []
