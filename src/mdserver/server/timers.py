"""One timer wheel for everything that is due later: the node's timers, keep-alive, hand-shakes.

A task for each timer would cost kilobytes and a place in Trio's own heap; here a timer is two
dictionary entries, and setting, moving and cancelling take constant time (Varghese and Lauck,
"Hashed and hierarchical timing wheels", 1987, scheme 5). Only the ticks that hold a timer exist.
"""

import heapq
from collections.abc import Hashable

from mdserver.limits import NS_PER_MS

TICK = 10 * NS_PER_MS


class TimerWheel:
    """Keys and when they are due, in ticks of 10 ms, never early."""

    __slots__ = ("_buckets", "_tick_of", "_ticks")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Hashable, None]] = {}
        self._ticks: list[int] = []
        self._tick_of: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._tick_of)

    def set(self, key: Hashable, at: int) -> bool:
        """Have `key` due at `at` (ns); whether this is now the first thing due."""
        tick = -(-at // TICK)
        old = self._tick_of.get(key)
        if old == tick:
            return False
        if old is not None:
            del self._buckets[old][key]
        self._tick_of[key] = tick
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket[key] = None
            return False
        self._buckets[tick] = {key: None}
        heapq.heappush(self._ticks, tick)
        return self._ticks[0] == tick

    def cancel(self, key: Hashable) -> None:
        """Forget `key`; no error if it is not set."""
        tick = self._tick_of.pop(key, None)
        if tick is not None:
            del self._buckets[tick][key]

    def next_at(self) -> int | None:
        """Return when to look for due timers next (ns), None if there are none."""
        while self._ticks:
            tick = self._ticks[0]
            if self._buckets[tick]:
                return tick * TICK
            heapq.heappop(self._ticks)
            del self._buckets[tick]
        return None

    def due(self, now: int) -> list[Hashable]:
        """Remove and return the keys that are due at `now` (ns), in the order of their ticks."""
        keys: list[Hashable] = []
        while self._ticks and self._ticks[0] * TICK <= now:
            bucket = self._buckets.pop(heapq.heappop(self._ticks))
            keys += bucket
        for key in keys:
            del self._tick_of[key]
        return keys
