"""The server log: one JSON object a line, with `time`, `level`, `event` and what belongs to it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import structlog

from mdserver.config import Config, LogLevel
from mdserver.core.text import safe_text
from mdserver.errors import StartError
from mdserver.journal.audit import AuditLogs
from mdserver.journal.rotating import LineWriter, RotatingFile, Sink, StreamSink

VALUE_CHARS_MAX = 8000  # of a value that cannot be encoded as it is; a traceback fits
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

    Raises `StartError` if the folder cannot be written to.
    """
    with LineWriter(_sink(config), _lost) as writer:
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


@contextmanager
def audit_logs(config: Config) -> Iterator[AuditLogs | None]:
    """The audit logs that are switched on, None where none is.

    Raises `StartError` if the folder cannot be written to.
    """
    switched = {
        "access": config.audit_access,
        "message": config.audit_message,
        "cache": config.audit_cache,
        "stats": config.audit_stats,
        "presence": config.presence,
    }
    streams = [stream for stream, on in switched.items() if on]
    if not streams or config.log_folder is None:
        yield None
        return
    try:
        logs = AuditLogs(
            config.log_folder, config.node_name, streams,
            config.log_rotate_limit, config.log_rotate_file_count,
        )  # fmt: skip
    except OSError as error:
        raise _unusable(config.log_folder, error) from None
    try:
        yield logs
    finally:
        logs.close()


def _sink(config: Config) -> Sink:
    folder = config.log_folder
    if folder is None:
        return StreamSink(sys.stderr.fileno())
    file = RotatingFile(
        folder / "mdserver.log", config.log_rotate_limit, config.log_rotate_file_count
    )
    try:
        file.open()
    except OSError as error:
        raise _unusable(folder, error) from None
    return file


def _unusable(folder: Path, error: OSError) -> StartError:
    return StartError(f"LogFolder = {folder}: {error.strerror}: {error.filename}")


def _timed_line(_logger: object, _method: str, event: Any) -> bytes:
    return _line(
        {"time": _now(), "level": event.pop("level"), "event": event.pop("event"), **event}
    )


def _lost(count: int) -> bytes:
    return _line({"time": _now(), "level": "warning", "event": "log lines lost", "count": count})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _line(values: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(values, enc_hook=str) + b"\n"
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        # A file name, or the text of an exception: a line with escapes is better than none.
        safe = {name: safe_text(value, VALUE_CHARS_MAX) for name, value in values.items()}
        return msgspec.json.encode(safe) + b"\n"
