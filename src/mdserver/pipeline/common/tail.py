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
from mdserver.pipeline.common.numbered import Missing, existing, opened, walk

NAME = "mdserver_journal"
READER = "derive"
"""Under this name it tells the server how far it is."""

COLUMNS = pa.schema(
    [("value", pa.string()), ("src_partition", pa.int64()), ("src_pos", pa.int64())]
)
BATCH_BYTES_MAX = 32 * MB
READ_BYTES = 64 * KB
"""How much of a segment is searched for a line end at a time."""


@frozen
class Range(InputPartition):
    """Whole lines of one segment: from one position up to, without, another."""

    segment: int
    start: int
    end: int


@frozen
class Hole(InputPartition):
    """Segments that are missing."""

    missing: Missing


class JournalTail(DataSource):
    """The source as Spark knows it; the option `path` is the folder of the stream."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return NAME

    def schema(self) -> str:
        """One row a line, and one without a value for each hole: its first and last segment."""
        return "value string, src_partition bigint, src_pos bigint"

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

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Range | Hole]:
        """One range a segment, and the holes between."""
        parts: list[Range | Hole] = []
        for part in self._parts(start):
            if isinstance(part, Missing):
                if part.last < end["segment"]:
                    parts.append(Hole(part))
                continue
            if part.number > end["segment"]:
                break
            last = part.number == end["segment"]
            stop = end["position"] if last else self._size(part.number)
            if stop > part.begin:
                parts.append(Range(part.number, part.begin, stop))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The lines of a range; what was deleted since it was planned is a hole."""
        if isinstance(partition, Hole):
            yield _hole(partition.missing)
            return
        assert isinstance(partition, Range)
        try:
            with opened(self._folder, partition.segment) as file:
                file.seek(partition.start)
                block = file.read(partition.end - partition.start)
        except FileNotFoundError:
            yield _hole(Missing(partition.segment, partition.segment))
            return
        lines = block.decode(errors="replace").split("\n")[:-1]
        numbers = pa.repeat(pa.scalar(partition.segment, pa.int64()), len(lines))
        nothing = pa.nulls(len(lines), pa.int64())
        yield pa.RecordBatch.from_arrays(
            [pa.array(lines, pa.string()), numbers, nothing], schema=COLUMNS
        )

    def _latest(self, start: dict[str, int], most: int | None) -> dict[str, int]:
        at = start
        for part in self._parts(start):
            if isinstance(part, Missing):
                continue
            try:
                with opened(self._folder, part.number) as file:
                    size = file.seek(0, os.SEEK_END)
                    stop = size if most is None else min(size, part.begin + most)
                    end = line_end(file, part.begin, stop)
            except FileNotFoundError:
                break  # deleted just now, which the next look shows
            if end > part.begin:
                at = {"segment": part.number, "position": end}
            if end < size:
                break
            if most is not None:
                most -= end - part.begin
        return at

    def _parts(self, start: dict[str, int]) -> Iterator[Part | Missing]:
        """What is behind an offset. Before its first line a stream lacks nothing.

        Of the segment of an offset nobody knows whether it had more, once it is deleted.
        """
        first = start["segment"]
        if not first:
            first = min(segments.numbers(self._folder), default=0)
        elif existing(self._folder, first) is None:
            first += 1
        for found in walk(self._folder, first):
            if isinstance(found, Missing):
                yield found
            else:
                yield Part(found, start["position"] if found == start["segment"] else 0)

    def _size(self, number: int) -> int:
        try:
            with opened(self._folder, number) as file:
                return file.seek(0, os.SEEK_END)
        except FileNotFoundError:
            return 1  # reading it shows that it is not there


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


def _hole(missing: Missing) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"src_partition": missing.first, "src_pos": missing.last}], schema=COLUMNS
    )


def _order(offset: dict[str, int]) -> tuple[int, int]:
    return offset["segment"], offset["position"]
