"""One timer wheel for all timers: those of the node, keep-alive, handshakes.

A task for each timer would cost kilobytes and a place in Trio's own heap; here a timer is two
dictionary entries, and setting, moving and cancelling take constant time (Varghese and Lauck,
"Hashed and hierarchical timing wheels", 1987, scheme 5). Only the ticks that hold a timer exist.
"""

import heapq
from collections.abc import Hashable

from mdserver.limits import NS_PER_MS

TICK = 10 * NS_PER_MS


class TimerWheel:
    """Keys and the times at which they are due, in ticks of 10 ms. A key is never due early.

    Invariant: each key of `_tick_of` is in exactly one bucket, that of its tick, and `_ticks` is a
    heap of the ticks that have a bucket. A bucket may be empty, after a timer was moved or
    cancelled; `next_at` and `due` remove it.
    """

    __slots__ = ("_buckets", "_tick_of", "_ticks")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Hashable, None]] = {}
        self._ticks: list[int] = []
        self._tick_of: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._tick_of)

    def set(self, key: Hashable, at: int) -> bool:
        """Set `key` to be due at `at` (ns); return whether its tick is new and the first of all."""
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
        """Cancel `key`; does nothing if it is not set."""
        tick = self._tick_of.pop(key, None)
        if tick is not None:
            del self._buckets[tick][key]

    def next_at(self) -> int | None:
        """Return the time (ns) at which the next key is due, None if there is none."""
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
