"""The sealed segments of one stream, in a journal's folder or in an object store.

The archive goes by their numbers (`mdserver.pipeline.common.numbered`), wherever they are.
"""

import contextlib
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from attrs import frozen

from mdserver.pipeline.common import holes, shipped, temporary
from mdserver.pipeline.common.numbered import Missing, sealed, walk
from mdserver.pipeline.common.object_store import FolderStore
from mdserver.pipeline.common.shipped import ShippedStream

MARK_BYTES = 64 << 10
"""How much of a segment's end is in its mark."""


class StreamSegments(Protocol):
    """The segments of a stream. `mark` and `paths` raise FileNotFoundError if one is not there."""

    def walk(self, first: int) -> "Iterator[Listed | Missing]":
        """Yield the segments from `first` on, and the holes before them.

        The last one may not be sealed yet.
        """

    def exists(self, number: int) -> bool:
        """Return whether a segment is there, and sealed."""

    def mark(self, number: int) -> str:
        """Return a text that tells a segment from another one of the same number."""

    def member(self, number: int) -> str:
        """Return the member that wrote a segment, "" if that is not known."""

    def paths(self, numbers: Sequence[int]) -> contextlib.AbstractContextManager[list[str]]:
        """Give the paths under which Spark reads these segments, until the end of the block."""


@frozen
class Listed:
    """A segment; `size_bytes` is None if it is not sealed."""

    number: int
    size_bytes: int | None


@frozen
class FolderSegments:
    """The segments in the folder of a journal's stream, which may be written to meanwhile."""

    folder: Path

    def walk(self, first: int) -> Iterator[Listed | Missing]:
        """Yield the segments from `first` on, and the holes before them."""
        for found in walk(self.folder, first):
            if isinstance(found, Missing):
                yield found
                continue
            try:
                yield Listed(found, sealed(self.folder, found).stat().st_size)
            except FileNotFoundError:
                yield Listed(found, None)  # or deleted since, which the next call shows

    def exists(self, number: int) -> bool:
        """Return whether a segment is there, and sealed."""
        return sealed(self.folder, number).exists()

    def mark(self, number: int) -> str:
        """Return size and checksum of a segment's end."""
        return _mark(*self._end(number))

    def member(self, number: int) -> str:
        """Return the member that wrote a segment, "" if that is not known."""
        return _member(self._end(number)[1])

    @contextlib.contextmanager
    def paths(self, numbers: Sequence[int]) -> Iterator[list[str]]:
        """Give the paths of segments."""
        yield [str(sealed(self.folder, number)) for number in numbers]

    def _end(self, number: int) -> tuple[int, bytes]:
        with sealed(self.folder, number).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - MARK_BYTES))
            return size, file.read()


@frozen
class StoredSegments:
    """The segments of a stream in an object store: all of them are sealed.

    With `remote` Spark reads them from there, on executors that may be anywhere. Otherwise they are
    copied for each batch into a folder for temporary files, so Spark needs no jars for the store.
    """

    source: ShippedStream
    remote: bool = False

    def walk(self, first: int) -> Iterator[Listed | Missing]:
        """Yield the segments from `first` on, and the holes before them."""
        sizes = self.source.sizes(first)
        if len(sizes) <= max(sizes, default=first - 1) - first:
            # A list is made while segments are added, so it may lack one and have a later one.
            # They are added in order: a second list, up to the last number of the first one, does
            # not lack any that exists.
            last = max(sizes)
            again = self.source.sizes(first)
            sizes = {number: size for number, size in again.items() if number <= last}
        expected = first
        for number in sorted(sizes):
            if expected < number:
                yield Missing(expected, number - 1)
            yield Listed(number, sizes[number])
            expected = number + 1

    def exists(self, number: int) -> bool:
        """Return whether a segment is there."""
        try:
            self.source.store.tail(self._name(number), 1)
        except FileNotFoundError:
            return False
        return True

    def mark(self, number: int) -> str:
        """Return size and checksum of a segment's end."""
        return _mark(*self._end(number))

    def member(self, number: int) -> str:
        """Return the member that wrote a segment, "" if that is not known."""
        return _member(self._end(number)[1])

    @contextlib.contextmanager
    def paths(self, numbers: Sequence[int]) -> Iterator[list[str]]:
        """Give the paths of segments, or of copies of them."""
        if self.remote:
            yield [f"{self.source.store.uri}/{self._name(number)}" for number in numbers]
            return
        with temporary.folder("archive") as folder:
            found = []
            for number in numbers:
                path = sealed(folder, number)
                self.source.store.fetch(self._name(number), path)
                found.append(str(path))
            yield found

    def _end(self, number: int) -> tuple[int, bytes]:
        return self.source.store.tail(self._name(number), MARK_BYTES)

    def _name(self, number: int) -> str:
        return shipped.name_of(self.source.stream, self.source.identifier, number)


def of_shipped(source: ShippedStream, *, remote: bool = False) -> StreamSegments:
    """Return the segments of a stream that was shipped."""
    if isinstance(source.store, FolderStore):
        return FolderSegments(source.store.path / source.folder)
    return StoredSegments(source, remote)


def _member(end: bytes) -> str:
    return holes.member_of(reversed(end.splitlines()))


def _mark(size: int, end: bytes) -> str:
    return f"{size}-{zlib.crc32(end):08x}"
