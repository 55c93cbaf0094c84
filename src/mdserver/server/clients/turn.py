"""Bounds how long the reader of one connection goes on before the others have a turn.

Readers share one loop: what one of them does with the bytes of a single read may take many
milliseconds, and everybody else waits as long. The bound is one of time, because commands differ
in cost by a factor of thousands.
"""

import time
from collections.abc import Callable

import trio

from mdserver.limits import COMMANDS_PER_STEP, COMMANDS_PER_STEP_MAX, NS_PER_MS, TURN_MS


class Turn:
    """The turn of whoever runs; one object for all readers, because only one of them runs.

    `step` is how many commands the next step takes. It grows while steps take little time and
    deliver little, because a larger one costs less a command, and outlasts the turn: most readers
    go on as they began.
    """

    __slots__ = ("_clock", "_ends", "step")

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._ends = 0
        self.step = COMMANDS_PER_STEP

    def begin(self) -> None:
        """Begin a turn: the reader has waited, so the others had theirs."""
        self._ends = self._clock() + TURN_MS * NS_PER_MS

    def size_step(self, *, many: bool, full: bool) -> bool:
        """Choose the size of the next step; returns whether the others should have a turn first.

        `many`: much was delivered since they had one. `full`: the last step had the chosen size.
        """
        late = self._clock() - self._ends
        if many or late >= TURN_MS * NS_PER_MS:
            self.step = COMMANDS_PER_STEP
        elif full and late < 0:
            self.step = min(2 * self.step, COMMANDS_PER_STEP_MAX)
        return many or late >= 0

    @property
    def over(self) -> bool:
        """Whether the others should have a turn now."""
        return self._clock() >= self._ends

    async def pause(self) -> None:
        """Let the others have a turn, and begin another one."""
        await trio.lowlevel.checkpoint()
        self.begin()
