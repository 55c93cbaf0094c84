"""The clock of a process: nanoseconds since the Unix epoch that never go back."""

import time
from collections.abc import Callable
from functools import partial

Clock = Callable[[], int]


_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""On Linux this clock goes on while the machine is suspended, so what expires meanwhile expires."""


def process_clock() -> Clock:
    """Make a clock that starts at the wall clock's time and cannot be set afterwards.

    It is the `now` of every step and of every timer (docs/design.md, "Time").
    """
    offset = time.time_ns() - time.clock_gettime_ns(_SINCE_BOOT)
    read = partial(time.clock_gettime_ns, _SINCE_BOOT)

    def now() -> int:
        return offset + read()

    return now
