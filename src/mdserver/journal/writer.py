"""The one thread that writes a member's journal: all its streams, in batches.

The event loop never waits for the disk: `write` queues lines and returns. The thread takes
everything that is queued at a time, appends the lines of each stream in one write, syncs as
`JournalFsync` says, seals and deletes segments. It reports to its owner by events, which are called
from the thread.

The states of the writer when the disk refuses a write (an OSError, such as a full disk):

- With `JournalDiskFull = refuse` the lines stay in `_pending` and are tried again every
  JOURNAL_RETRY_S (`Blocked`, then `Unblocked`). The owner refuses publications meanwhile.
- With `withdraws` as well, the lines of the last stream are dropped instead (`Blocked.withdrawn`),
  and so is every later line of it (`_skipping`) until the owner opens the stream again. Then the
  owner knows for certain that none of its requests after the last `Stored` is on the disk or will
  be. That would be impossible if they were tried again, because one of them may succeed after the
  owner has answered.
- With `continue` everything that waits is dropped and counted. If lines of the last stream are
  among it, the stream has a gap, and that has to be on the disk before any request in it is
  answered (`_torn`: there is a gap that the disk does not know of yet; `_gap`: it does). From then
  on the stream takes no lines until its owner opens it again, after a new beginning.

A failed sync is different: nobody knows what is on the disk, so the thread ends (`Broken`).

The queue is bounded in bytes. Beyond the bound lines are dropped and counted. With `refuse` that
does not concern the `kept` streams, whose owner bounds what it gives by what has been stored.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from attrs import evolve, frozen

from mdserver import limits
from mdserver.config import JournalDiskFull, JournalFsync
from mdserver.journal import segments
from mdserver.journal.segments import Repair, StreamWriter, SyncError
from mdserver.journal.wal_lines import header
from mdserver.limits import NS_PER_S

PAUSE = "pause.json"
"""The file of a journal with the times that a start is giving to its segments."""

Step = Callable[[StreamWriter], None]
"""Something that the thread does with a stream in its turn. Raises OSError to be called again."""

Queued = bytes | Step | int
"""A line, a step, or the number of a request, all lines of which stand before it."""


@frozen(kw_only=True)
class WriterSettings:
    """The settings of a journal. Durations in ns, sizes in bytes; limits are for each stream."""

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
    """Everything up to and with this request is as durable as `JournalFsync` demands."""

    request: int


@frozen
class Blocked:
    """Nothing can be written at the moment, for this reason.

    `withdrawn`: none of the requests after the last `Stored` is on the disk, nor will be. What was
    queued of the last stream was dropped, and so is what follows until it is opened again.
    """

    reason: str
    withdrawn: bool = False


@frozen
class Unblocked:
    """Lines are written again; `lost` were dropped since the writer was blocked.

    `gap`: some of them were lines of the last stream. What it held before is still there, and it
    takes no lines until it is opened again.
    """

    lost: int
    gap: bool = False


@frozen
class Deleted:
    """Sealed segments were deleted; `unread` of them before every reader was done with them."""

    stream: str
    segments: int
    size_bytes: int
    unread: int


@frozen
class Broken:
    """The thread ended: what it wrote last may not be on the disk, and nobody can tell."""

    reason: str


Event = Stored | Blocked | Unblocked | Deleted | Broken


class JournalWriter:
    """The streams of a journal folder, each in a folder of its own, and the thread.

    `last` names the stream that requests are about. Of the lines that were queued together, its
    lines are written after those of all other streams. Its owner deletes its segments, and begins
    it anew after a gap. `kept` are the streams whose owner bounds what waits. `withdraws` says what
    happens to the last stream when the disk refuses a write (the module's docstring has both).
    `clock` gives the times by which segments age (ns since the Unix epoch). It should not follow
    corrections of the machine's clock: one by more than `age_max` would delete what was just
    sealed. Making a writer opens all streams, and raises JournalError.
    """

    def __init__(
        self,
        folder: Path,
        streams: Sequence[str],
        settings: WriterSettings,
        last: str = "",
        kept: Sequence[str] = (),
        withdraws: bool = False,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.settings = settings
        self._clock = clock
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
                stream = StreamWriter(folder / name, settings.segment_bytes_max, chained, clock)
                self._streams[name] = opened.enter_context(stream)
            self._pass_over_pause(folder / PAUSE, clock())
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

    def _pass_over_pause(self, noted: Path, now: int) -> None:
        """Set the times of the segments that were found on by how long no writer ran.

        Segments do not age in that time: a clock that is ahead at a start, or a pause, would delete
        what nobody had a chance to read. The times of the files are set as well, because the next
        start would find segments of this run and take the pause for age. What they are to be is
        noted before, for the next start if this one ends in between.
        """
        self._take_noted(noted)
        found = [segment for stream in self._streams.values() for segment in stream.sealed]
        away = now - max((segment.modified for segment in found), default=now)
        if away > 0:
            for stream in self._streams.values():
                stream.sealed = [
                    evolve(segment, modified=segment.modified + away) for segment in stream.sealed
                ]
        elif not noted.exists():
            return
        # If a file system refuses, the next start counts the pause: that is what it knows.
        with contextlib.suppress(OSError):
            self._note_times(noted)
        for stream in self._streams.values():
            for segment in stream.sealed:
                with contextlib.suppress(OSError):
                    os.utime(segment.path, ns=(segment.modified, segment.modified))
        with contextlib.suppress(OSError):
            noted.unlink(missing_ok=True)

    def _take_noted(self, noted: Path) -> None:
        """Take the times that an earlier start noted, and may not have given to all files.

        A later time of a file is its own: what was noted then is done, or of a file before it.
        """
        try:
            times = msgspec.json.decode(noted.read_bytes(), type=dict[str, dict[int, int]])
        except (OSError, msgspec.DecodeError):
            return
        for name, stream in self._streams.items():
            known = times.get(name, {})
            stream.sealed = [
                evolve(each, modified=max(each.modified, known.get(each.number, 0)))
                for each in stream.sealed
            ]

    def _note_times(self, noted: Path) -> None:
        """Write down, so that it survives a power cut, which time each segment is to have."""
        times = {
            name: {segment.number: segment.modified for segment in stream.sealed}
            for name, stream in self._streams.items()
        }
        fresh = noted.with_name(f"{noted.name}.new")
        with fresh.open("wb") as file:
            file.write(msgspec.json.encode(times))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(noted)
        segments.sync_folder(noted.parent)

    @property
    def repairs(self) -> dict[str, Repair]:
        """The repairs at the opening, by stream; streams without repairs are left out."""
        found = {name: stream.repair for name, stream in self._streams.items()}
        return {name: repair for name, repair in found.items() if repair.torn_lines}

    @property
    def waiting_bytes(self) -> int:
        """The number of bytes that are queued and not written yet."""
        return self._bytes

    @property
    def lost_lines(self) -> int:
        """The number of lines that were dropped since writing last went on."""
        return self._lost

    def start(self, tell: Callable[[Event], None]) -> None:
        """Start the thread.

        It calls `tell` with each event. A `Blocked` may also come from within `write`, in the
        thread of its caller.
        """
        self._tell = tell
        self._thread.start()

    def write(self, stream: str, lines: Sequence[bytes | Step], request: int = 0) -> None:
        """Queue lines, given without their line ends, and return at once.

        `request` is a number that rises from call to call, and that `Stored` reports once the lines
        are durable; 0 stands for none. Steps among the lines are carried out in their turn.
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
        """Return a stream, to be read or repaired before `start`."""
        return self._streams[name]

    def open_last(self) -> None:
        """Make the last stream take lines again, after some were dropped.

        The lines that are written after this call are taken; it is queued like a line itself.
        """
        self.write(self._last, (self._open_last,))

    def close(self, timeout_s: float = limits.JOURNAL_CLOSE_TIMEOUT_S) -> int:
        """Write what is queued and end the thread; return how many lines were not written.

        The thread is given `timeout_s` to end.
        """
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
            # A bug here. If the thread ended silently, no request would be answered any more, and
            # no operator would learn why.
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
        """Return for how long there is nothing to do unless lines come, in seconds."""
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
        """Write, seal, sync and delete what is due; on an error do what `JournalDiskFull` says."""
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
            # Some streams may have been written before the error: report those requests first, as
            # a withdrawal is about everything after the last `Stored`.
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
        """Drop what the last stream has queued, and report that it is not on the disk."""
        dropped = self._pending.pop(self._last, [])
        size = sum(len(line) for line in dropped if isinstance(line, bytes))
        with self._changed:
            self._bytes -= size
            self._blocked = True
        # A short line might fit where the refused ones did not. So the disk counts as willing again
        # only when it has room for as much as it refused (`_try`).
        self._missing_bytes = max(self._missing_bytes, size)
        self._withdrawn = self._skipping = True
        self._tell(Blocked(reason, True))

    def _opened_again(self, lines: list[Queued]) -> list[Queued]:
        """Drop the lines before the next opening of the last stream, and return the rest."""
        at = next((at for at, line in enumerate(lines) if line == self._open_last), len(lines))
        with self._changed:
            self._bytes -= sum(len(line) for line in lines[:at] if isinstance(line, bytes))
        self._skipping = at == len(lines)
        return lines[at:]

    def _note_gap(self) -> None:
        """Record on the disk that lines of the last stream were dropped, if some were.

        No line that follows is written until the stream is opened again. That waits until the disk
        has room for as much as the stream has (`_missing_bytes`), because its replacement is
        written beside it. Raises OSError; until a call succeeds, no request is answered.
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
        """Append the lines of a stream's queue up to its first step, and note their requests.

        While the last stream has a gap, its lines are counted as lost instead.
        """
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
        """Sync what `JournalFsync` wants synced now, and report the requests that are stored."""
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
        """Drop what waits.

        If lines of the last stream are among it, the gap has to be on the disk first: as long as
        that fails, nothing is dropped and no request is answered.
        """
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
            # Half of the bound that blocks, so that a disk that is too slow does not have the
            # writer block and unblock in quick succession.
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
            old = segments.expired(left, self._clock(), settings.bytes_max, settings.age_max)
            gone = [*read, *old]
            stream.delete(gone)
        except OSError:
            return  # The next look tries again; nothing depends on when segments are deleted.
        if gone:
            size = sum(segment.size_bytes for segment in gone)
            self._tell(Deleted(name, len(gone), size, len(old) if readers else 0))


def _ignore(_: Event) -> None:
    """Ignore an event: there is no owner before `start`."""


def leading(lines: Sequence[Queued]) -> Iterator[bytes | int]:
    """Yield the lines before the first step, and the requests among them."""
    for line in lines:
        if not isinstance(line, bytes | int):
            return
        yield line
