"""The server log, a line an event, and the audit logs: opened, written by threads, closed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog

from mdserver.cli.log_lines import Render, now, renderer
from mdserver.config import Config, LogLevel
from mdserver.errors import StartError
from mdserver.journal.audit import AuditLogs
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
    """Send what the server logs to `LogFolder` or stderr until the end of the `with` block.

    Each line has the `NodeName` as `node`. Raises `StartError` if the folder cannot be written to.
    """
    terminal = config.log_folder is None and sys.stderr.isatty()
    lines = _Lines(renderer(config.log_format, terminal=terminal), config.node_name)
    with LineWriter(_sink(config), lines.lost) as writer:
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                structlog.processors.format_exc_info,
                lines,
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


class _Lines:
    """The last of structlog's processors: makes the line."""

    def __init__(self, render: Render, node: str) -> None:
        self._render = render
        self._node = node

    def __call__(self, _logger: object, _method: str, event: Any) -> bytes:
        return self._line(event.pop("level"), event.pop("event"), event)

    def lost(self, count: int) -> bytes:
        """Return the line that stands for lines that were left out."""
        return self._line("warning", "log lines lost", {"count": count})

    def _line(self, level: str, name: str, values: dict[str, Any]) -> bytes:
        head = {"time": now(), "level": level, "event": name, "node": self._node}
        return self._render({**head, **values})
