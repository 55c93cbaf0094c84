"""Latencies by powers of two."""

from hypothesis import given
from hypothesis import strategies as st

from mdserver.core.histogram import BITS_LEAST, BITS_MOST, Histogram
from mdserver.limits import NS_PER_S


@given(latencies=st.lists(st.integers(-5, 2**70), max_size=50))
def test_buckets_hold_what_is_not_above_them(latencies: list[int]) -> None:
    histogram = Histogram()
    for latency in latencies:
        histogram.add(latency)
    taken = [min(max(latency, 0), 2**64 - 1) for latency in latencies]
    buckets = histogram.buckets()
    for bound, count in buckets[:-1]:
        # The bucket ends below its bound, which is all the same for latencies in ns.
        assert count == sum(latency < bound * NS_PER_S for latency in taken)
    assert buckets[-1] == (float("inf"), len(latencies))
    assert len(buckets) == BITS_MOST - BITS_LEAST + 2
    assert (histogram.count, histogram.total) == (len(taken), sum(taken))


def test_quantiles_are_at_most_twice_too_much() -> None:
    histogram = Histogram()
    assert list(histogram.quantiles((0.5, 0.99))) == [0, 0]
    for latency in range(1, 1001):
        histogram.add(latency * 1_000_000)
    for part, found in zip((0.5, 0.99), histogram.quantiles((0.5, 0.99)), strict=True):
        assert part <= found <= 2 * part + 0.05
    histogram.add(0, count=10_000)
    assert next(histogram.quantiles((0.5,))) == 1 / NS_PER_S
