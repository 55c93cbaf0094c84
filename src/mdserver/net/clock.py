"""The clock of a process: nanoseconds since the Unix epoch that never go back."""

import time
from collections.abc import Callable

Clock = Callable[[], int]


def process_clock() -> Clock:
    """A clock that starts at the wall clock's time and goes on at the monotonic clock's rate.

    It is the `now` of every step and of every timer (docs/design.md, "Time").
    """
    offset = time.time_ns() - time.monotonic_ns()
    monotonic = time.monotonic_ns

    def now() -> int:
        return offset + monotonic()

    return now
