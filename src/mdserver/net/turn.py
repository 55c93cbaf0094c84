"""How long the reader of one connection goes on before the others have a turn.

Readers share one loop: what one of them does with the bytes of a single read may take many
milliseconds, and everybody else waits as long. The bound is one of time, because commands differ
in cost by a factor of thousands.
"""

import time
from collections.abc import Callable

import trio

from mdserver.limits import NS_PER_MS, TURN_MS


class Turn:
    """The turn of whoever runs; one object for all readers, because only one of them runs."""

    __slots__ = ("_clock", "_ends")

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._ends = 0

    def begin(self) -> None:
        """The reader has waited, so the others have had their turns."""
        self._ends = self._clock() + TURN_MS * NS_PER_MS

    @property
    def over(self) -> bool:
        """Whether the others should have a turn now."""
        return self._clock() >= self._ends

    async def pause(self) -> None:
        """Let the others have a turn, and begin another one."""
        await trio.lowlevel.checkpoint()
        self.begin()
