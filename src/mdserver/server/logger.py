"""The interface of the server log, for the parts of the server that write to it."""

from typing import Protocol


class Logger(Protocol):
    """A logger: one of structlog's, or the simulator's."""

    def warning(self, event: str, **values: object) -> object:
        """Log an event that an operator should look at."""

    def exception(self, event: str, **values: object) -> object:
        """Log a bug, with the traceback of the exception that is being handled."""
