"""A stream's segments in the order of their numbers, and which of them are missing.

Numbers are given once and without gaps (`mdserver.journal.segments`), and a segment is sealed
before the next one begins. So a number that is not there although a later one is was deleted, or
lost. What the file system says of times, and where the folder is, has no influence.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from attrs import frozen

from mdserver.journal import segments

RENAMED_MAX = 100
"""How many segments at most are sealed while a folder is listed."""


@frozen
class Missing:
    """Segments that are not there, although a later one is."""

    first: int
    last: int

    def __str__(self) -> str:
        if self.first == self.last:
            return f"segment {self.first} is missing"
        return f"segments {self.first} to {self.last} are missing"


def walk(folder: Path, first: int) -> Iterator[int | Missing]:
    """The numbers from `first` on that are there, sealed or open, and each hole before the next."""
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
    """The path of a segment that is sealed."""
    return folder / f"seg-{number:012d}.jsonl"


def existing(folder: Path, number: int) -> Path | None:
    """The file of a segment, open or sealed; None where it is deleted."""
    # In this order: sealing renames the one to the other.
    paths = (sealed(folder, number).with_suffix(".open"), sealed(folder, number))
    return next((path for path in paths if path.exists()), None)


def opened(folder: Path, number: int) -> BinaryIO:
    """A segment to read, also if it is sealed at this moment. Raises FileNotFoundError."""
    for path in (existing(folder, number), existing(folder, number)):
        with contextlib.suppress(FileNotFoundError):
            if path is not None:
                return path.open("rb")
    raise FileNotFoundError(f"segment {number} of {folder} was deleted before it was read")
