"""A source for Spark that follows a journal stream into its open segment.

Spark's own file source takes whole files only, so what it sees is as old as a segment lasts. This
one reads byte ranges: an offset is a segment's number and a position behind a line end in it, which
stays true when the segment is sealed, because sealing only renames. A batch that Spark repeats
after a crash reads the same bytes.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
from attrs import frozen
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from mdserver.journal import segments
from mdserver.limits import KB, MB

NAME = "mdserver_journal"
READER = "derive"
"""Under this name it tells the server how far it is."""

COLUMNS = pa.schema([("value", pa.string()), ("src_partition", pa.int64())])
BATCH_BYTES_MAX = 32 * MB
READ_BYTES = 64 * KB
"""How much of a segment is searched for a line end at a time."""


@frozen
class Range(InputPartition):
    """Whole lines of one segment: from one position up to, without, another."""

    segment: int
    start: int
    end: int


class JournalTail(DataSource):
    """The source as Spark knows it; the option `path` is the folder of the stream."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return NAME

    def schema(self) -> str:
        """One row a line."""
        return "value string, src_partition bigint"

    def streamReader(self, schema: Any) -> "TailReader":
        """The reader of one query."""
        return TailReader(Path(self.options["path"]))


@frozen
class Part:
    """A segment of which something is still to be read, from `begin` on."""

    number: int
    begin: int


class TailReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets and ranges of one stream. Spark plans with one, and reads with copies of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._target: dict[str, int] | None = None
        self._told = 0
        known = segments.identified(folder)
        self._identifier = None if known is None else known.identifier

    def initialOffset(self) -> dict[str, int]:
        """Before the first line there is."""
        return {"segment": 0, "position": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """A bound on one batch, for a job that has much to catch up with."""
        return ReadMaxBytes(BATCH_BYTES_MAX)

    def prepareForTriggerAvailableNow(self) -> None:
        """What comes later is none of this run's business."""
        self._target = self._latest(self.initialOffset(), None)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Behind the last whole line, or behind one before the limit."""
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        latest = self._latest(start, most)
        if self._target is None:
            return latest
        return min(latest, max(start, self._target, key=_order), key=_order)

    def commit(self, end: dict[str, int]) -> None:
        """Everything before is done with: the server may delete the segments before this one."""
        if end["segment"] != self._told:
            self._told = end["segment"]
            with contextlib.suppress(OSError):
                segments.set_position(self._folder, READER, self._told - 1, self._identifier)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Range]:
        """One range a segment."""
        ranges = []
        for part in self._parts(start):
            if part.number > end["segment"]:
                break
            last = part.number == end["segment"]
            stop = end["position"] if last else self._size(part.number)
            if stop > part.begin:
                ranges.append(Range(part.number, part.begin, stop))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The lines of a range."""
        assert isinstance(partition, Range)
        with opened(self._folder, partition.segment) as file:
            file.seek(partition.start)
            block = file.read(partition.end - partition.start)
        lines = block.decode(errors="replace").split("\n")[:-1]
        numbers = pa.repeat(pa.scalar(partition.segment, pa.int64()), len(lines))
        yield pa.RecordBatch.from_arrays([pa.array(lines, pa.string()), numbers], schema=COLUMNS)

    def _latest(self, start: dict[str, int], most: int | None) -> dict[str, int]:
        at = start
        for part in self._parts(start):
            with opened(self._folder, part.number) as file:
                size = file.seek(0, os.SEEK_END)
                stop = size if most is None else min(size, part.begin + most)
                end = line_end(file, part.begin, stop)
            if end > part.begin:
                at = {"segment": part.number, "position": end}
            if end < size:
                break
            if most is not None:
                most -= end - part.begin
        return at

    def _parts(self, start: dict[str, int]) -> Iterator[Part]:
        names = (segments.SEGMENT.match(path.name) for path in self._folder.iterdir())
        numbers = [int(name[1]) for name in names if name]
        first = max(start["segment"], min(numbers, default=0))
        # A listing can miss a file that is renamed meanwhile, so numbers between are tried as well.
        for number in range(first, max(numbers, default=-1) + 1):
            if existing(self._folder, number) is not None:
                yield Part(number, start["position"] if number == start["segment"] else 0)

    def _size(self, number: int) -> int:
        with opened(self._folder, number) as file:
            return file.seek(0, os.SEEK_END)


def existing(folder: Path, number: int) -> Path | None:
    """The file of a segment, open or sealed; None where it is deleted."""
    # In this order: sealing renames the one to the other.
    paths = (folder / f"seg-{number:012d}.{state}" for state in ("open", "jsonl"))
    return next((path for path in paths if path.exists()), None)


def opened(folder: Path, number: int) -> BinaryIO:
    """A segment to read, also if it is sealed at this moment."""
    for path in (existing(folder, number), existing(folder, number)):
        with contextlib.suppress(FileNotFoundError):
            if path is not None:
                return path.open("rb")
    raise FileNotFoundError(f"segment {number} of {folder} was deleted before it was read")


def line_end(file: BinaryIO, start: int, stop: int) -> int:
    """The position behind the last line end in this range; `start` where there is none."""
    high = stop
    while high > start:
        low = max(start, high - READ_BYTES)
        file.seek(low)
        found = segments.whole_lines(file.read(high - low))
        if found:
            return low + found
        high = low
    return start


def _order(offset: dict[str, int]) -> tuple[int, int]:
    return offset["segment"], offset["position"]
