"""Opens and closes the server log, one line an event, and the audit logs; threads write them."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog

from mdserver.config import Config, LogLevel
from mdserver.errors import StartError
from mdserver.journal.audit import AuditLogs
from mdserver.journal.rotating import LineSink, LineWriter, RotatingFile, StreamSink, tell_stderr
from mdserver.limits import NS_PER_S
from mdserver.server.log_lines import Render, now, renderer
from mdserver.server.ownership import give_folder, unusable_folder
from mdserver.server.privileges import acting_as

_LEVELS = {LogLevel.DEBUG: 10, LogLevel.INFO: 20, LogLevel.WARNING: 30, LogLevel.ERROR: 40}
_FILES = ("mdserver.log", "mdserver.log.*", "audit-*.log", "audit-*.log.*")


class _LineLogger:
    """The logger that structlog calls with a finished line, by the name of its level."""

    def __init__(self, writer: LineWriter) -> None:
        self._writer = writer

    def msg(self, line: bytes) -> None:
        self._writer.write(line)

    debug = info = warning = error = critical = msg


@contextmanager
def server_log(config: Config) -> Iterator[LineWriter]:
    """Send what the server logs to `LogFolder` or stderr until the end of the `with` block.

    Each line has the `NodeName` as `node`. Raises `StartError` if the folder cannot be written to.
    """
    with _server_log(config, _sink(config), {"node": config.node_name}) as writer:
        yield writer


@contextmanager
def worker_log(config: Config, descriptor: int, worker: int) -> Iterator[LineWriter]:
    """Send what a worker process logs to a pipe, whose other end the server writes to its log.

    Each line has the number of the worker.
    """
    head: dict[str, str | int] = {"node": config.node_name, "worker": worker}
    with _server_log(config, StreamSink(descriptor), head) as writer:
        yield writer


@contextmanager
def _server_log(config: Config, sink: LineSink, head: dict[str, str | int]) -> Iterator[LineWriter]:
    """Send what this process logs to a sink until the end of the `with` block."""
    terminal = config.log_folder is None and sys.stderr.isatty()
    lines = _Lines(renderer(config.log_format, terminal=terminal), head)
    tell = _tell_nobody if isinstance(sink, StreamSink) else tell_stderr
    with LineWriter(sink, lines.lost, tell=tell) as writer:
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
            yield writer
        finally:
            structlog.reset_defaults()


def set_level(level: LogLevel) -> None:
    """Change the level of the server log."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]))


@contextmanager
def audit_logs(config: Config) -> Iterator[AuditLogs | None]:
    """Open the audit logs that are switched on, and yield them; None if none is.

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
        with acting_as(config.run_as_user):
            logs = AuditLogs(
                config.log_folder,
                config.node_name,
                streams,
                config.log_rotate_limit,
                config.log_rotate_file_count,
                _age_max_s(config),
            )
    except OSError as error:
        raise _unusable(config, error) from None
    try:
        yield logs
    finally:
        logs.close()


def _sink(config: Config) -> LineSink:
    """Open the destination of the server log: a file in `LogFolder`, or stderr."""
    folder = config.log_folder
    if folder is None:
        return StreamSink(sys.stderr.fileno())
    file = RotatingFile(
        folder / "mdserver.log",
        config.log_rotate_limit,
        config.log_rotate_file_count,
        age_max_s=_age_max_s(config),
    )
    try:
        give_folder(folder, config.run_as_user, _FILES)
        with acting_as(config.run_as_user):
            folder.mkdir(parents=True, exist_ok=True)
            _check_rights(folder, config.run_as_user)
            file.open()
    except OSError as error:
        raise _unusable(config, error) from None
    return file


def _age_max_s(config: Config) -> float | None:
    age = config.log_rotate_age
    return None if age is None else age / NS_PER_S


def _check_rights(folder: Path, user: str | None) -> None:
    """Raise StartError if this process may not make and rename files in a folder.

    A log that could be written but not rotated would fail only later. Call it with the rights that
    the server will have.
    """
    if os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        return
    who, owner = (user, user) if user else ("the user that the server runs as", "USER")
    raise StartError(
        f"LogFolder = {folder}: {os.strerror(errno.EACCES)}: {who} may not make and rename files "
        f"there, which full logs need; give the folder to that user (chown {owner} {folder})"
    )


def _unusable(config: Config, error: OSError) -> StartError:
    folder = config.log_folder or Path()
    return unusable_folder("LogFolder", folder, error, config.run_as_user)


def _tell_nobody(_sentence: str) -> None:
    """Do nothing: trouble with stderr cannot be reported on stderr."""


class _Lines:
    """The last of structlog's processors: makes the line."""

    def __init__(self, render: Render, head: dict[str, str | int]) -> None:
        self._render = render
        self._head = head

    def __call__(self, _logger: object, _method: str, event: Any) -> bytes:
        return self._line(event.pop("level"), event.pop("event"), event)

    def lost(self, count: int) -> bytes:
        """Return the line that replaces `count` lines that were dropped."""
        return self._line("warning", "log lines lost", {"count": count})

    def _line(self, level: str, name: str, values: dict[str, Any]) -> bytes:
        head = {"time": now(), "level": level, "event": name, **self._head}
        return self._render({**head, **values})
