"""The order of events, and the clocks of members.

One heap for everything: events happen in the order of their time, equal times in the order in which
they were planned. True time is in nanoseconds from the start of the run; each member reads a clock
of its own, which may run fast or slow and jump forward, but never goes back.
"""

import heapq
from collections.abc import Callable

Action = Callable[[], None]
START = 1_700_000_000_000_000_000
"""What members' clocks show at the start, in ns since the Unix epoch."""


class Heap:
    """Events that are still to happen."""

    __slots__ = ("_events", "_planned", "happened", "now")

    def __init__(self) -> None:
        self.now = 0
        self.happened = 0
        self._planned = 0
        self._events: list[tuple[int, int, Action]] = []

    def at(self, time: int, action: Action) -> None:
        """Let something happen at a time, not before now."""
        self._planned += 1
        heapq.heappush(self._events, (max(time, self.now), self._planned, action))

    def after(self, delay: int, action: Action) -> None:
        """Let something happen in a while."""
        self.at(self.now + delay, action)

    def step(self, until: int) -> bool:
        """Let the next event happen; False where there is none up to this time."""
        if not self._events or self._events[0][0] > until:
            self.now = max(self.now, until)
            return False
        self.now, _, action = heapq.heappop(self._events)
        self.happened += 1
        action()
        return True


class Clock:
    """One member's clock: `rate` parts in a thousand of true time, and the jumps so far."""

    __slots__ = ("_base", "_heap", "_rate", "_since")

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._base = START
        self._since = heap.now
        self._rate = 1000

    def now(self) -> int:
        """What the clock shows."""
        return self._base + (self._heap.now - self._since) * self._rate // 1000

    def set_rate(self, rate: int) -> None:
        """Run at this many thousandths of true time from now on."""
        self._base, self._since = self.now(), self._heap.now
        self._rate = rate

    def jump(self, by: int) -> None:
        """Go forward by so many nanoseconds."""
        self._base += by

    def true_delay(self, at: int) -> int:
        """How long until the clock shows `at`, in true time."""
        return max(0, -(-(at - self.now()) * 1000 // self._rate))
