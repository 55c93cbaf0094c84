"""Segment files of one stream: appended to, sealed, listed, deleted.

A stream is a folder. Lines go to `seg-N.open`; when the segment is large or old enough it is sealed
by a rename to `seg-N.jsonl`, which never changes again: readers that want whole files (Spark's
file source) take only sealed ones. N is a count with twelve digits, so names sort by age. There is
one writer a folder, which a lock on the file `writer.lock` makes sure of.

A reader that leaves `NAME.position` in the folder says up to which segment it needs none any more,
and of which stream; segments that every such reader is done with may be deleted.

`stream.id` holds the stream's identifier, which is random, and the last number that a segment got:
a number is given once, however many segments were deleted meanwhile. It is on the disk before a
segment's first line, and after the segment's name, so a missing last segment is noticed. While
lines are missing from its end, because the disk did not take them, it is called `stream.gap`: a
full disk takes another name.

Everything here blocks; `mdserver.journal.writer` calls it from a thread.
"""

import contextlib
import errno
import fcntl
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from attrs import frozen

from mdserver.errors import MdserverError

SEGMENT = re.compile(r"seg-(\d{12})\.(open|jsonl)\Z")
POSITION = ".position"
IDENTITY = "stream.id"
GAP = "stream.gap"
IDENTIFIED = re.compile(rb"([0-9a-f]{32}) (\d{12})\n\Z")
ASIDE = "aside-"
"""How the folders begin that hold segments which are no part of the stream any more."""


class JournalError(MdserverError):
    """The journal's folder cannot be used; the message is one line that says why."""


class SyncError(MdserverError):
    """What was written may not be on the disk; the message is one line that says where and why."""


@frozen
class Segment:
    """A sealed segment. `modified` is when its last line was written, in ns since the epoch."""

    number: int
    path: Path
    size_bytes: int
    modified: int


@frozen
class Repair:
    """What opening a stream found: a line torn by a crash is cut off, and counted here."""

    torn_lines: int
    torn_bytes: int


@frozen
class Identified:
    """A stream's identifier, and the last number that a segment of it got."""

    identifier: str
    number: int

    def encode(self) -> bytes:
        """The content of `stream.id`, always of the same length."""
        return f"{self.identifier} {self.number:012d}\n".encode()


Header = Callable[[str, int], bytes]
"""Makes a segment's first line of the stream's identifier and the number of the segment before."""


class StreamWriter:
    """The one writer of a stream. Not safe for several threads at a time.

    `identifier` is the stream's; `ends_at` the number of its last segment if that was missing at
    the opening, else 0. `gap`: lines are missing from its end. `interruptions` counts how often
    lines began to be left out, or not to be any more. With a `header` each segment begins with a
    line of that.

    Opening one raises JournalError. Whatever else raises OSError changed nothing and may be tried
    again. After a SyncError nobody knows what of the segment is on the disk, and trying again does
    not tell (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020).
    """

    def __init__(self, folder: Path, segment_bytes_max: int, header: Header | None = None) -> None:
        self.folder = folder
        self.interruptions = 0
        self._bytes_max = segment_bytes_max
        self._header = header
        self._lock = self._locked()
        self.repair = Repair(0, 0)
        self.gap = (folder / GAP).exists()
        try:
            found = self._seal_leftovers()
            self.sealed = sealed(folder)
            """The sealed segments, oldest first; whoever deletes some takes them off."""
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
        """Write whole lines, without their newline, in one piece.

        Raises OSError as the system does, ENOSPC among it; the file then ends at the last line
        that was there before. A segment that is large enough is sealed first.
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
        """Raise OSError if there is no room for so many bytes more; nothing is written."""
        if self._file < 0:
            self._open_next()
        if size_bytes:
            try:
                os.posix_fallocate(self._file, self._size, size_bytes)
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
            finally:
                self._cut()

    def _cut(self) -> None:
        """Have the file end at the last whole line.

        Raises SyncError: a line that was refused and is there all the same would be taken for one
        that was not refused.
        """
        try:
            os.ftruncate(self._file, self._size)
            os.lseek(self._file, self._size, os.SEEK_SET)
        except OSError as error:
            raise SyncError(
                f"{self.folder}: a refused line cannot be removed: {error.strerror}"
            ) from error

    def sync(self) -> None:
        """Return once everything appended so far would survive a power cut. Raises SyncError."""
        if self._file >= 0:
            try:
                os.fdatasync(self._file)
            except OSError as error:
                raise SyncError(f"{self.folder}: syncing failed: {error.strerror}") from error

    def seal(self) -> None:
        """Make the open segment final; does nothing when it is empty or there is none.

        Raises SyncError, and OSError.
        """
        if self._file < 0 or not self._size:
            return
        self.sync()
        self._path(self._number, "open").rename(self._path(self._number, "jsonl"))
        self._sync_names()
        modified = os.fstat(self._file).st_mtime_ns
        path = self._path(self._number, "jsonl")
        self.sealed.append(Segment(self._number, path, self._size, modified))
        os.close(self._file)
        self._file, self._size = -1, 0

    def delete(self, segments: Sequence[Segment]) -> None:
        """Delete some of the sealed segments; one that is gone already is no error."""
        for segment in segments:
            segment.path.unlink(missing_ok=True)
        numbers = {segment.number for segment in segments}
        self.sealed = [segment for segment in self.sealed if segment.number not in numbers]

    def set_aside(self, segments: Sequence[Segment]) -> Path:
        """Move sealed segments into a folder `aside-N` of this one that holds none, and return it.

        They are no part of the stream any more, and nobody here deletes them. After an OSError
        those that were moved are; the others can be moved by another call.
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
        """Have the disk say that lines are missing from here on; it takes no room.

        Raises OSError, and SyncError.
        """
        self.interruptions += 1
        if not self.gap:
            (self.folder / IDENTITY).rename(self.folder / GAP)
            self.gap = True
            self._sync_names()

    def end_gap(self) -> None:
        """Have the disk say that no lines are missing any more, or that it is known which ones.

        Raises OSError, and SyncError.
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
        """Seal, and let another writer have the folder."""
        self.seal()
        if self._file >= 0:  # empty: the next writer goes on with it
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
        """Return the identifier, made if there is none, and the last number that was given.

        `found` is the number of the last segment that is there.
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
        # One that was left empty got its number, and no line: it is the next one to be opened.
        if not self.ends_at and number == found and self._path(found, "open").exists():
            number -= 1
        return known.identifier, number

    def _seal_leftovers(self) -> int:
        """Cut torn lines off segments that a crash left open and seal them; the last number."""
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
        number = self._number + 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        file = os.open(self._path(number, "open"), flags, 0o640)
        try:
            # A number on the disk says that the segment's name is there as well. What is written
            # may be on the disk before it is synced, so the name has to be there before that.
            self._sync_names()
            os.pwrite(self._identity, Identified(self.identifier, number).encode(), 0)
        except (OSError, SyncError):
            os.close(file)  # and tried again: it is empty
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
        """Have the names in the folder on the disk.

        Raises SyncError: like with a file, trying again does not tell what is there.
        """
        try:
            sync_folder(self.folder)
        except OSError as error:
            raise SyncError(f"{self.folder}: syncing failed: {error.strerror}") from error

    def _path(self, number: int, state: str) -> Path:
        return self.folder / f"seg-{number:012d}.{state}"


def whole_lines(block: bytes) -> int:
    """How many bytes of the block are whole lines: up to and with its last newline."""
    return block.rfind(b"\n") + 1


def sealed(folder: Path) -> list[Segment]:
    """The sealed segments of a stream, oldest first."""
    found = []
    for number, state in _numbered(folder):
        if state == "jsonl":
            path = folder / f"seg-{number:012d}.jsonl"
            stat = path.stat()
            found.append(Segment(number, path, stat.st_size, stat.st_mtime_ns))
    return found


def paths(folder: Path) -> list[Path]:
    """The files of a stream's segments, the open one too, oldest first; none without a folder."""
    if not folder.is_dir():
        return []
    return [folder / f"seg-{number:012d}.{state}" for number, state in _numbered(folder)]


def numbers(folder: Path) -> list[int]:
    """The numbers of a stream's segments, the open one's too, oldest first."""
    return [number for number, _ in _numbered(folder)]


def lines(folder: Path) -> Iterator[bytes]:
    """Every whole line of a stream that no writer has open, oldest first, without newlines."""
    for number, state in _numbered(folder):
        with (folder / f"seg-{number:012d}.{state}").open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield line[:-1]


def expired(
    segments: Sequence[Segment], now: int, bytes_max: int | None, age_max: int | None
) -> list[Segment]:
    """Which segments the limits on size (bytes) and age (ns) want gone, oldest first."""
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
    """The segments that every reader is done with; none where there is no reader."""
    done = min(positions.values(), default=0)
    return [segment for segment in segments if segment.number <= done]


def identified(folder: Path) -> Identified | None:
    """What `stream.id` says; None if it is missing or damaged. Raises OSError."""
    for name in (IDENTITY, GAP):
        with contextlib.suppress(FileNotFoundError):
            found = IDENTIFIED.match((folder / name).read_bytes())
            return Identified(found[1].decode(), int(found[2])) if found else None
    return None


def positions(folder: Path) -> dict[str, int]:
    """Up to which segment each reader of a stream is done; 0 for a file that says nothing.

    Nor does one that is about a stream which stood here before. Earlier versions named no stream.
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
    """Have all segments kept for a reader from now on; one that is known stays where it is."""
    set_position(folder, reader, positions(folder).get(reader, 0))


def set_position(folder: Path, reader: str, number: int, stream: str | None = None) -> None:
    """Say for a reader that it needs the segment `number` and those before it no more.

    `stream` is the identifier of what it has read; without one it is what stands there now.
    """
    known = identified(folder)
    if stream is None:
        stream = "" if known is None else known.identifier
    fresh = folder / f".{reader}.new"
    fresh.write_text(f"{number} {stream}".rstrip() + "\n", encoding="ascii")
    fresh.replace(folder / f"{reader}{POSITION}")


def locked(path: Path) -> int:
    """Return the descriptor of a file, made if need be, that no other process has locked.

    The lock ends with the descriptor, and so with the process however that ends. Raises
    BlockingIOError if another one has it, and OSError.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def sync_folder(folder: Path) -> None:
    """Return once the names in a folder would survive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _numbered(folder: Path) -> list[tuple[int, str]]:
    matches = [SEGMENT.match(path.name) for path in folder.iterdir()]
    return sorted((int(match[1]), match[2]) for match in matches if match)
