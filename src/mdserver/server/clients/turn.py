"""Bounds how long the reader of one connection runs before the other tasks run.

All readers share one event loop. The bytes of a single read may take many milliseconds to handle,
and all other tasks wait as long. The bound is one of time, because the costs of commands differ by
a factor of thousands.
"""

import time
from collections.abc import Callable

import trio

from mdserver.limits import COMMANDS_PER_STEP, COMMANDS_PER_STEP_MAX, NS_PER_MS, TURN_MS


class Turn:
    """The turn of the reader that runs; one object for all, because only one runs at a time.

    `step` is the number of commands that the next step takes. It grows while steps take little time
    and deliver little, because a larger step costs less for each command. It is kept from turn to
    turn, because the commands that follow are usually like those before.
    """

    __slots__ = ("_clock", "_ends", "step")

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._ends = 0
        self.step = COMMANDS_PER_STEP

    def begin(self) -> None:
        """Begin a turn: the reader has waited, so the other tasks have run."""
        self._ends = self._clock() + TURN_MS * NS_PER_MS

    def size_step(self, *, many: bool, full: bool) -> bool:
        """Choose the size of the next step; return whether the other tasks should run first.

        `many` says that much was delivered since they ran, `full` that the last step had the size
        that was chosen for it.
        """
        late = self._clock() - self._ends
        if many or late >= TURN_MS * NS_PER_MS:
            self.step = COMMANDS_PER_STEP
        elif full and late < 0:
            self.step = min(2 * self.step, COMMANDS_PER_STEP_MAX)
        return many or late >= 0

    @property
    def over(self) -> bool:
        """Whether the other tasks should run now."""
        return self._clock() >= self._ends

    async def pause(self) -> None:
        """Let the other tasks run, and begin a new turn."""
        await trio.lowlevel.checkpoint()
        self.begin()
