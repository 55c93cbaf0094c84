"""The order of events where Trio's mock clock is the time: the heap's events happen in a task."""

import heapq
import math

import trio

from mdserver.limits import NS_PER_S
from simulation.clock import Action, Heap


class TrioHeap(Heap):
    """Events beside the tasks of servers; `run` lets them happen when Trio's clock says so."""

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
