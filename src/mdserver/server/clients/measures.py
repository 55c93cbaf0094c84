"""Counters for the statistics, incremented where things happen; one object for a server.

They only grow from the start on: a reader that wants rates takes differences.
"""

from mdserver.core.events import StatusName
from mdserver.core.histogram import Histogram

REFUSALS = frozenset(
    (
        StatusName.CONNECT_DENY,
        StatusName.SUBSCRIBE_DENY,
        StatusName.PUBLISH_DENIED,
        StatusName.PUBLISH_FAILED,
        StatusName.MESSAGE_SIZE_LIMIT_EXCEEDED,
        StatusName.TOKEN_INVALID,
        StatusName.TOKEN_EXPIRED,
    )
)
"""The statuses that tell a client that something was refused."""


class Measures:
    """The counters of the network side.

    `sends`: from the step that put messages into outboxes to the end of their flush. `loop_delay`:
    how late the event loop woke a task up. `refused`: reason -> how often; reasons are statuses,
    codes of errors and names of limits, never text that a client chose. `closed`: close code -> how
    many sessions the server ended with it. `relieved`: how often the backlog of a slow consumer
    was made smaller instead. `coordinated`: how many groups this member became coordinator of.
    """

    __slots__ = ("closed", "coordinated", "loop_delay", "refused", "relieved", "sends")

    def __init__(self) -> None:
        self.sends = Histogram()
        self.loop_delay = Histogram()
        self.refused: dict[str, int] = {}
        self.closed: dict[int, int] = {}
        self.relieved = 0
        self.coordinated = 0

    def refuse(self, reason: str) -> None:
        """Count a refusal."""
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def note_status(self, status: StatusName) -> None:
        """Count a status, if it is a refusal."""
        if status in REFUSALS:
            self.refuse(status.value)

    def close(self, code: int) -> None:
        """Count a session that the server ended."""
        self.closed[code] = self.closed.get(code, 0) + 1

    def plus(self, other: "Measures") -> "Measures":
        """Return the sum of these counters and those of another process."""
        found = Measures()
        found.sends = self.sends.plus(other.sends)
        found.loop_delay = self.loop_delay.plus(other.loop_delay)
        for reason, count in (*self.refused.items(), *other.refused.items()):
            found.refused[reason] = found.refused.get(reason, 0) + count
        for code, count in (*self.closed.items(), *other.closed.items()):
            found.closed[code] = found.closed.get(code, 0) + count
        found.relieved = self.relieved + other.relieved
        found.coordinated = self.coordinated + other.coordinated
        return found
