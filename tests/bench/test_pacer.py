import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.bench.pacer import Timetable
from mdserver.limits import NS_PER_S

TIMETABLES = st.builds(
    Timetable,
    start_ns=st.integers(0, 2**50),
    rate=st.floats(0.5, 100_000),
    burst=st.integers(1, 100),
    seconds=st.floats(0.05, 1000),
)


@given(TIMETABLES, st.floats(0, 1))
def test_a_publication_is_due_from_its_time_on(timetable: Timetable, share: float) -> None:
    number = int(share * (timetable.count - 1))
    at = timetable.at_ns(number)
    slack_ns = 2000  # rates are floats
    assert timetable.due(at + slack_ns) > number
    first_of_burst = number // timetable.burst * timetable.burst
    assert timetable.due(at - slack_ns) <= first_of_burst
    assert timetable.due(timetable.start_ns - 1) == 0


@given(TIMETABLES)
def test_all_publications_of_a_timetable_are_within_its_time(timetable: Timetable) -> None:
    length_ns = timetable.at_ns(timetable.count - 1) - timetable.start_ns
    assert timetable.count % timetable.burst == 0
    assert length_ns <= timetable.seconds * NS_PER_S + 1
    assert timetable.due(timetable.start_ns + 10 * length_ns + 10**12) == timetable.count


@pytest.mark.parametrize(
    ("rate", "burst", "seconds", "count"),
    [(10.0, 1, 2.0, 20), (10.0, 5, 1.0, 10), (1.0, 10, 1.0, 10)],
)
def test_how_many_publications_there_are(
    rate: float, burst: int, seconds: float, count: int
) -> None:
    assert Timetable(0, rate, burst, seconds).count == count
