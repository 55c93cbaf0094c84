"""Lines for a log, written by a thread, so that a slow disk or pipe never stops the event loop.

The caller never waits. When the queue is full, and while the disk refuses, lines are dropped and
counted. Once lines can be written again, one line says how many are missing. Meanwhile a sentence
on stderr and the server's health tell an operator.
"""

import contextlib
import os
import re
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Protocol

from mdserver import limits

_STDERR = 2


class LineSink(Protocol):
    """A destination of lines. Both methods may block, and raise OSError."""

    @property
    def name(self) -> str:
        """A path, or the name of a stream, for messages to operators."""

    @property
    def trouble(self) -> str | None:
        """What is wrong although lines are written, as one clause; None if nothing is."""

    def write(self, lines: bytes) -> None:
        """Write whole lines."""

    def close(self) -> None:
        """End the sink."""


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


class StreamSink:
    """Lines for an open file descriptor, such as that of stderr, which stays open."""

    name = "stderr"
    trouble: str | None = None

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, lines: bytes) -> None:
        """Write whole lines."""
        _write_all(self._descriptor, lines)

    def close(self) -> None:
        """Do nothing: the descriptor belongs to the caller."""


_TIME = re.compile(rb'"ts":(\d{16,17})\b|(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?)Z')
_US_PER_S = 1_000_000


def time_of(line: bytes) -> float | None:
    """Return when a line of a log was written (s since the Unix epoch), None if it has no time."""
    found = _TIME.search(line)
    if found is None:
        return None
    if found[1]:
        return int(found[1]) / _US_PER_S
    try:
        return datetime.fromisoformat(found[2].decode() + "+00:00").timestamp()
    except ValueError:
        return None


class RotatingFile:
    """A file that is renamed when it is full: `x.log` becomes `x.log.1`, that one `x.log.2`, ...

    `files_max` includes the file being written; the oldest one is removed. A file is larger than
    `bytes_max` only if a single write is, or while it cannot be renamed: lines are still added to
    it then, and `trouble` says why. With `age_max_s` it is also renamed before a line that is
    this much later than its first one. `clock` and `wall_clock` (time since the Unix epoch) return
    seconds.
    """

    def __init__(
        self,
        path: Path,
        bytes_max: int,
        files_max: int,
        clock: Callable[[], float] = time.monotonic,
        age_max_s: float | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self._age_max_s = age_max_s
        self._wall_clock = wall_clock
        self._began = 0.0
        self.trouble: str | None = None
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._clock = clock
        self._descriptor = -1
        self._size = 0
        self._rotate_at = 0.0

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    def open(self) -> None:
        """Open the file for appending, and make its folder; `write` does so if it is not open."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, 0o640)
        self.close()
        self._descriptor = descriptor
        self._size = os.fstat(self._descriptor).st_size
        if self._size and os.pread(self._descriptor, 1, self._size - 1) != b"\n":
            # A crash or a full disk tore the last line: what follows starts on a line of its own.
            self._size += os.write(self._descriptor, b"\n")
        self._began = self._first_time()

    def _first_time(self) -> float:
        """Return when the file was begun: the time in its first line, or else of its last change.

        A time in the future, from before the clock was set back, counts as now.
        """
        if not self._size:
            return self._wall_clock()
        head = os.pread(self._descriptor, limits.LOG_FIRST_LINE_BYTES, 0).partition(b"\n")[0]
        began = time_of(head)
        if began is None:
            began = os.fstat(self._descriptor).st_mtime
        return min(began, self._wall_clock())

    def _over(self, more: int) -> str | None:
        """Return why lines of `more` bytes belong into a new file, None if they do not."""
        if not self._size:
            return None
        if self._size + more > self._bytes_max:
            return "full"
        old = self._age_max_s is not None and self._wall_clock() - self._began >= self._age_max_s
        return "old" if old else None

    def write(self, lines: bytes) -> None:
        """Append whole lines, to a new file if they do not fit or the file is too old."""
        if self._descriptor < 0:
            self.open()
        why = self._over(len(lines))
        if why is not None:
            self._rotate(why)
        if not self._size:
            self._began = self._wall_clock()
        try:
            _write_all(self._descriptor, lines)
        except OSError:
            with contextlib.suppress(OSError):
                # All of these lines are counted as lost, so none of them may stay in the file.
                os.ftruncate(self._descriptor, self._size)
            self.close()
            raise
        self._size += len(lines)

    def _rotate(self, why: str) -> None:
        """Begin a new file; if that fails, keep the old one open, and try again later."""
        if self._clock() < self._rotate_at:
            return
        try:
            self._rename()
            self.open()
        except OSError as error:
            self._rotate_at = self._clock() + limits.LOG_RENAME_RETRY_S
            self.trouble = (
                f"{self.path} is {why} and cannot be renamed: {error.strerror or error}; it is "
                "written on"
            )
        else:
            self._rotate_at, self.trouble = 0.0, None

    def _rename(self) -> None:
        if self._files_max == 1:
            self.path.unlink(missing_ok=True)
            return
        last = self._files_max - 1
        # Only up to the first number that is free. An attempt that ended halfway left one; to
        # rename the files beyond it again would remove the oldest one for nothing.
        free = next((n for n in range(last) if not self._numbered(n).exists()), last)
        for number in range(free, 0, -1):
            self._numbered(number - 1).replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def tell_stderr(sentence: str) -> None:
    """Write a line to stderr, unless that would block."""
    with contextlib.suppress(OSError, ValueError):
        if select.select([], [_STDERR], [], 0)[1]:
            os.write(_STDERR, f"mdserver: {sentence}\n".encode(errors="backslashreplace"))


class LineWriter:
    """A bounded queue of lines before a sink, with the thread that empties it.

    `lost(count)` makes the line that stands for lines that were dropped. `tell` is called with a
    sentence when something is wrong with the sink and when lines were lost, but not for each line.
    Use the writer as a context manager, or call `close`.
    """

    def __init__(
        self,
        sink: LineSink,
        lost: Callable[[int], bytes],
        queued_bytes_max: int = limits.LOG_QUEUE_BYTES_MAX,
        tell: Callable[[str], None] = tell_stderr,
    ) -> None:
        self._sink = sink
        self._lost = lost
        self._queued_bytes_max = queued_bytes_max
        self._tell = tell
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._dropped = 0
        self._reason: str | None = None
        self._told: str | None = None
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="line writer", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> str | None:
        """What is wrong, as one clause; None if every line is written."""
        dropped = self._dropped
        if dropped:
            reason = self._reason or "the disk is slower than what comes"
            return f"{dropped} lines for {self._sink.name} are lost: {reason}"
        return self._sink.trouble

    def write(self, line: bytes) -> None:
        """Queue one line, with its line end, and return at once."""
        with self._changed:
            if self._closing or self._queued_bytes + len(line) > self._queued_bytes_max:
                self._dropped += 1
                return
            self._queue.append(line)
            self._queued_bytes += len(line)
            self._changed.notify()

    def close(self, timeout_s: float = limits.LOG_CLOSE_TIMEOUT_S) -> None:
        """Write what is queued, for at most the timeout, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        """Write what is queued, all of it at a time, until the writer is closed."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing)
                count = len(self._queue)
                lines = b"".join(self._queue)
                self._queue.clear()
                self._queued_bytes = 0
                dropped = self._dropped
            written = self._emit((self._lost(dropped) if dropped else b"") + lines)
            if written and dropped:
                # This comes before the end of `trouble`, so that a caller that sees `trouble` end
                # finds the sentence in the log.
                self._say_lost(dropped)
            with self._changed:
                self._dropped += -dropped if written else count
            if self._closing and not self._queue:
                break
        if self._reason is not None:
            self._say_lost(self._dropped)
        with contextlib.suppress(OSError):
            self._sink.close()

    def _emit(self, lines: bytes) -> bool:
        """Write lines, and return False if the sink refused them; report its trouble once."""
        try:
            if lines:
                self._sink.write(lines)
        except OSError as error:
            self._reason = error.strerror or str(error)
            self._say(f"{self._sink.name} cannot be written: {self._reason}; lines are lost")
            return False
        self._reason = None
        self._say(self._sink.trouble)
        return True

    def _say(self, sentence: str | None) -> None:
        if sentence is not None and sentence != self._told:
            self._tell(sentence)
        self._told = sentence

    def _say_lost(self, count: int) -> None:
        self._tell(f"{count} lines for {self._sink.name} were lost")

    def __enter__(self) -> "LineWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
