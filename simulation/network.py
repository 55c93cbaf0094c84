"""Connections between members: in order within a connection, and nothing sure beyond it.

A message takes a random time, but never overtakes one before it. A connection that is cut loses
what was on its way (a suffix: each side reads up to the moment at which it notices). A blocked
direction holds what is sent and lets it go later, as TCP does; what heartbeats make of the silence
is the members' business.
"""

import random
from collections.abc import Callable

from simulation.clock import Heap

Receiver = Callable[[], None]


class Direction:
    """One way of one connection."""

    __slots__ = ("blocked", "delay", "ends", "heap", "last", "rng", "waiting")

    def __init__(self, heap: Heap, rng: random.Random, delay: tuple[int, int], opens: int) -> None:
        self.heap = heap
        self.rng = rng
        self.delay = delay
        self.last = opens
        self.ends: int | None = None
        self.blocked = False
        self.waiting: list[Receiver] = []

    def send(self, receive: Receiver, extra: int = 0) -> None:
        """Let something arrive behind everything that was sent before."""
        if self.blocked:
            self.waiting.append(receive)
            return
        arrival = self.heap.now + self.rng.randint(*self.delay) + extra
        self.last = max(self.last, arrival)
        self.heap.at(self.last, lambda: self._arrive(receive))

    def _arrive(self, receive: Receiver) -> None:
        if self.ends is None or self.heap.now < self.ends:
            receive()

    def block(self) -> None:
        """Hold what is sent from now on."""
        self.blocked = True

    def unblock(self) -> None:
        """Let go what was held."""
        self.blocked = False
        waiting, self.waiting = self.waiting, []
        for receive in waiting:
            self.send(receive)

    def end(self, at: int) -> None:
        """Nothing arrives from this time on."""
        self.ends = at if self.ends is None else min(self.ends, at)


class Wires:
    """The state of the network between pairs of members, apart from any connection."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, str], int] = {}

    def blocked(self, sender: str, receiver: str) -> bool:
        """Whether nothing passes this way now."""
        return self._blocks.get((sender, receiver), 0) > 0

    def block(self, sender: str, receiver: str) -> bool:
        """Block one way; blocks of several faults add up. True if it was free before."""
        key = (sender, receiver)
        self._blocks[key] = self._blocks.get(key, 0) + 1
        return self._blocks[key] == 1

    def unblock(self, sender: str, receiver: str) -> bool:
        """Take one block away; True if it was the last."""
        key = (sender, receiver)
        self._blocks[key] -= 1
        return self._blocks[key] == 0
