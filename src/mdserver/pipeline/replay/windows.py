"""Archived messages in the order of their commitment, with bounded memory and no JVM.

Files of the archive are sorted by subject, so a file has to be read as a whole before its first
message by time is known. The messages of a file are therefore sorted on the disk, a few files at a
time, so that the first message is there before the whole archive is read:

1. Delta's log has the span of time of each file. Files are taken in the order of their first times.
   The rows of those that were taken are complete up to the first time of the next file that was
   not.
2. Rows of the files that were taken are scattered to spill files on the disk, each of a shorter
   span. Rows that are not complete yet are held for the next step.
3. A spill file that is small enough is sorted in memory, and is a window. A larger one is scattered
   again, so bursts make no difference. Only rows of the same microsecond cannot be divided.

Each row is read and written a few times, whatever the size of the archive.
"""

import datetime as dt
import itertools
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from attrs import define, field, frozen

from mdserver.core.subjects import Pattern, parse_interest, segments_of
from mdserver.limits import MB
from mdserver.pipeline.common import places, schema, temporary
from mdserver.pipeline.common.places import Tables
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.spark_errors import reason_of
from mdserver.pipeline.common.tables import opened

WINDOW_BYTES = 8 * MB
"""The most memory that a window takes; sorting needs as much again."""
WINDOW_ROWS = 20_000
SPILLS_MAX = 64
"""The most spill files that are written at a time; each is an open file."""
READ_BYTES = 4 * MB
"""How many bytes of a file's rows are decoded at a time."""
READ_ROWS = 8_192
COLUMNS = [
    *("ts_server", "subject", "epoch", "seq", "content", "text", "compressed", "fields"),
    *("closure", "retained", "qos", "reply_subject"),
]
ROW = pa.schema([schema.TABLES["messages"].field(name) for name in COLUMNS])
ORDER = [(name, "ascending") for name in ("ts_server", "subject", "epoch", "seq")]
EARLIEST, LATEST = -(2**62), 2**62
CUT_US = 999
"""Added to the last time of a file: Delta's log may have it cut to milliseconds."""
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICROSECOND = dt.timedelta(microseconds=1)


@frozen
class Selection:
    """The messages to read: a subject or pattern, and times of commitment (us), the end excluded.

    Raises InvalidSubjectError if the text is neither a subject nor a pattern.
    """

    subject: str
    start: int = EARLIEST
    end: int = LATEST
    _pattern: Pattern | None = field(init=False)

    @_pattern.default
    def _parse(self) -> Pattern | None:
        return parse_interest(self.subject)

    @classmethod
    def between(
        cls, subject: str, start: dt.datetime | None = None, end: dt.datetime | None = None
    ) -> "Selection":
        """Return a selection by moments, None for no bound; those without a time zone are UTC."""
        us = [None if each is None else _us(each) for each in (start, end)]
        return cls(
            subject,
            EARLIEST if us[0] is None else us[0],
            LATEST if us[1] is None else us[1],
        )

    def takes(self, subject: str) -> bool:
        """Return whether messages of this subject are chosen."""
        if self._pattern is None:
            return subject == self.subject
        return self._pattern.matches(segments_of(subject))

    def may_be_in(self, least: str | None, greatest: str | None) -> bool:
        """Return whether a subject between these may be chosen; a bound of None is unknown."""
        if self._pattern is not None:
            return True
        return (least or "") <= self.subject and (greatest is None or self.subject <= greatest)


@frozen
class WindowFile:
    """A file of the table, the number of its rows, and their first and last time (us).

    The path is relative to the table.
    """

    path: str
    rows: int
    first: int
    last: int


def windows(
    tables: Tables, selection: Selection, window_bytes: int = WINDOW_BYTES
) -> Iterator[pa.Table]:
    """Yield all chosen messages, in tables that follow each other and are sorted themselves.

    Spill files are in the system's folder for temporary files, and are removed in the end. Raises
    PipelineError if the archive has no messages.
    """
    waiting = deque(files(tables, selection))
    held: Spill | None = None
    with temporary.folder("replay") as folder:
        spills = Spills(folder)
        while waiting or held is not None:
            parts: list[WindowFile | Spill] = list(_together(waiting))
            parts += [held] if held is not None else []
            # Files that were not taken may have rows from this time on.
            limit = waiting[0].first if waiting else LATEST
            first = min(part.first for part in parts)
            end = min(limit, max(part.last for part in parts) + 1)
            count = math.ceil(sum(part.rows for part in parts) / WINDOW_ROWS)
            batches = itertools.chain(*(_batches(tables, part, selection) for part in parts))
            # The last spill has what is not complete: everything from `end` on.
            *ready, held = spills.scatter(batches, [*_edges(first, end, count), end])
            for spill in ready:
                yield from _sorted(spills, spill, window_bytes)


def files(tables: Tables, selection: Selection) -> list[WindowFile]:
    """Return the files that may have chosen messages, in the order of their first times."""
    found = []
    for action in pa.table(opened(tables, "messages").get_add_actions(flatten=True)).to_pylist():
        first, last = action.get("min.ts_server"), action.get("max.ts_server")
        file = WindowFile(
            action["path"],
            action["num_records"],
            EARLIEST if first is None else _us(first),
            LATEST if last is None else _us(last) + CUT_US,
        )
        of_times = file.first < selection.end and file.last >= selection.start
        if of_times and selection.may_be_in(action.get("min.subject"), action.get("max.subject")):
            found.append(file)
    return sorted(found, key=lambda file: (file.first, file.path))


def _together(waiting: deque[WindowFile]) -> Iterator[WindowFile]:
    """Take the first file, and those that begin in the first half of the time that is taken.

    So files that cover the same time are scattered together. Of files that follow each other, with
    times that only touch, just the first one is taken, and its messages are ready early.
    """
    if waiting:
        taken = waiting.popleft()
        first, last = taken.first, taken.last
        yield taken
        while waiting and waiting[0].first <= first + (last - first) // 2:
            last = max(last, waiting[0].last)
            yield waiting.popleft()


def _batches(
    tables: Tables, part: "WindowFile | Spill", selection: Selection
) -> Iterator[pa.RecordBatch]:
    return part.read() if isinstance(part, Spill) else _chosen(tables, part, selection)


def _chosen(tables: Tables, file: WindowFile, selection: Selection) -> Iterator[pa.RecordBatch]:
    """Yield the chosen rows of a file, a few at a time.

    Of tables in an object store the file is copied, and the copy is there only meanwhile. Raises
    PipelineError if the file is missing or damaged.
    """
    with places.readable(tables, "messages", [file.path]) as (path,):
        try:
            yield from _chosen_of(path, selection)
        except FileNotFoundError:
            raise PipelineError(
                f"{path} is missing, which the table `messages` names: was it deleted by a"
                " compaction more than a week after this began, or by other means?"
            ) from None
        except (pa.ArrowInvalid, OSError) as error:
            raise PipelineError(f"{path} cannot be read: {reason_of(error)}") from error


def _chosen_of(path: str, selection: Selection) -> Iterator[pa.RecordBatch]:
    """Yield the chosen rows of a Parquet file.

    The number of rows follows from their average size, so that a batch has about `READ_BYTES`.
    """
    with pq.ParquetFile(path) as opened_:
        there = [name for name in COLUMNS if name in opened_.schema_arrow.names]
        for number in range(opened_.metadata.num_row_groups):
            group = opened_.metadata.row_group(number)
            rows = max(
                1, min(READ_ROWS, group.num_rows * READ_BYTES // max(1, group.total_byte_size))
            )
            for batch in opened_.iter_batches(rows, row_groups=[number], columns=there):
                times = _times(batch)
                mask = (times >= selection.start) & (times < selection.end)
                # Rows are sorted by subject, so a batch has few; each is compared once.
                subjects = pc.dictionary_encode(batch["subject"])
                named = [selection.takes(each) for each in subjects.dictionary.to_pylist()]
                mask &= np.array(named, bool)[subjects.indices.to_numpy()]
                if mask.any():
                    yield _row(batch.filter(pa.array(mask)))


def _row(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with all columns, null if a file of an earlier release lacks them."""
    names = batch.schema.names
    return pa.RecordBatch.from_arrays(
        [
            batch[each.name].cast(each.type)
            if each.name in names
            else pa.nulls(len(batch), each.type)
            for each in ROW
        ],
        schema=ROW,
    )


@define
class Spill:
    """Rows on the disk, in no order. `first` and `last` are the bounds of their times (us)."""

    _path: Path
    rows: int = 0
    bytes: int = 0
    first: int = LATEST
    last: int = EARLIEST
    _writer: pa.ipc.RecordBatchStreamWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        if self._writer is None:
            self._writer = pa.ipc.new_stream(str(self._path), ROW)
        self._writer.write_batch(batch)
        times = _times(batch)
        self.rows += len(batch)
        self.bytes += batch.nbytes
        self.first = min(self.first, int(times.min()))
        self.last = max(self.last, int(times.max()))

    def close(self) -> None:
        """End the file, which gets no more rows."""
        assert self._writer is not None
        self._writer.close()

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, then remove them from the disk."""
        with pa.ipc.open_stream(pa.OSFile(str(self._path))) as reader:
            yield from reader
        self._path.unlink()


@define
class Spills:
    """A folder of spill files."""

    _folder: Path
    _count: int = 0

    def scatter(
        self, batches: Iterable[pa.RecordBatch], edges: Sequence[int]
    ) -> list[Spill | None]:
        """Write rows to the spill of their time: before the first edge, between two, or behind.

        Returns the spills in the order of their times, one more than there are edges, with None
        for a spill without rows. A row at the time of an edge is behind it.
        """
        found: list[Spill | None] = [None] * (len(edges) + 1)
        for batch in batches:
            places = np.searchsorted(np.array(edges), _times(batch), side="right")
            for place in np.unique(places):
                spill = found[place] = found[place] or self._new()
                spill.write(batch.filter(pa.array(places == place)))
        for written in found:
            if written is not None:
                written.close()
        return found

    def _new(self) -> Spill:
        self._count += 1
        return Spill(self._folder / f"{self._count}.arrow")


def _sorted(spills: Spills, spill: Spill | None, window_bytes: int) -> Iterator[pa.Table]:
    """Yield the rows of a spill in order, in windows of so many bytes at most."""
    if spill is None:
        return
    if spill.bytes <= window_bytes or spill.first == spill.last:
        yield pa.Table.from_batches(spill.read(), ROW).sort_by(ORDER)
        return
    # At least two: the first row is before the middle and the last one behind it, so that each part
    # is smaller than the whole and this ends.
    count = max(2, math.ceil(2 * spill.bytes / window_bytes))
    for smaller in spills.scatter(spill.read(), _edges(spill.first, spill.last + 1, count)):
        yield from _sorted(spills, smaller, window_bytes)


def _edges(first: int, end: int, count: int) -> list[int]:
    """Return the times that divide a span into `count` parts of equal length.

    There are fewer parts if the span is short, or if `count` exceeds `SPILLS_MAX`.
    """
    count = min(count, SPILLS_MAX)
    return sorted({first + (end - first) * part // count for part in range(1, count)})


def _times(batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
    times: np.ndarray[Any, np.dtype[np.int64]] = batch["ts_server"].cast(pa.int64()).to_numpy()
    return times


def _us(moment: dt.datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return (aware - EPOCH) // MICROSECOND
