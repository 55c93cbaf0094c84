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
from mdserver.journal.segments import Repair, StreamWriter, SyncError
from mdserver.journal.wal_lines import header
from mdserver.limits import NS_PER_S

Step = Callable[[StreamWriter], None]
"""Something that the thread does with a stream in its turn. Raises OSError to be called again."""

Queued = bytes | Step | int
"""A line, a step, or the number of a request that is all written where it stands."""


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
    """Nothing can be written now, for this reason.

    `withdrawn`: none of the requests after the last `Stored` is on the disk, nor will be: what was
    queued of the last stream was dropped, and so is what follows until that is opened again.
    """

    reason: str
    withdrawn: bool = False


@frozen
class Unblocked:
    """Lines are written again; so many were dropped since it was blocked.

    `gap`: some of them were lines of the last stream. What stood there before is there still, and
    it takes no lines until it is opened again.
    """

    lost: int
    gap: bool = False


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
    them, and whose lines requests are about. Its owner deletes its segments, and begins it anew
    after a gap, which the disk is told of before a request is answered that is in it.
    `kept` are the streams whose owner bounds what waits. `withdraws`: with `refuse`, a disk that
    refuses makes it drop what the last stream has queued (`Blocked.withdrawn`), so that the owner
    can tell for certain what was not taken. Making one opens all streams and raises JournalError.
    """

    def __init__(
        self,
        folder: Path,
        streams: Sequence[str],
        settings: WriterSettings,
        last: str = "",
        kept: Sequence[str] = (),
        withdraws: bool = False,
    ) -> None:
        self.settings = settings
        refuses = settings.disk_full is JournalDiskFull.REFUSE
        self._withdraws = withdraws and refuses and bool(last)
        self._withdrawn = self._skipping = False
        self._missing_bytes = 0
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
        self._queued: dict[str, list[Queued]] = {}
        self._appended = 0
        self._stored = 0
        self._bytes = 0
        self._lost = 0
        self._blocked = False
        self._torn = False
        self._gap = False
        self._closing = False
        self._pending: dict[str, list[Queued]] = {}
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
            if self._closing:
                self._lost += len(lines)
                return
            full = self._bytes + size > self.settings.queue_bytes_max
            if full and stream not in self._kept:
                self._lost += len(lines)
                self._torn = self._torn or stream == self._last
                lines, size = (), 0
            queued = self._queued.get(stream)
            if queued is None:
                queued = self._queued[stream] = []
                self._changed.notify()
            queued += lines
            if request:
                queued.append(request)
            self._bytes += size
            if self._bytes <= self.settings.queue_bytes_high:
                return
        self._block("the disk is slower than what is to be written")

    def stream(self, name: str) -> StreamWriter:
        """A stream, for whoever reads or repairs it before the start."""
        return self._streams[name]

    def open_last(self) -> None:
        """Have the last stream take lines again, after some were dropped, from the next one on."""
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
            not isinstance(line, int)
            for waiting in (self._queued, self._pending)
            for lines in waiting.values()
            for line in lines
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
            closing = self._closing
        if self._skipping and self._last in queued:
            queued[self._last] = self._opened_again(queued[self._last])
        for name, lines in queued.items():
            self._pending.setdefault(name, []).extend(lines)
        now = time.monotonic()
        if self._retry <= now or closing:
            self._try(now)
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

    def _try(self, now: float) -> None:
        try:
            self._note_gap()
            if self._withdrawn or (self._gap and not self._closing):
                self._streams[self._last].make_room(self._missing_bytes)
            self._append_all(now)
            self._seal_old(now)
        except OSError as error:
            self._retry = now + limits.JOURNAL_RETRY_S
            if self.settings.disk_full is JournalDiskFull.CONTINUE:
                self._give_up()
            self._synced(now)
            reason = error.strerror or str(error)
            if self._withdraws and not self._withdrawn:
                self._withdraw(reason)
            else:
                self._block(reason)
        else:
            self._synced(now)
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
                line = lines[0]
                if isinstance(line, bytes):
                    self._append(name, stream, lines, now)
                    continue
                if isinstance(line, int):
                    self._appended = line
                else:
                    line(stream)
                del lines[0]
            self._pending.pop(name, None)

    def _open_last(self, stream: StreamWriter) -> None:
        self._gap = False
        stream.interruptions += 1

    def _withdraw(self, reason: str) -> None:
        """Drop what the last stream has queued: its owner is told that it is not on the disk."""
        dropped = self._pending.pop(self._last, [])
        size = sum(len(line) for line in dropped if isinstance(line, bytes))
        with self._changed:
            self._bytes -= size
            self._blocked = True
        # A line that says little may be taken where those that were refused would not be.
        self._missing_bytes = max(self._missing_bytes, size)
        self._withdrawn = self._skipping = True
        self._tell(Blocked(reason, True))

    def _opened_again(self, lines: list[Queued]) -> list[Queued]:
        """Drop what comes before the opening of the last stream; return the rest."""
        at = next((at for at, line in enumerate(lines) if line == self._open_last), len(lines))
        with self._changed:
            self._bytes -= sum(len(line) for line in lines[:at] if isinstance(line, bytes))
        self._skipping = at == len(lines)
        return lines[at:]

    def _note_gap(self) -> None:
        """Have the disk say that lines of the last stream were dropped, if some were.

        None that follows is written until the stream is opened again, and that waits until there
        is room for as much as stands there: what is to replace it is written beside it. Raises
        OSError; until it does not, no request is answered.
        """
        if not self._torn:
            return
        stream = self._streams[self._last]
        stream.begin_gap()
        with self._changed:
            self._torn = False
        self._gap = True
        self._missing_bytes = self._missing_bytes or stream.size_bytes

    def _append(self, name: str, stream: StreamWriter, lines: list[Queued], now: float) -> None:
        items = list(leading(lines))
        run = [line for line in items if isinstance(line, bytes)]
        if self._gap and name == self._last:
            self._count_lost(len(run))
        else:
            stream.append(run)
            self._unsynced[name] = None
            if name != self._last:
                self._opened.setdefault(name, now)
        del lines[: len(items)]
        if name == self._last:
            self._appended = next(
                (item for item in reversed(items) if isinstance(item, int)), self._appended
            )
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

    def _synced(self, now: float) -> None:
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
        if self._appended > self._stored:
            self._stored = self._appended
            self._tell(Stored(self._stored))

    def _count_lost(self, lines: int) -> None:
        with self._changed:
            self._lost += lines

    def _give_up(self) -> None:
        """Drop what waits, once the disk says so if there are lines of the last stream among it."""
        if any(not isinstance(line, int) for line in self._pending.get(self._last, ())):
            with self._changed:
                self._torn = True
        with contextlib.suppress(OSError):
            self._note_gap()
            self._drop()

    def _drop(self) -> None:
        queued = [line for lines in self._pending.values() for line in lines]
        dropped = [line for line in queued if not isinstance(line, int)]
        self._appended = max([self._appended, *(line for line in queued if isinstance(line, int))])
        self._pending.clear()
        with self._changed:
            self._lost += len(dropped)
            self._bytes -= sum(len(line) for line in dropped if isinstance(line, bytes))

    def _block(self, reason: str) -> None:
        with self._changed:
            if self._blocked:
                return
            self._blocked = True
        self._tell(Blocked(reason))

    def _unblock(self) -> None:
        with self._changed:
            crowded = 2 * self._bytes > self.settings.queue_bytes_high
            if not self._blocked or self._skipping or crowded:
                return
            self._blocked = self._withdrawn = False
            self._missing_bytes = 0
            lost, self._lost = self._lost, 0
        self._tell(Unblocked(lost, self._gap))

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


def leading(lines: Sequence[Queued]) -> Iterator[bytes | int]:
    """The lines before the first step, and the requests among them."""
    for line in lines:
        if not isinstance(line, bytes | int):
            return
        yield line
