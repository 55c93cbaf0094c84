"""Sections: the server log and the audit logs."""

import enum
from pathlib import Path

import attrs

from mdserver import limits
from mdserver.config import values
from mdserver.config.parameter import parameter
from mdserver.limits import GB, KB, NS_PER_MS, NS_PER_S


class LogLevel(enum.Enum):
    """The lowest level of the lines in the server log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(enum.Enum):
    """The format of a line in the server log."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


@attrs.frozen(kw_only=True, slots=False)
class Logs:
    """Logs"""

    log_folder: Path | None = parameter(
        "LogFolder",
        values.optional(values.PATH, "stderr"),
        None,
        """The folder of the server log `mdserver.log` and of the audit logs. `stderr` writes the
        server log to the standard error stream.""",
    )
    log_format: LogFormat = parameter(
        "LogFormat",
        values.choice(LogFormat),
        LogFormat.AUTO,
        """How a line of the server log looks: a JSON object for programs, or text for people.
        `auto` is text on a terminal and JSON in a file or pipe. Audit logs are always JSON.""",
    )
    log_rotate_limit: int = parameter(
        "LogRotateLimit",
        values.size(64 * KB, GB),
        limits.LOG_FILE_BYTES_MAX,
        """At which size a log file is closed, renamed to `NAME.1`, and a new one begun.""",
    )
    log_rotate_age: int | None = parameter(
        "LogRotateAge",
        values.optional(values.duration(3600 * NS_PER_S, 366 * 86400 * NS_PER_S), "off"),
        None,
        """At which age of its first line a log file is closed and renamed as well, with the next
        line that comes. It is off because a log then keeps `LogRotateFileCount` times that age at
        most, and without it a quiet log is kept for ever.""",
    )
    log_rotate_file_count: int = parameter(
        "LogRotateFileCount",
        values.whole(1, 1000),
        limits.LOG_FILES_MAX,
        """How many files of each log are kept, with the one that is being written.""",
    )
    log_level: LogLevel = parameter(
        "LogLevel",
        values.choice(LogLevel),
        LogLevel.INFO,
        """How much the server log says. `debug` adds a line `client refused` for whatever keeps a
        client from connecting, subscribing or publishing: address, status and reason.""",
        reloadable=True,
    )


@attrs.frozen(kw_only=True, slots=False)
class Audit:
    """Audit"""

    audit_access: bool = parameter(
        "Extension.Audit.Access",
        values.BOOLEAN,
        False,
        """Whether `audit-access.log` in `LogFolder` says who connected, subscribed, unsubscribed
        and disconnected, and why.""",
    )
    audit_message: bool = parameter(
        "Extension.Audit.Message",
        values.BOOLEAN,
        False,
        """Whether `audit-message.log` in `LogFolder` has a line for each publication that a client
        of this server made: where it stands, or why it was refused. The content is not logged.""",
    )
    audit_cache: bool = parameter(
        "Extension.Audit.Cache",
        values.BOOLEAN,
        False,
        """Whether `audit-cache.log` in `LogFolder` counts the messages that left the cache because
        of their age or for want of memory.""",
    )
    audit_stats: bool = parameter(
        "Extension.Audit.Stats",
        values.BOOLEAN,
        False,
        """Whether `audit-stats.log` in `LogFolder` says how many sessions, subscriptions, subjects
        and cached messages there are, and how much was sent.""",
    )
    stats_log_interval: int = parameter(
        "Stats.LogInterval",
        values.duration(5 * NS_PER_S, 86400 * NS_PER_S),
        limits.STATS_LOG_INTERVAL_S * NS_PER_S,
        """How often it says so.""",
    )
    presence: bool = parameter(
        "Extension.Presence",
        values.BOOLEAN,
        False,
        """Whether `audit-presence.log` in `LogFolder` says which session joined and left which
        subject or pattern.""",
    )
    presence_class: str = parameter(
        "Extension.Presence.Class",
        values.text(512),
        "",
        """A Python class that is told who joins and leaves, `package.module:Class`, found as Python
        finds modules; needs `Extension.Presence`. docs/operations.md says what it has to offer.""",
    )
    presence_deadline: int = parameter(
        "Extension.Presence.Deadline",
        values.duration(10 * NS_PER_MS, 600 * NS_PER_S),
        limits.PRESENCE_DEADLINE_S * NS_PER_S,
        """How long the class may take for a call; a longer one is given up and logged.""",
    )
