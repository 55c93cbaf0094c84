"""Clocks of simulated servers: Trio's mock clock is the time, and work takes none of it."""

import heapq
import math

import trio

from mdserver.limits import NS_PER_MS, NS_PER_S, TURN_MS
from simulation.clock import Action, Heap

READS_PER_TURN = 3


class ReadsClock:
    """Time in which readers take their turns: it goes on by being read (ns).

    The processor's time would make each run another one. This way a turn is over after some steps,
    whatever they cost, and both ways out of a turn are taken.
    """

    __slots__ = ("_now",)

    def __init__(self) -> None:
        self._now = 0

    def __call__(self) -> int:
        """Return the time, which a read brings forward."""
        self._now += TURN_MS * NS_PER_MS // READS_PER_TURN
        return self._now


class TrioHeap(Heap):
    """The order of events; `run` lets them happen beside the tasks of servers, at their time."""

    __slots__ = ("_earlier",)

    def __init__(self) -> None:
        self._earlier = trio.Event()
        super().__init__()

    @property
    def now(self) -> int:
        """True time: the mock clock starts at 0."""
        return round(trio.current_time() * NS_PER_S)

    @now.setter
    def now(self, value: int) -> None:
        """The clock goes by itself."""

    def at(self, time: int, action: Action) -> None:
        """Let something happen at a time, not before now."""
        super().at(time, action)
        self._earlier.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            while self._events and self._events[0][0] <= self.now:
                _, _, action = heapq.heappop(self._events)
                self.happened += 1
                action()
            self._earlier = trio.Event()
            with trio.move_on_at(self._events[0][0] / NS_PER_S if self._events else math.inf):
                await self._earlier.wait()
