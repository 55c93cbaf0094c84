"""The interface of the log that parts of the server are given."""

from typing import Protocol


class Logger(Protocol):
    """Takes what an operator should know: structlog's loggers, or the simulator."""

    def warning(self, event: str, **values: object) -> object:
        """Log something that is not as it should be."""

    def exception(self, event: str, **values: object) -> object:
        """Log a bug, with the traceback of the exception that is being handled."""
