"""What the benchmark of derive counts: what was published after the warm-up, and every fault."""

import pytest

from mdserver.bench.derive import Course, DeriveLoad
from mdserver.bench.encodings import ENCODINGS

LOAD = DeriveLoad(ENCODINGS["json"], rate=10, every=1, seconds=2)


def test_latencies_are_those_after_the_warm_up() -> None:
    course = Course(measured_from=3)
    for number, latency in [(1, 9.0), (2, 9.0), (3, 0.1), (4, 0.3)]:
        course.published[number] = 100.0 + number
        course.arrived(number, 100.0 + number + latency)
    row = course.row(LOAD, "real-time, ")
    assert (row.count, row.per_s, row.lost, row.repeated) == (2, 1.0, 0, 0)
    assert row.max_ms == pytest.approx(300, rel=0.01)
    assert row.mode == "real-time, 10 publications a second, 1 in 1 speaks"


def test_what_is_lost_or_comes_twice_is_counted() -> None:
    course = Course(measured_from=1)
    course.published |= dict.fromkeys((1, 2, 3), 0.0)
    for number in (1, 1, 1, 2):
        course.arrived(number, 0.5)
    row = course.row(LOAD, "")
    assert (row.lost, row.repeated) == (1, 2)
