"""Collects the outputs of one call of `ClientCore`, in order.

`ClientCore` and `ClientConnection` share one collection, so the outputs of both stay in the order
in which they were made.
"""

from mdserver.client.core import values as out
from mdserver.client.core.values import Notice, Notification, Output


class Outputs:
    """The outputs of the call that is under way, and the timers that are set."""

    def __init__(self) -> None:
        self._collected: list[Output] = []
        self._timers: dict[str, None] = {}

    def emit(self, output: Output) -> None:
        """Add an output."""
        self._collected.append(output)

    def take(self) -> list[Output]:
        """Return the outputs of this call; the next call begins without any."""
        taken, self._collected = self._collected, []
        return taken

    def notify(self, status: Notification, **told: object) -> None:
        """Add a status for the application; the keyword arguments are attributes of `Notice`."""
        self.emit(out.Notify(Notice(status, **told)))  # type: ignore[arg-type]

    def set_timer(self, timer: str, at: int) -> None:
        """Ask for a call of `due` with this timer at a time (ns); replaces an earlier request."""
        self._timers[timer] = None
        self.emit(out.SetTimer(timer, at))

    def cancel(self, timer: str) -> None:
        """Withdraw a timer; do nothing if it is not set."""
        if timer in self._timers:
            del self._timers[timer]
            self.emit(out.CancelTimer(timer))

    def expired(self, timer: str) -> None:
        """Note that a timer came due, so that it is not set any more."""
        self._timers.pop(timer, None)
