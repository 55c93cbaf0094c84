"""A stream's segments in the order of their numbers, and which of them are missing.

Numbers are given once and without gaps (`mdserver.journal.segments`), and a segment is sealed
before the next one begins. So if a number does not exist although a later one does, its segment was
deleted or lost. Times of files and the place of the folder have no influence.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from attrs import frozen

from mdserver.journal import segments

RENAMED_MAX = 100
"""The largest number of segments that are sealed while a folder is listed."""


@frozen
class Missing:
    """A hole: the segments from `first` to `last` do not exist, although a later one does."""

    first: int
    last: int

    def __str__(self) -> str:
        if self.first == self.last:
            return f"segment {self.first} is missing"
        return f"segments {self.first} to {self.last} are missing"


def walk(folder: Path, first: int) -> Iterator[int | Missing]:
    """Yield the segments that exist from `first` on, sealed or open, and the holes before them."""
    expected = first
    for number in sorted(set(segments.numbers(folder))):
        if number < first:
            continue
        # A listing can miss a file that is renamed meanwhile, so those just before are tried.
        for near in range(max(expected, number - RENAMED_MAX), number):
            if existing(folder, near) is not None:
                if expected < near:
                    yield Missing(expected, near - 1)
                yield near
                expected = near + 1
        if expected < number:
            yield Missing(expected, number - 1)
        yield number
        expected = number + 1


def sealed(folder: Path, number: int) -> Path:
    """Return the path that a segment has when it is sealed."""
    return folder / f"seg-{number:012d}.jsonl"


def existing(folder: Path, number: int) -> Path | None:
    """Return the file of a segment, open or sealed, None if it is deleted."""
    # The open one first: a segment that is sealed in between is found by its second name.
    paths = (sealed(folder, number).with_suffix(".open"), sealed(folder, number))
    return next((path for path in paths if path.exists()), None)


def opened(folder: Path, number: int) -> BinaryIO:
    """Return the file of a segment, opened for reading.

    Raises FileNotFoundError if the segment was deleted.
    """
    for _ in range(2):
        # Looked for again after a failure: the segment may have been sealed, under another name.
        path = existing(folder, number)
        if path is None:
            break
        with contextlib.suppress(FileNotFoundError):
            return path.open("rb")
    raise FileNotFoundError(f"segment {number} of {folder} was deleted before it was read")
