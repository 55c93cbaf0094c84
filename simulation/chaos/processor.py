"""How long processes of a run wait for a processor, which is no fault of theirs."""

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from attrs import define, field

WALL_MAX_S = 20
"""What waited for so long by the clock has waited too long, whoever had the processors."""


def waited_ns(process: int) -> int | None:
    """Return how long the main thread of a process was ready and did not run, since it began.

    None if the process is gone, or if the kernel does not say (proc(5), /proc/PID/schedstat).
    """
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{process}/schedstat").read_text(encoding="ascii").split()[1])
    return None


@define
class Waiting:
    """Adds up, look by look, how long the one of all processes waited that waited longest."""

    total_s: float = 0.0
    _known: dict[int, int] = field(factory=dict)

    def look(self, processes: Iterable[int]) -> None:
        """Look at these processes; one that was not there at the last look counts from now on."""
        known = {process: ns for process in processes if (ns := waited_ns(process)) is not None}
        waited = [
            ns - self._known[process] for process, ns in known.items() if process in self._known
        ]
        self.total_s += max(waited, default=0) / 1e9
        self._known = known


@define
class Served:
    """How much time had been served at which time of the clock, as far back as that matters."""

    _looks: deque[tuple[float, float]] = field(factory=deque)

    def note(self, wall_s: float, served_s: float) -> None:
        """Note how much has been served by now."""
        self._looks.append((wall_s, served_s))
        while self._looks[0][0] < wall_s - WALL_MAX_S:
            self._looks.popleft()

    def since(self, wall_s: float, served_s: float) -> float:
        """Return the last time of the clock at which no more than this had been served.

        It is never longer ago than `WALL_MAX_S`.
        """
        earliest = wall_s - WALL_MAX_S
        known = (at for at, served in reversed(self._looks) if served <= served_s)
        return max(earliest, next(known, earliest))
