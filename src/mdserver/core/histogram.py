"""Histograms of latencies in powers of two: an observation is one addition, without a search."""

from collections.abc import Iterator, Sequence

from mdserver.limits import NS_PER_S

BITS_LEAST = 16
"""The first bucket ends at 2**16 ns, some 66 microseconds."""
BITS_MOST = 35
"""The last but one ends at 2**35 ns, some 34 seconds; the last has no end."""


class Histogram:
    """Counts of latencies between one power of two nanoseconds and the next.

    Hot code counts by itself: `counts[latency.bit_length()] += n` and `total += n * latency`.
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * 65
        """Index: the number of bits of a latency (ns); value: how many latencies have that many."""
        self.total = 0

    def add(self, latency: int, count: int = 1) -> None:
        """Count `count` equal latencies (ns); one below 0, from clocks that differ, counts as 0."""
        latency = min(max(latency, 0), 2**64 - 1)
        self.counts[latency.bit_length()] += count
        self.total += latency * count

    def since(self, before: "Histogram") -> "Histogram":
        """Return what was counted since `before`, a copy of this histogram."""
        found = Histogram()
        found.counts = [now - then for now, then in zip(self.counts, before.counts, strict=True)]
        found.total = self.total - before.total
        return found

    def plus(self, other: "Histogram") -> "Histogram":
        """Return what both histograms counted."""
        found = Histogram()
        found.counts = [one + two for one, two in zip(self.counts, other.counts, strict=True)]
        found.total = self.total + other.total
        return found

    def copy(self) -> "Histogram":
        """Return a copy, which does not change when this histogram does."""
        return self.since(Histogram())

    @property
    def count(self) -> int:
        """The number of latencies that were counted."""
        return sum(self.counts)

    def buckets(self) -> list[tuple[float, int]]:
        """Return upper bounds in seconds with the number of latencies below; the last is infinite.

        The numbers are cumulative, as Prometheus wants them.
        """
        below = sum(self.counts[:BITS_LEAST])
        found: list[tuple[float, int]] = []
        for bits in range(BITS_LEAST, BITS_MOST + 1):
            below += self.counts[bits]
            found.append((2**bits / NS_PER_S, below))
        return [*found, (float("inf"), below + sum(self.counts[BITS_MOST + 1 :]))]

    def quantiles(self, parts: Sequence[float]) -> Iterator[float]:
        """Yield, for each part from 0 to 1, the seconds that this part of latencies do not exceed.

        It is the upper bound of a bucket, so at most twice too much; 0 if nothing was counted.
        """
        count = self.count
        for part in parts:
            wanted, below = part * count, 0
            for bits, here in enumerate(self.counts):
                below += here
                if here and below >= wanted:
                    yield 2**bits / NS_PER_S
                    break
            else:
                yield 0.0
