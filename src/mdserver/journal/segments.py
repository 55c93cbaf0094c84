"""Segment files of one stream: appended to, sealed, listed, deleted.

A stream is a folder. Lines go to `seg-N.open`; when the segment is large or old enough it is sealed
by a rename to `seg-N.jsonl`, which never changes again: readers that want whole files (Spark's
file source) take only sealed ones. N is a count with twelve digits, so names sort by age. A folder
has one writer at a time; a lock on the file `writer.lock` ensures that.

A reader leaves `NAME.position` in the folder: the last segment that it needs no more, and the
stream that it read. Segments that every such reader is done with may be deleted.

`stream.id` holds the stream's identifier, which is random, and the last number that a segment got,
so that a number is never given twice, however many segments were deleted meanwhile. What has to be
on the disk before what:

- the name of a new segment before its number in `stream.id`, and the number before the segment's
  first line. So if the last number has no segment, a segment is missing; and if a segment has
  lines, its number is known even after the segment is lost (`StreamWriter.ends_at`);
- the content of a segment before the rename that seals it, so a sealed segment is whole.

If the disk refuses lines and they are dropped, `stream.id` is renamed to `stream.gap` until the
stream is known to be whole again. A rename needs no space, so a full disk still takes it.

A write that fails is taken back: the file ends at the last line that was accepted. A sync that
fails cannot be taken back, and is final (`SyncError`).

Everything here blocks; `mdserver.journal.writer` calls it from a thread.
"""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from attrs import evolve, frozen

from mdserver.errors import MdserverError

SEGMENT = re.compile(r"seg-(\d{12})\.(open|jsonl)\Z")
POSITION = ".position"
IDENTITY = "stream.id"
GAP = "stream.gap"
IDENTIFIED = re.compile(rb"([0-9a-f]{32}) (\d{12})\n\Z")
ASIDE = "aside-"
"""Prefix of the folders with segments that are no part of the stream any more."""


class JournalError(MdserverError):
    """The journal's folder cannot be used; the message is one line that says why."""


class SyncError(MdserverError):
    """Written lines may not be on the disk; the message is one line that says where and why.

    It is not an OSError, because those may be tried again and this may not.
    """


@frozen
class Segment:
    """A sealed segment. `modified` is when its last line was written (ns since the Unix epoch)."""

    number: int
    path: Path
    size_bytes: int
    modified: int


@frozen
class Repair:
    """What the opening of a stream repaired: lines torn by a crash are cut off and counted."""

    torn_lines: int
    torn_bytes: int


@frozen
class Identified:
    """A stream's identifier, and the last number that a segment of it got."""

    identifier: str
    number: int

    def encode(self) -> bytes:
        """Return the content of `stream.id`, always of the same length.

        So it is overwritten in place by one small write, and never truncated.
        """
        return f"{self.identifier} {self.number:012d}\n".encode()


Header = Callable[[str, int], bytes]
"""Makes a segment's first line, from the stream's identifier and the previous segment's number."""


class StreamWriter:
    """The one writer of a stream. Not safe for several threads at a time.

    `identifier` is the stream's. `ends_at` is the number of its last segment if that was missing at
    the opening, else 0. `gap` says that lines are missing from its end. `interruptions` counts how
    often the writer began to leave lines out, or ceased to. With a `header` each segment begins
    with a line made by it. `clock` gives the times (ns since the Unix epoch) of the segments that
    it seals. Their modification times would come from the machine that has the disk, whose clock
    may differ.

    Opening one raises JournalError. A call that raises OSError changed nothing and may be tried
    again. After a SyncError nobody knows how much of the segment is on the disk, and another sync
    does not tell, because the kernel may have dropped the pages (Rebello et al., "Can Applications
    Recover from fsync Failures?", USENIX ATC 2020).
    """

    def __init__(
        self,
        folder: Path,
        segment_bytes_max: int,
        header: Header | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.folder = folder
        self._clock = clock
        self.interruptions = 0
        self._bytes_max = segment_bytes_max
        self._header = header
        self._lock = self._locked()
        self.repair = Repair(0, 0)
        self.gap = (folder / GAP).exists()
        try:
            found = self._seal_leftovers()
            # A time in the future, from before a clock was set right, would keep this segment and
            # all after it however old they become: it counts as now.
            now = clock()
            self.sealed = [
                evolve(segment, modified=min(segment.modified, now)) for segment in sealed(folder)
            ]
            """The sealed segments, oldest first, without those that were deleted."""
            self.identifier, self._number = self._identify(found)
        except OSError as error:
            os.close(self._lock)
            raise JournalError(f"{folder}: {error.strerror}") from error
        self._file = -1
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def open_bytes(self) -> int:
        """The size of the open segment; 0 when none is open."""
        return self._size

    def append(self, lines: Sequence[bytes]) -> None:
        """Write whole lines, given without their newlines, all or none of them.

        Raises OSError, such as ENOSPC; the file then ends at the line that was the last before.
        A segment that is large enough is sealed first, which may raise SyncError.
        """
        if self._size >= self._bytes_max:
            self.seal()
        if self._file < 0:
            self._open_next()
        block = b"".join([part for line in lines for part in (line, b"\n")])
        if not self._size and self._header is not None:
            before = self.sealed[-1].number if self.sealed else 0
            block = self._header(self.identifier, before) + b"\n" + block
        try:
            self._write_all(block)
        except OSError:
            self._cut()
            raise
        self._size += len(block)

    def make_room(self, size_bytes: int) -> None:
        """Raise OSError if the disk has no room for so many more bytes; nothing is written."""
        if self._file < 0:
            self._open_next()
        if size_bytes:
            try:
                os.posix_fallocate(self._file, self._size, size_bytes)
            except OSError as error:
                # A file system that cannot reserve space gives no answer: the write will.
                if error.errno != errno.EOPNOTSUPP:
                    raise
            finally:
                self._cut()

    def _cut(self) -> None:
        """Cut the file after the last line that was accepted.

        Raises SyncError: if a refused line stayed in the file, a reader would take it for an
        accepted one.
        """
        try:
            os.ftruncate(self._file, self._size)
            os.lseek(self._file, self._size, os.SEEK_SET)
        except OSError as error:
            raise SyncError(
                f"{self.folder}: a refused line cannot be removed: {error.strerror}"
            ) from error

    def sync(self) -> None:
        """Put everything appended so far on the disk, so that it survives a power cut.

        Raises SyncError.
        """
        if self._file >= 0:
            try:
                os.fdatasync(self._file)
            except OSError as error:
                raise SyncError(f"{self.folder}: syncing failed: {error.strerror}") from error

    def seal(self) -> None:
        """Make the open segment final; do nothing if it is empty or there is none.

        Raises SyncError and OSError.
        """
        if self._file < 0 or not self._size:
            return
        self.sync()
        self._path(self._number, "open").rename(self._path(self._number, "jsonl"))
        self._sync_names()
        path = self._path(self._number, "jsonl")
        modified = self._clock()
        # The next opening goes by the file's time. If it cannot be set, the disk's own will do.
        with contextlib.suppress(OSError):
            os.utime(self._file, ns=(modified, modified))
        self.sealed.append(Segment(self._number, path, self._size, modified))
        os.close(self._file)
        self._file, self._size = -1, 0

    def delete(self, segments: Sequence[Segment]) -> None:
        """Delete sealed segments; one that is gone already is no error."""
        for segment in segments:
            segment.path.unlink(missing_ok=True)
        numbers = {segment.number for segment in segments}
        self.sealed = [segment for segment in self.sealed if segment.number not in numbers]

    def set_aside(self, segments: Sequence[Segment]) -> Path:
        """Move sealed segments into a new subfolder `aside-N`, and return that.

        They are no part of the stream any more, and nothing in the server deletes them. After an
        OSError some have been moved; another call moves the rest.
        """
        number = 1
        while (aside := self.folder / f"{ASIDE}{number}").exists() and any(aside.iterdir()):
            number += 1
        aside.mkdir(exist_ok=True)
        for segment in list(segments):  # which may be `sealed` itself
            segment.path.rename(aside / segment.path.name)
            self.sealed.remove(segment)
        sync_folder(aside)
        sync_folder(self.folder)
        return aside

    def begin_gap(self) -> None:
        """Record on the disk that lines are missing from here on.

        Raises OSError and SyncError.
        """
        self.interruptions += 1
        if not self.gap:
            (self.folder / IDENTITY).rename(self.folder / GAP)
            self.gap = True
            self._sync_names()

    def end_gap(self) -> None:
        """Record on the disk that no lines are missing, or that it is known which ones are.

        Raises OSError and SyncError.
        """
        if self.gap:
            (self.folder / GAP).rename(self.folder / IDENTITY)
            self.gap = False
            self._sync_names()

    @property
    def size_bytes(self) -> int:
        """The size of all segments."""
        return sum(segment.size_bytes for segment in self.sealed) + self._size

    @property
    def next_number(self) -> int:
        """The number of the segment that is opened next."""
        return self._number + 1

    def close(self) -> None:
        """Seal the open segment and release the folder for another writer."""
        self.seal()
        if self._file >= 0:  # Empty, so it was not sealed: the next writer opens it again.
            os.close(self._file)
            self._file = -1
        os.close(self._identity)
        os.close(self._lock)

    def _locked(self) -> int:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            sync_folder(self.folder.parent)
            return locked(self.folder / "writer.lock")
        except BlockingIOError as error:
            raise JournalError(
                f"{self.folder}: another process writes this journal: stop that server, or give "
                "each one a JournalFolder of its own"
            ) from error
        except OSError as error:
            raise JournalError(f"{self.folder}: {error.strerror}") from error

    def _identify(self, found: int) -> tuple[str, int]:
        """Return the stream's identifier, made if there is none, and the last number given.

        `found` is the number of the last segment in the folder.
        """
        path = self.folder / (GAP if self.gap else IDENTITY)
        known = identified(self.folder)
        if known is None:
            known = Identified(secrets.token_hex(16), found)
            fresh = self.folder / "stream.new"
            fresh.write_bytes(known.encode())
            fresh.replace(path)
        self._identity = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        os.fsync(self._identity)
        sync_folder(self.folder)
        self.ends_at = known.number if known.number > found else 0
        number = max(known.number, *positions(self.folder).values(), found)
        # The last segment was given its number but no line: the next one to open is that one.
        if not self.ends_at and number == found and self._path(found, "open").exists():
            number -= 1
        return known.identifier, number

    def _seal_leftovers(self) -> int:
        """Seal the segments that a crash left open, without torn lines.

        Returns the number of the last segment.
        """
        last = 0
        for number, state in _numbered(self.folder):
            last = max(last, number)
            if state == "open":
                self._repair(number)
        return last

    def _repair(self, number: int) -> None:
        path = self._path(number, "open")
        with path.open("r+b") as file:
            whole = whole_lines(file.read())
            torn = path.stat().st_size - whole
            if torn:
                file.truncate(whole)
                self.repair = Repair(self.repair.torn_lines + 1, self.repair.torn_bytes + torn)
            os.fsync(file.fileno())
        if whole:
            self._rename_sealed(number)

    def _open_next(self) -> None:
        """Open the next segment, whose name and number are on the disk when this returns."""
        number = self._number + 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        file = os.open(self._path(number, "open"), flags, 0o640)
        try:
            # A number without a name means a missing segment, so the name goes to the disk first.
            # It has to be synced before the number is written, not only before that is synced: the
            # kernel may put the number on the disk at any time.
            self._sync_names()
            os.pwrite(self._identity, Identified(self.identifier, number).encode(), 0)
        except (OSError, SyncError):
            os.close(file)  # The next attempt opens the same file again, which is still empty.
            raise
        self._file, self._number, self._size = file, number, 0
        try:
            os.fdatasync(self._identity)
        except OSError as error:
            raise SyncError(f"{self.folder}: syncing failed: {error.strerror}") from error

    def _write_all(self, block: bytes) -> None:
        view = memoryview(block)
        while view:
            view = view[os.write(self._file, view) :]

    def _rename_sealed(self, number: int) -> None:
        self._path(number, "open").rename(self._path(number, "jsonl"))
        sync_folder(self.folder)

    def _sync_names(self) -> None:
        """Put the names in the folder on the disk.

        Raises SyncError: as with a file, trying again does not tell what is there.
        """
        try:
            sync_folder(self.folder)
        except OSError as error:
            raise SyncError(f"{self.folder}: syncing failed: {error.strerror}") from error

    def _path(self, number: int, state: str) -> Path:
        return self.folder / f"seg-{number:012d}.{state}"


def whole_lines(block: bytes) -> int:
    """Return how many bytes of a block are whole lines: up to and including its last newline."""
    return block.rfind(b"\n") + 1


def sealed(folder: Path) -> list[Segment]:
    """Return the sealed segments of a stream, oldest first."""
    found = []
    for number, state in _numbered(folder):
        if state == "jsonl":
            path = folder / f"seg-{number:012d}.jsonl"
            stat = path.stat()
            found.append(Segment(number, path, stat.st_size, stat.st_mtime_ns))
    return found


def paths(folder: Path) -> list[Path]:
    """Return the files of a stream's segments, oldest first, the open one included.

    A folder that does not exist has none.
    """
    if not folder.is_dir():
        return []
    return [folder / f"seg-{number:012d}.{state}" for number, state in _numbered(folder)]


def numbers(folder: Path) -> list[int]:
    """Return the numbers of a stream's segments, oldest first, the open one included."""
    return [number for number, _ in _numbered(folder)]


def lines(folder: Path) -> Iterator[bytes]:
    """Yield every whole line of a stream, oldest first, without newlines.

    No writer may have the stream open.
    """
    for number, state in _numbered(folder):
        with (folder / f"seg-{number:012d}.{state}").open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield line[:-1]


def expired(
    segments: Sequence[Segment], now: int, bytes_max: int | None, age_max: int | None
) -> list[Segment]:
    """Return the segments that exceed the limits on total size (bytes) or age (ns), oldest first.

    `now` is in ns since the Unix epoch; a limit of None does not apply.
    """
    total = sum(segment.size_bytes for segment in segments)
    gone = []
    for segment in segments:
        too_large = bytes_max is not None and total > bytes_max
        too_old = age_max is not None and now - segment.modified > age_max
        if not (too_large or too_old):
            break
        total -= segment.size_bytes
        gone.append(segment)
    return gone


def read_by_all(segments: Sequence[Segment], positions: Mapping[str, int]) -> list[Segment]:
    """Return the segments that every reader is done with; none if there is no reader."""
    done = min(positions.values(), default=0)
    return [segment for segment in segments if segment.number <= done]


def identified(folder: Path) -> Identified | None:
    """Return what `stream.id` says, None if it is missing or damaged. Raises OSError."""
    for name in (IDENTITY, GAP):
        with contextlib.suppress(FileNotFoundError):
            found = IDENTIFIED.match((folder / name).read_bytes())
            return Identified(found[1].decode(), int(found[2])) if found else None
    return None


def positions(folder: Path) -> dict[str, int]:
    """Return, by reader, the number of the last segment that the reader needs no more.

    That is 0 for a file that is damaged, or about another stream that was in this folder before.
    Files of earlier versions name no stream, and count for any.
    """
    known = identified(folder)
    found = {}
    for path in sorted(folder.glob(f"*{POSITION}")):
        number, _, stream = (
            path.read_text(encoding="ascii", errors="replace").strip().partition(" ")
        )
        fits = number.isdecimal() and (known is None or stream in ("", known.identifier))
        found[path.stem] = int(number) if fits else 0
    return found


def attend(folder: Path, reader: str) -> None:
    """Keep all segments for a reader from now on; a known reader stays where it is."""
    set_position(folder, reader, positions(folder).get(reader, 0))


def set_position(folder: Path, reader: str, number: int, stream: str | None = None) -> None:
    """Note for a reader that it needs the segment `number` and those before it no more.

    `stream` is the identifier of the stream that it has read, by default the one that is there now.
    """
    known = identified(folder)
    if stream is None:
        stream = "" if known is None else known.identifier
    fresh = folder / f".{reader}.new"
    fresh.write_text(f"{number} {stream}".rstrip() + "\n", encoding="ascii")
    fresh.replace(folder / f"{reader}{POSITION}")


def locked(path: Path) -> int:
    """Lock a file, which is made if it does not exist, and return its descriptor.

    The lock ends when the descriptor is closed, and so with the process however that ends. Raises
    BlockingIOError if another process has the lock, and other OSErrors.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on the disk, so that they survive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _numbered(folder: Path) -> list[tuple[int, str]]:
    matches = [SEGMENT.match(path.name) for path in folder.iterdir()]
    return sorted((int(match[1]), match[2]) for match in matches if match)
