"""Segment files of one stream: appended to, sealed, listed, deleted.

A stream is a folder. Lines go to `seg-N.open`; when the segment is large or old enough it is sealed
by a rename to `seg-N.jsonl`, which never changes again: readers that want whole files (Spark's
file source) take only sealed ones. N is a count with twelve digits, so names sort by age. There is
one writer a folder, which a lock on the file `writer.lock` makes sure of.

Everything here blocks; `mdserver.journal.writer` calls it from a thread.
"""

import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from attrs import frozen

from mdserver.errors import MdserverError

SEGMENT = re.compile(r"seg-(\d{12})\.(open|jsonl)\Z")


class JournalError(MdserverError):
    """The journal's folder cannot be used; the message is one line that says why."""


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


class StreamWriter:
    """The one writer of a stream. Not safe for several threads at a time."""

    def __init__(self, folder: Path, segment_bytes_max: int) -> None:
        self._folder = folder
        self._bytes_max = segment_bytes_max
        self._lock = self._locked()
        self.repair = Repair(0, 0)
        self._number = self._seal_leftovers()
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
        that was there before.
        """
        if self._file < 0:
            self._open_next()
        block = b"".join([part for line in lines for part in (line, b"\n")])
        try:
            self._write_all(block)
        except OSError:
            os.ftruncate(self._file, self._size)
            os.lseek(self._file, self._size, os.SEEK_SET)
            raise
        self._size += len(block)
        if self._size >= self._bytes_max:
            self.seal()

    def sync(self) -> None:
        """Return once everything appended so far would survive a power cut."""
        if self._file >= 0:
            os.fdatasync(self._file)

    def seal(self) -> None:
        """Make the open segment final; does nothing when it is empty or there is none."""
        if self._file < 0 or not self._size:
            return
        os.fsync(self._file)
        os.close(self._file)
        self._file, self._size = -1, 0
        self._rename_sealed(self._number)

    def close(self) -> None:
        """Seal, and let another writer have the folder."""
        self.seal()
        if self._file >= 0:
            os.close(self._file)
            self._path(self._number, "open").unlink()
            self._file = -1
        os.close(self._lock)

    def _locked(self) -> int:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(
                self._folder / "writer.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise JournalError(f"{self._folder}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise JournalError(
                f"{self._folder}: another process writes this journal; give each member its own"
            ) from error
        return lock

    def _seal_leftovers(self) -> int:
        """Cut torn lines off segments that a crash left open and seal them; the last number."""
        last = 0
        for number, state in _numbered(self._folder):
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
        else:
            path.unlink()

    def _open_next(self) -> None:
        self._number += 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(self._path(self._number, "open"), flags, 0o640)
        self._size = 0

    def _write_all(self, block: bytes) -> None:
        view = memoryview(block)
        while view:
            view = view[os.write(self._file, view) :]

    def _rename_sealed(self, number: int) -> None:
        self._path(number, "open").rename(self._path(number, "jsonl"))
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _path(self, number: int, state: str) -> Path:
        return self._folder / f"seg-{number:012d}.{state}"


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


def delete(segments: Iterable[Segment]) -> None:
    """Delete sealed segments; one that is gone already is no error."""
    for segment in segments:
        segment.path.unlink(missing_ok=True)


def _numbered(folder: Path) -> list[tuple[int, str]]:
    matches = [SEGMENT.match(path.name) for path in folder.iterdir()]
    return sorted((int(match[1]), match[2]) for match in matches if match)
