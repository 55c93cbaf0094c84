"""Makes lines of the server log: a JSON object for programs, or text for people."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from structlog.dev import ConsoleRenderer, plain_traceback

from mdserver.config import LogFormat
from mdserver.core.text import safe_text

VALUE_CHARS_MAX = 8000  # of a value that cannot be encoded as it is; a traceback fits
EVENT_WIDTH = 32  # up to which events are padded, so that values stand below each other

Render = Callable[[dict[str, Any]], bytes]


def renderer(form: LogFormat, *, terminal: bool) -> Render:
    """Return the function that makes a line, with its end, of `time`, `level`, `event` and values.

    `LogFormat.AUTO` is text if the log goes to a terminal, else JSON. On a terminal text has
    colours.
    """
    if form is LogFormat.TEXT or (form is LogFormat.AUTO and terminal):
        return TextLines(colors=terminal)
    return json_line


def now() -> str:
    """Return the time of a line: UTC with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def json_line(values: dict[str, Any]) -> bytes:
    """Return a JSON object."""
    try:
        return msgspec.json.encode(values, enc_hook=str) + b"\n"
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        # File names and texts of exceptions may not be valid Unicode. A line with escapes is better
        # than none.
        safe = {name: safe_text(value, VALUE_CHARS_MAX) for name, value in values.items()}
        return msgspec.json.encode(safe) + b"\n"


class TextLines:
    """The format for people: time, level, event, `name=value`, and a traceback below the line."""

    def __init__(self, *, colors: bool) -> None:
        self._render = ConsoleRenderer(
            colors=colors,
            pad_event_to=EVENT_WIDTH,
            sort_keys=False,
            timestamp_key="time",
            exception_formatter=plain_traceback,
        )

    def __call__(self, values: dict[str, Any]) -> bytes:
        """Return the line with its end."""
        traceback = str(values.pop("exception", ""))
        text = {name: _shown(value) for name, value in values.items()}
        line = str(self._render(None, str(values["level"]), text)).rstrip()
        below = [safe_text(row, VALUE_CHARS_MAX) for row in traceback.splitlines()]
        return "\n".join([line, *below, ""]).encode()


def _shown(value: object) -> object:
    """Return a value as people write it: `a, b` for a list, `a: 1, b: 2` for a dict."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return safe_text(_written(value), VALUE_CHARS_MAX)


def _written(value: object) -> str:
    """Return the text of a value; an empty list or dict is `none`, as None is."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_inner(one)}" for key, one in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(_inner(one) for one in value) or "none"
    return str(value)


def _inner(value: object) -> str:
    """Return the text of a value within a list or dict, with nested ones in parentheses."""
    nested = isinstance(value, Mapping | list | tuple)
    return f"({_written(value)})" if nested else _written(value)
