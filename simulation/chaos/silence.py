"""How long nothing was acknowledged that could have been, by two clocks."""

import math

from attrs import define, field

SERVED_MAX_S = 8
WALL_MAX_S = 30
"""Whatever the processors did: seconds that do not count for them may hide a hang."""


@define
class Availability:
    """How long the cluster could have taken publications, and took none.

    It can while a majority of seeds is up, in contact and votes.
    """

    since: float = math.inf  # able, or last acknowledged, whichever is later
    longest_s: float = 0.0

    def now_able(self, able: bool, at: float) -> None:
        """Whether it can, from now on."""
        if not able:
            self._measure(at)
            self.since = math.inf
        elif self.since == math.inf:
            self.since = at

    def acked(self, at: float) -> None:
        """A publication was acknowledged."""
        self._measure(at)
        if self.since != math.inf:
            self.since = at

    def _measure(self, at: float) -> None:
        self.longest_s = max(self.longest_s, at - self.since)


@define
class Silence:
    """The same by the clock, and by the time in which no process waited for a processor."""

    wall: Availability = field(factory=Availability)
    served: Availability = field(factory=Availability)

    def now_able(self, able: bool, wall_s: float, served_s: float) -> None:
        """Whether the cluster can take publications, from now on."""
        self.wall.now_able(able, wall_s)
        self.served.now_able(able, served_s)

    def acked(self, wall_s: float, served_s: float) -> None:
        """A publication was acknowledged."""
        self.wall.acked(wall_s)
        self.served.acked(served_s)

    def problem(self) -> str | None:
        """Return which bound was passed, or None if neither was."""
        if self.served.longest_s > SERVED_MAX_S:
            found, had = self.served.longest_s, "was up, in contact, and had a processor"
        elif self.wall.longest_s > WALL_MAX_S:
            found, had = self.wall.longest_s, "was up and in contact, whoever had the processors"
        else:
            return None
        return f"nothing was acknowledged for {found:.1f} s, although a majority of seeds {had}"
