"""A source for Spark that follows a stream of the journal into its open segment.

Spark's own file source takes whole files only, so a line would wait until its segment is sealed.
This source reads byte ranges. An offset is the number of a segment and a position in it, behind a
line end. It stays valid when the segment is sealed, because sealing only renames the file, and a
segment is only ever appended to. So a batch that Spark repeats after a crash reads the same bytes.
Once a segment is sealed and read to its end, the offset is the begin of the next one. So if the
segment of an offset is deleted, there may be lines in it that were not read, and it is missing.

Spark asks for `latestOffset`, writes it down, asks for the `partitions` between two offsets, reads
them in other processes, and calls `commit` when the batch is done with. Segments may be deleted at
any moment in between, by the limits of the journal. What is missing becomes a row without a value
(a hole), so a reader learns of it, and the batch goes on.
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
from mdserver.pipeline.common.numbered import Missing, opened, sealed, walk

NAME = "mdserver_journal"
READER = "derive"
"""The name under which the position in the journal is written for the server."""

COLUMNS = pa.schema(
    [
        ("value", pa.string()),
        ("src_partition", pa.int64()),
        ("src_pos", pa.int64()),
        ("last", pa.bool_()),
    ]
)
BATCH_BYTES_MAX = 32 * MB
READ_BYTES = 64 * KB
"""How much of a segment is searched for a line end at a time."""


@frozen
class SegmentRange(InputPartition):
    """Whole lines of one segment, from the position `start` to `end`, which is excluded."""

    segment: int
    start: int
    end: int


@frozen
class Hole(InputPartition):
    """A partition that stands for segments that are missing."""

    missing: Missing


class JournalTail(DataSource):
    """The source as Spark registers it; the option `path` is the folder of the stream."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `format` takes."""
        return NAME

    def schema(self) -> str:
        """Return the columns of a row, as Spark writes types.

        There is a row for each line, and one without a value for each hole, whose first and last
        segment are `src_partition` and `src_pos`. `last` is true for the last line of a range.
        """
        return "value string, src_partition bigint, src_pos bigint, last boolean"

    def streamReader(self, schema: Any) -> "TailReader":
        """Return the reader of one query."""
        return TailReader(Path(self.options["path"]))


@frozen
class Part:
    """A segment that is still to be read, from the position `begin` on."""

    number: int
    begin: int


class TailReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The offsets and ranges of one stream.

    Spark plans with one reader, and reads with copies of it in other processes. Offsets are dicts
    with the keys `segment` and `position`, since Spark keeps them as JSON.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._target: dict[str, int] | None = None
        self._told = 0
        known = segments.identified(folder)
        self._identifier = None if known is None else known.identifier

    def initialOffset(self) -> dict[str, int]:
        """Return the offset before the first line; segments are counted from 1."""
        return {"segment": 0, "position": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the bound on one batch, for a job that has much to catch up with."""
        return ReadMaxBytes(BATCH_BYTES_MAX)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note the present end of the stream, where a query with `availableNow` ends."""
        self._target = self._latest(self.initialOffset(), None)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return the offset behind the last whole line, or behind an earlier one at the limit."""
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        latest = self._latest(start, most)
        if self._target is None:
            return latest
        return min(latest, max(start, self._target, key=_order), key=_order)

    def commit(self, end: dict[str, int]) -> None:
        """Note in the journal that the segments before that of `end` are no longer needed.

        If the folder cannot be written to, only the limits of the server decide what is kept.
        """
        if end["segment"] != self._told:
            self._told = end["segment"]
            with contextlib.suppress(OSError):
                segments.set_position(self._folder, READER, self._told - 1, self._identifier)

    def partitions(
        self, start: dict[str, int], end: dict[str, int]
    ) -> Sequence[SegmentRange | Hole]:
        """Return the ranges between two offsets, one for each segment, and the holes between."""
        parts: list[SegmentRange | Hole] = []
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
                parts.append(SegmentRange(part.number, part.begin, stop))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the lines of a range; a segment that was deleted since the plan is a hole."""
        if isinstance(partition, Hole):
            yield _hole(partition.missing)
            return
        assert isinstance(partition, SegmentRange)
        try:
            with opened(self._folder, partition.segment) as file:
                file.seek(partition.start)
                block = file.read(partition.end - partition.start)
        except FileNotFoundError:
            yield _hole(Missing(partition.segment, partition.segment))
            return
        # Not `splitlines`, which also divides at characters that a line may contain. Bytes that are
        # not UTF-8 are replaced, and the checksum of the line then sets it aside.
        lines = block.decode(errors="replace").split("\n")[:-1]
        numbers = pa.repeat(pa.scalar(partition.segment, pa.int64()), len(lines))
        nothing = pa.nulls(len(lines), pa.int64())
        last = [number == len(lines) - 1 for number in range(len(lines))]
        yield pa.RecordBatch.from_arrays(
            [pa.array(lines, pa.string()), numbers, nothing, pa.array(last, pa.bool_())],
            schema=COLUMNS,
        )

    def _latest(self, start: dict[str, int], most: int | None) -> dict[str, int]:
        """Return the offset behind the whole lines after `start`, at most so many bytes of them."""
        at = start
        for part in self._parts(start):
            if isinstance(part, Missing):
                continue
            try:
                # Before its size is read: only of a sealed segment that is the last one.
                final = sealed(self._folder, part.number).exists()
                with opened(self._folder, part.number) as file:
                    size = file.seek(0, os.SEEK_END)
                    stop = size if most is None else min(size, part.begin + most)
                    end = line_end(file, part.begin, stop)
            except FileNotFoundError:
                break  # deleted since the listing, which the next call shows
            if end > part.begin:
                at = {"segment": part.number, "position": end}
            if end < size:  # the limit is reached, or a line is still being written
                break
            if final:
                at = {"segment": part.number + 1, "position": 0}
            if most is not None:
                most -= end - part.begin
        return at

    def _parts(self, start: dict[str, int]) -> Iterator[Part | Missing]:
        """Yield the segments and holes behind an offset.

        Segments before the first one that exists are no hole for a query that begins.
        """
        first = start["segment"] or min(segments.numbers(self._folder), default=0)
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
            return 1  # more than nothing, so that it is read, which shows that it is missing


def line_end(file: BinaryIO, start: int, stop: int) -> int:
    """Return the position behind the last line end between two positions, `start` without one.

    The search goes backwards, since a line end is usually near the end.
    """
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
    """Return the key by which offsets are compared."""
    return offset["segment"], offset["position"]
