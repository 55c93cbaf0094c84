"""Lines for a log, written by a thread, so that a slow disk or pipe never stops the event loop.

Nothing waits: at the bound of what may be queued, and while the disk refuses, lines are dropped and
counted, and once lines can be written again one line says how many are missing.
"""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from mdserver import limits


class Sink(Protocol):
    """Where lines go. Both methods may block, and raise `OSError`."""

    def write(self, lines: bytes) -> None:
        """Writes whole lines."""

    def close(self) -> None:
        """Ends the sink."""


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


class StreamSink:
    """Lines for an open file descriptor, such as that of stderr, which stays open."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, lines: bytes) -> None:
        """Writes whole lines."""
        _write_all(self._descriptor, lines)

    def close(self) -> None:
        """Leaves the descriptor open: it is not ours."""


class RotatingFile:
    """A file that is renamed when it is full: `x.log` becomes `x.log.1`, that one `x.log.2`, ...

    `files_max` counts the file being written; the oldest is removed. A file is larger than
    `bytes_max` only if a single write is.
    """

    def __init__(self, path: Path, bytes_max: int, files_max: int) -> None:
        self.path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._descriptor = -1
        self._size = 0

    def open(self) -> None:
        """Opens the file for appending, with its folder; `write` does so too where needed."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o640)
        self._size = os.fstat(self._descriptor).st_size
        if self._size and os.pread(self._descriptor, 1, self._size - 1) != b"\n":
            # A crash or a full disk tore the last line: what follows starts on a line of its own.
            self._size += os.write(self._descriptor, b"\n")

    def write(self, lines: bytes) -> None:
        """Appends whole lines, to a new file where they do not fit."""
        if self._descriptor < 0:
            self.open()
        if self._size and self._size + len(lines) > self._bytes_max:
            self.close()
            self._rename()
            self.open()
        try:
            _write_all(self._descriptor, lines)
        except OSError:
            self.close()
            raise
        self._size += len(lines)

    def _rename(self) -> None:
        if self._files_max == 1:
            self.path.unlink()
            return
        for number in range(self._files_max - 1, 0, -1):
            older = self._numbered(number)
            newer = self._numbered(number - 1)
            if newer.exists():
                newer.replace(older)

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path

    def close(self) -> None:
        """Closes the file; the next write opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class LineWriter:
    """A bounded queue of lines before a sink, with the thread that empties it.

    `lost(count)` makes the line that stands for lines that were dropped. Use it as a context
    manager, or call `close`.
    """

    def __init__(
        self,
        sink: Sink,
        lost: Callable[[int], bytes],
        queued_bytes_max: int = limits.LOG_QUEUE_BYTES_MAX,
    ) -> None:
        self._sink = sink
        self._lost = lost
        self._queued_bytes_max = queued_bytes_max
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._dropped = 0
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="line writer", daemon=True)
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Queues one line, with its line end, and returns at once."""
        with self._changed:
            if self._closing or self._queued_bytes + len(line) > self._queued_bytes_max:
                self._dropped += 1
                return
            self._queue.append(line)
            self._queued_bytes += len(line)
            self._changed.notify()

    def close(self, timeout_s: float = limits.LOG_CLOSE_TIMEOUT_S) -> None:
        """Writes what is queued, for at most the timeout, and ends the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing)
                count = len(self._queue)
                lines = b"".join(self._queue)
                self._queue.clear()
                self._queued_bytes = 0
                dropped, self._dropped = self._dropped, 0
            if not self._emit((self._lost(dropped) if dropped else b"") + lines):
                with self._changed:
                    self._dropped += dropped + count
            if self._closing and not self._queue:
                break
        with contextlib.suppress(OSError):
            self._sink.close()

    def _emit(self, lines: bytes) -> bool:
        try:
            if lines:
                self._sink.write(lines)
        except OSError:
            return False
        return True

    def __enter__(self) -> "LineWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
