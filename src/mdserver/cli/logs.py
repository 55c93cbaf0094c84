"""The server log: one JSON object a line, with `time`, `level`, `event` and what belongs to it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import structlog

from mdserver import limits
from mdserver.config import Config, LogLevel
from mdserver.errors import MdserverError
from mdserver.journal.rotating import LineWriter, RotatingFile, Sink, StreamSink

_LEVELS = {LogLevel.DEBUG: 10, LogLevel.INFO: 20, LogLevel.WARNING: 30, LogLevel.ERROR: 40}


class _LineLogger:
    """What structlog calls with a finished line, by the name of its level."""

    def __init__(self, writer: LineWriter) -> None:
        self._writer = writer

    def msg(self, line: bytes) -> None:
        self._writer.write(line)

    debug = info = warning = error = critical = msg


@contextmanager
def server_log(config: Config) -> Iterator[None]:
    """Sends what the server logs to `LogFolder` or stderr until the end of the `with` block.

    Raises `MdserverError` if the folder cannot be written to.
    """
    with LineWriter(_sink(config.log_folder), _lost) as writer:
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                structlog.processors.format_exc_info,
                _timed_line,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[config.log_level]),
            logger_factory=lambda *_: _LineLogger(writer),
            cache_logger_on_first_use=False,
        )
        try:
            yield
        finally:
            structlog.reset_defaults()


def set_level(level: LogLevel) -> None:
    """Changes how much is logged, from now on."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]))


def _sink(folder: Path | None) -> Sink:
    if folder is None:
        return StreamSink(sys.stderr.fileno())
    file = RotatingFile(folder / "mdserver.log", limits.LOG_FILE_BYTES_MAX, limits.LOG_FILES_MAX)
    try:
        file.open()
    except OSError as error:
        raise MdserverError(f"LogFolder = {folder}: {error.strerror}: {error.filename}") from None
    return file


def _timed_line(_logger: object, _method: str, event: Any) -> bytes:
    return _line(
        {"time": _now(), "level": event.pop("level"), "event": event.pop("event"), **event}
    )


def _lost(count: int) -> bytes:
    return _line({"time": _now(), "level": "warning", "event": "log lines lost", "count": count})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _line(values: dict[str, Any]) -> bytes:
    return msgspec.json.encode(values, enc_hook=str) + b"\n"
