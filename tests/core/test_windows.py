"""Windows against an oracle that keeps every sample, whatever the clock does."""

import math
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdserver.core.windows import RING, UNITS_S, WINDOWS, ImageError, Windows, WindowSummary
from mdserver.limits import NS_PER_S

DAY = 86_400 * NS_PER_S
MONTHS_END = 1_772_323_199 * NS_PER_S  # 2026-02-28 23:59:59 UTC
LEAP_SECOND = 1_483_228_799 * NS_PER_S  # 2016-12-31 23:59:59 UTC; a second 60 came after it


class Oracle:
    """All samples there ever were, with the time at which each counts."""

    def __init__(self) -> None:
        self.samples: list[tuple[int, float, float]] = []
        self.time = 0
        self.clock: int | None = None

    def look(self, now: int) -> None:
        """The time goes on as the clock does, but for steps back."""
        self.time = now if self.clock is None else self.time + max(0, now - self.clock)
        self.clock = now

    def add(self, value: float, elapsed: int, now: int) -> None:
        self.look(now)
        if elapsed > 0:
            self.samples.append((self.time, value, elapsed / NS_PER_S))

    def summary(self, window: str) -> WindowSummary:
        unit, count = WINDOWS[window]
        width = UNITS_S[unit] * NS_PER_S // 60
        first = self.time // width - 60 * count + 1
        inside = [(value, weight) for at, value, weight in self.samples if at // width >= first]
        if not inside:
            return WindowSummary(0, 0, 0, 0)
        total = math.fsum(weight for _, weight in inside)
        average = math.fsum(value * weight for value, weight in inside) / total
        squares = math.fsum(weight * (value - average) ** 2 for value, weight in inside)
        most = max(value for value, _ in inside)
        return WindowSummary(total, most, average, math.sqrt(squares / total))


def agree(windows: Windows, oracle: Oracle, now: int) -> None:
    oracle.look(now)
    found = windows.summaries("rate", now)
    assert list(found) == list(WINDOWS)
    for name, summary in found.items():
        wanted = oracle.summary(name)
        assert summary.seconds == pytest.approx(wanted.seconds), name
        assert summary.maximum == wanted.maximum, name
        assert summary.average == pytest.approx(wanted.average), name
        close = 1e-6 * max(1.0, abs(wanted.maximum))
        assert summary.deviation == pytest.approx(wanted.deviation, rel=1e-6, abs=close), name


CLOCK_STEPS = st.one_of(
    st.just(NS_PER_S),
    st.integers(1, 3 * NS_PER_S),
    st.sampled_from([60 * NS_PER_S, 3600 * NS_PER_S, DAY, 30 * DAY, 450 * DAY, 4000 * DAY]),
    st.integers(-400 * DAY, 400 * DAY),
    st.just(-NS_PER_S),
)
SAMPLES = st.lists(
    st.tuples(CLOCK_STEPS, st.floats(0, 1e9), st.integers(-1, 5 * NS_PER_S)), max_size=60
)


@settings(deadline=None, max_examples=200)
@given(
    start=st.sampled_from([0, MONTHS_END, LEAP_SECOND]),
    samples=SAMPLES,
    every=st.sampled_from([1, 3, 1000]),
)
def test_windows_are_those_of_the_raw_samples(
    start: int, samples: list[tuple[int, float, int]], every: int
) -> None:
    windows, oracle, now = Windows(["rate"]), Oracle(), start
    for count, (step, value, elapsed) in enumerate(samples, 1):
        now += step
        windows.add({"rate": value}, elapsed, now)
        oracle.add(value, elapsed, now)
        # What a read keeps for the next one must not outlive what it was computed of.
        if count % every == 0:
            agree(windows, oracle, now)
    agree(windows, oracle, now)
    agree(windows, oracle, now + 61 * NS_PER_S)


@settings(deadline=None, max_examples=50)
@given(before=SAMPLES, gap=CLOCK_STEPS, after=SAMPLES)
def test_a_restart_changes_nothing(
    before: list[tuple[int, float, int]], gap: int, after: list[tuple[int, float, int]]
) -> None:
    windows, oracle, now = Windows(["rate"]), Oracle(), MONTHS_END
    for samples in (before, [(gap, 1.0, NS_PER_S)], after):
        for step, value, elapsed in samples:
            now += step
            windows.add({"rate": value}, elapsed, now)
            oracle.add(value, elapsed, now)
        content = msgspec.msgpack.encode(windows.image())
        windows = Windows(["rate"])
        windows.restore(msgspec.msgpack.decode(content, type=type(windows.image())))
        # The clock of a new process stands in no relation to that of the one before.
        oracle.clock = max(now, oracle.time)
    agree(windows, oracle, max(now, oracle.time))


def every_second(start: int, seconds: int) -> Iterator[tuple[int, float]]:
    for second in range(seconds):
        yield start + second * NS_PER_S, float(second % 7)


@pytest.mark.parametrize("start", [MONTHS_END - 30 * NS_PER_S, LEAP_SECOND - 30 * NS_PER_S])
def test_a_window_of_a_minute_has_sixty_samples_across_a_months_end(start: int) -> None:
    windows, oracle = Windows(["rate"]), Oracle()
    for now, value in every_second(start, 200):
        windows.add({"rate": value}, NS_PER_S, now)
        oracle.add(value, NS_PER_S, now)
        agree(windows, oracle, now)
    assert windows.summaries("rate", now)["1min"].seconds == 60
    assert windows.summaries("rate", now)["15months"].seconds == 200


def test_a_leap_second_that_repeats_is_counted() -> None:
    """POSIX clocks show 23:59:59 twice."""
    windows = Windows(["rate"])
    times = [LEAP_SECOND - NS_PER_S, LEAP_SECOND, LEAP_SECOND, LEAP_SECOND + NS_PER_S]
    for now, value in zip(times, (1.0, 2.0, 30.0, 4.0), strict=True):
        windows.add({"rate": value}, NS_PER_S, now)
    found = windows.summaries("rate", times[-1])["1min"]
    assert (found.seconds, found.maximum, found.average) == (4, 30, 9.25)


def test_a_clock_that_is_set_back_neither_ends_nor_fills_a_window() -> None:
    windows, now = Windows(["rate"]), MONTHS_END
    for jump in (0, -3600, 7200, -10 * 86400):
        now += jump * NS_PER_S
        for _ in range(30):
            now += NS_PER_S
            windows.add({"rate": 5.0}, NS_PER_S, now)
    found = windows.summaries("rate", now)
    assert found["1min"].seconds == 60, "the last sixty samples"
    assert found["15h"].seconds == 120
    assert found["15months"].average == 5


def test_memory_does_not_grow_and_long_silence_costs_no_more_than_a_ring() -> None:
    windows = Windows(["rate"])
    for month in range(40):
        windows.add({"rate": month}, NS_PER_S, MONTHS_END + 30 * month * DAY)
    image = windows.image()
    assert [len(ring.weights) for ring in image.rings] == [8 * RING] * 4
    found = windows.summaries("rate", MONTHS_END + 30 * 39 * DAY)
    assert (found["15months"].seconds, found["15months"].maximum) == (15, 39)
    windows.add({"rate": 1}, NS_PER_S, MONTHS_END + 4_000_000 * DAY)


def test_points_of_a_window_oldest_first() -> None:
    windows = Windows(["rate"])
    for now, value in every_second(MONTHS_END, 3):
        windows.add({"rate": value}, NS_PER_S, now)
    points = windows.points("rate", "1min", MONTHS_END + 3 * NS_PER_S)
    assert len(points) == 60
    assert points[-5:] == [None, (0, 0), (1, 1), (2, 2), None]


def test_an_image_that_does_not_fit_is_refused() -> None:
    windows = Windows(["rate"])
    for image, reason in (
        (Windows(["other"]).image(), "other indicators"),
        (msgspec.structs.replace(windows.image(), version=2), "another version"),
        (
            msgspec.structs.replace(
                windows.image(),
                rings=[
                    msgspec.structs.replace(ring, weights=b"short")
                    for ring in windows.image().rings
                ],
            ),
            "another length",
        ),
        (
            msgspec.structs.replace(
                windows.image(),
                rings=[msgspec.structs.replace(ring, columns=[]) for ring in windows.image().rings],
            ),
            "another number of indicators",
        ),
    ):
        with pytest.raises(ImageError, match=reason):
            windows.restore(image)
