"""The one thread that writes a member's journal: all its streams, in batches.

Nobody waits for the disk: `write` queues lines and returns. The thread takes all there is at a
time, appends each stream's lines in one piece, syncs as the policy says, seals and deletes
segments. What its owner has to know it tells as events, from within the thread.

While the disk refuses, what was being written waits and is tried again (`refuse`), or is dropped
and counted (`continue`). A queue that reaches its bound drops lines and counts them, so memory is
bounded; with `refuse` no lines of `kept` streams, whose owner gives no more than is written.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from attrs import frozen

from mdserver import limits
from mdserver.config import JournalDiskFull, JournalFsync
from mdserver.journal import segments
from mdserver.journal.records import header
from mdserver.journal.segments import Repair, StreamWriter, SyncError
from mdserver.limits import NS_PER_S

Step = Callable[[StreamWriter], None]
"""Something that the thread does with a stream in its turn. Raises OSError to be called again."""


@frozen(kw_only=True)
class WriterSettings:
    """How a journal is written. Durations in ns, sizes in bytes; the limits are a stream's."""

    fsync: JournalFsync = JournalFsync.INTERVAL
    disk_full: JournalDiskFull = JournalDiskFull.REFUSE
    segment_time: int = limits.JOURNAL_SEGMENT_S * NS_PER_S
    segment_bytes_max: int = limits.JOURNAL_SEGMENT_BYTES_MAX
    bytes_max: int = limits.JOURNAL_BYTES_MAX
    age_max: int = limits.JOURNAL_AGE_DAYS_MAX * 86400 * NS_PER_S
    queue_bytes_max: int = limits.JOURNAL_QUEUE_BYTES_MAX
    queue_bytes_high: int = limits.JOURNAL_FULL_QUEUE_BYTES


@frozen
class Stored:
    """What was written with this request, and all before it, is as durable as the policy says."""

    request: int


@frozen
class Blocked:
    """Nothing can be written now, for this reason."""

    reason: str


@frozen
class Unblocked:
    """Lines are written again; so many were dropped since it was blocked.

    `emptied`: some of them were lines of the last stream. It was emptied then, because it is of no
    use with a gap, and takes no lines until it is opened again.
    """

    lost: int
    emptied: bool = False


@frozen
class Deleted:
    """Sealed segments were deleted; `unread` of them before a reader was done with them."""

    stream: str
    segments: int
    size_bytes: int
    unread: int


@frozen
class Broken:
    """The thread gave up: what it wrote last may not be on the disk, and nobody can tell."""

    reason: str


Event = Stored | Blocked | Unblocked | Deleted | Broken


class JournalWriter:
    """The streams of a journal folder, each in a folder of its own, and the thread.

    `last` names the stream whose lines are written after those of the others that were queued with
    them, and whose lines requests are about; it has no gaps, and its owner deletes its segments.
    `kept` are the streams whose owner bounds what waits. Making one opens all streams and raises
    JournalError.
    """

    def __init__(
        self,
        folder: Path,
        streams: Sequence[str],
        settings: WriterSettings,
        last: str = "",
        kept: Sequence[str] = (),
    ) -> None:
        self.settings = settings
        self._kept = kept if settings.disk_full is JournalDiskFull.REFUSE else ()
        self._streams: dict[str, StreamWriter] = {}
        self._last = last
        with contextlib.ExitStack() as opened:
            for name in sorted(streams, key=lambda name: name == last):
                chained = header if name == last else None
                stream = StreamWriter(folder / name, settings.segment_bytes_max, chained)
                self._streams[name] = opened.enter_context(stream)
            opened.pop_all()
        self._tell: Callable[[Event], None] = _ignore
        self._changed = threading.Condition()
        self._queued: dict[str, list[bytes | Step]] = {}
        self._request = 0
        self._stored = 0
        self._bytes = 0
        self._lost = 0
        self._blocked = False
        self._torn = False
        self._emptied = False
        self._closing = False
        self._pending: dict[str, list[bytes | Step]] = {}
        self._opened: dict[str, float] = {}
        self._unsynced: dict[str, None] = {}
        self._retry = 0.0
        self._next_sync = 0.0
        self._next_clean = 0.0
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    @property
    def repairs(self) -> dict[str, Repair]:
        """What was repaired at the opening, for the streams where something was."""
        found = {name: stream.repair for name, stream in self._streams.items()}
        return {name: repair for name, repair in found.items() if repair.torn_lines}

    def start(self, tell: Callable[[Event], None]) -> None:
        """Begin to write. `tell` is called in the thread (`Blocked` in that of `write`, too)."""
        self._tell = tell
        self._thread.start()

    def write(self, stream: str, lines: Sequence[bytes | Step], request: int = 0) -> None:
        """Queue lines without their line ends, and return at once.

        `request` rises; it is told by `Stored`. Steps among the lines are taken in their turn.
        """
        size = sum(len(line) for line in lines if isinstance(line, bytes))
        with self._changed:
            self._request = request or self._request
            full = self._bytes + size > self.settings.queue_bytes_max
            if self._closing or (full and stream not in self._kept):
                self._lost += len(lines)
                self._torn = self._torn or stream == self._last
                self._changed.notify()
                return
            queued = self._queued.get(stream)
            if queued is None:
                self._queued[stream] = list(lines)
                self._changed.notify()
            else:
                queued += lines
            self._bytes += size
            if self._bytes <= self.settings.queue_bytes_high:
                return
        self._block("the disk is slower than what is to be written")

    def stream(self, name: str) -> StreamWriter:
        """A stream, for whoever reads or repairs it before the start."""
        return self._streams[name]

    def open_last(self) -> None:
        """Have the last stream take lines again, after it was emptied, from the next one on."""
        self.write(self._last, (self._open_last,))

    def close(self, timeout_s: float = limits.JOURNAL_CLOSE_TIMEOUT_S) -> int:
        """Write what is queued, for at most the timeout, and end; how many lines were not."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is None:
            self._end()
        else:
            self._thread.join(timeout_s)
        return self._lost + sum(
            len(lines) for waiting in (self._queued, self._pending) for lines in waiting.values()
        )

    # In the thread

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except (OSError, SyncError) as error:
            self._tell(Broken(str(error)))
        except Exception as error:
            # A bug. Without this thread nobody would be answered any more, and nobody would know.
            self._tell(Broken(f"{type(error).__name__}: {error}"))
        finally:
            self._end()

    def _end(self) -> None:
        for stream in self._streams.values():
            with contextlib.suppress(OSError, SyncError):
                stream.close()

    def _turn(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._queued or self._closing, self._pause())
            queued, self._queued = self._queued, {}
            request, closing = self._request, self._closing
        for name, lines in queued.items():
            self._pending.setdefault(name, []).extend(lines)
        now = time.monotonic()
        self._empty_torn()
        if self._retry <= now or closing:
            self._try(now, request)
        return not closing

    def _pause(self) -> float:
        """How long there is nothing to do unless lines come, in seconds."""
        now = time.monotonic()
        if self._pending:
            return max(0.0, self._retry - now)
        due = [self._next_clean, *(opened + self._age_s for opened in self._opened.values())]
        if self._unsynced and self.settings.fsync is not JournalFsync.NONE:
            due.append(self._next_sync)
        return max(0.0, min(due) - now)

    @property
    def _age_s(self) -> float:
        return self.settings.segment_time / NS_PER_S

    def _try(self, now: float, request: int) -> None:
        try:
            self._append_all(now)
            self._seal_old(now)
        except OSError as error:
            self._retry = now + limits.JOURNAL_RETRY_S
            if self.settings.disk_full is JournalDiskFull.CONTINUE:
                self._drop()
                self._empty_torn()
                self._answer(request)
            self._block(error.strerror or str(error))
        else:
            self._synced(now, request)
            self._unblock()
        if self._next_clean <= now:
            self._next_clean = now + limits.JOURNAL_CLEAN_S
            for name in self._streams:
                if name != self._last:
                    self._clean(name)

    def _append_all(self, now: float) -> None:
        for name, stream in self._streams.items():
            lines = self._pending.get(name)
            while lines:
                if isinstance(lines[0], bytes):
                    self._append(name, stream, lines, now)
                else:
                    lines[0](stream)
                    del lines[0]
            self._pending.pop(name, None)

    def _open_last(self, _: StreamWriter) -> None:
        self._emptied = False

    def _empty_torn(self) -> None:
        """A line of the last stream was dropped: none that follows it can be used."""
        with self._changed:
            torn, self._torn = self._torn, False
            if not torn or self._closing:
                return
        self._emptied = True
        self._streams[self._last].empty()

    def _append(
        self, name: str, stream: StreamWriter, lines: list[bytes | Step], now: float
    ) -> None:
        run = list(leading(lines))
        if self._emptied and name == self._last:
            self._count_lost(len(run))
        else:
            stream.append(run)
            self._unsynced[name] = None
            if name != self._last:
                self._opened.setdefault(name, now)
        del lines[: len(run)]
        with self._changed:
            self._bytes -= sum(map(len, run))

    def _seal_old(self, now: float) -> None:
        for name, opened in list(self._opened.items()):
            stream = self._streams[name]
            if opened + self._age_s <= now:
                stream.seal()
            if not stream.open_bytes:
                del self._opened[name]
                self._unsynced.pop(name, None)

    def _synced(self, now: float, request: int) -> None:
        """Sync what the policy wants synced."""
        fsync = self.settings.fsync
        if fsync is JournalFsync.COMMIT and self._last in self._unsynced:
            self._streams[self._last].sync()
            del self._unsynced[self._last]
        if fsync is not JournalFsync.NONE and self._unsynced and self._next_sync <= now:
            self._next_sync = now + limits.JOURNAL_SYNC_S
            for name in list(self._unsynced):
                self._streams[name].sync()
                del self._unsynced[name]
        self._answer(request)

    def _answer(self, request: int) -> None:
        if request > self._stored:
            self._stored = request
            self._tell(Stored(request))

    def _count_lost(self, lines: int) -> None:
        with self._changed:
            self._lost += lines

    def _drop(self) -> None:
        dropped = [line for lines in self._pending.values() for line in lines]
        torn = self._last in self._pending
        self._pending.clear()
        with self._changed:
            self._lost += len(dropped)
            self._torn = self._torn or torn
            self._bytes -= sum(len(line) for line in dropped if isinstance(line, bytes))

    def _block(self, reason: str) -> None:
        with self._changed:
            if self._blocked:
                return
            self._blocked = True
        self._tell(Blocked(reason))

    def _unblock(self) -> None:
        with self._changed:
            if not self._blocked or 2 * self._bytes > self.settings.queue_bytes_high:
                return
            self._blocked = False
            lost, self._lost = self._lost, 0
        self._tell(Unblocked(lost, self._emptied))

    def _clean(self, name: str) -> None:
        stream = self._streams[name]
        settings = self.settings
        try:
            readers = segments.positions(stream.folder)
            read = segments.read_by_all(stream.sealed, readers)
            left = stream.sealed[len(read) :]
            old = segments.expired(left, time.time_ns(), settings.bytes_max, settings.age_max)
            gone = [*read, *old]
            stream.delete(gone)
        except OSError:
            return  # the next look may have more luck
        if gone:
            size = sum(segment.size_bytes for segment in gone)
            self._tell(Deleted(name, len(gone), size, len(old) if readers else 0))


def _ignore(_: Event) -> None:
    """Nobody listens yet."""


def leading(lines: Sequence[bytes | Step]) -> Iterator[bytes]:
    """The lines before the first step."""
    for line in lines:
        if not isinstance(line, bytes):
            return
        yield line
