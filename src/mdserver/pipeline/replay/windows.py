"""Archived messages in the order of their commitment, with bounded memory and no JVM.

Files of the archive are sorted by subject, so each has to be read as a whole before it is known
what comes first in it. What matters is that no more than that is read before the first message is
there, and that nothing is kept in memory:

1. Delta's log says of each file which time it spans. Files are taken in the order of their first
   times, and as soon as what was taken lies before everything that was not, it is complete.
2. Rows of the files that were taken are scattered to spill files on the disk, each of a shorter
   time. Those that are not complete yet are kept for the next step.
3. A spill file that is small enough is sorted in memory: a window. A larger one is scattered again,
   so bursts make no difference. Only what was committed within one microsecond cannot be divided.

Every row is read and written a few times, whatever the size of the archive.
"""

import datetime as dt
import itertools
import math
import tempfile
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
from mdserver.pipeline.common import schema
from mdserver.pipeline.common.tables import opened

WINDOW_BYTES = 8 * MB
"""What a window takes in memory at most; sorting needs as much again."""
WINDOW_ROWS = 20_000
SPILLS_MAX = 64
"""Spill files that are written at a time: each is an open file."""
READ_BYTES = 4 * MB
"""How much of a file's rows is decoded at a time."""
READ_ROWS = 8_192
COLUMNS = [
    *("ts_server", "subject", "epoch", "seq", "content", "text", "compressed", "fields"),
    *("closure", "retained", "qos", "reply_subject"),
]
ROW = pa.schema([schema.TABLES["messages"].field(name) for name in COLUMNS])
ORDER = [(name, "ascending") for name in ("ts_server", "subject", "epoch", "seq")]
EARLIEST, LATEST = -(2**62), 2**62
CUT_US = 999
"""Delta's log may have the last time of a file in milliseconds, and less than it is."""
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICROSECOND = dt.timedelta(microseconds=1)


@frozen
class Selection:
    """Which messages: a subject or pattern, and times of commitment (us), the end excluded."""

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
        """Return a selection by moments; those without a time zone are UTC."""
        us = [None if each is None else _us(each) for each in (start, end)]
        return cls(
            subject,
            EARLIEST if us[0] is None else us[0],
            LATEST if us[1] is None else us[1],
        )

    def takes(self, subject: str) -> bool:
        """Whether messages about this subject are chosen."""
        if self._pattern is None:
            return subject == self.subject
        return self._pattern.matches(segments_of(subject))

    def may_be_in(self, least: str | None, greatest: str | None) -> bool:
        """Whether something chosen may have a subject between these; None is not known."""
        if self._pattern is not None:
            return True
        return (least or "") <= self.subject and (greatest is None or self.subject <= greatest)


@frozen
class File:
    """A file of the table, how many rows it has, and which times (us) they span."""

    path: Path
    rows: int
    first: int
    last: int


def windows(
    tables: Path, selection: Selection, window_bytes: int = WINDOW_BYTES
) -> Iterator[pa.Table]:
    """Yield everything chosen, in tables that follow each other and are sorted themselves."""
    waiting = deque(files(tables, selection))
    held: Spill | None = None
    with tempfile.TemporaryDirectory(prefix="mdserver-replay-") as name:
        spills = Spills(Path(name))
        while waiting or held is not None:
            parts: list[File | Spill] = list(_together(waiting))
            parts += [held] if held is not None else []
            # From here on rows may follow that are in files which were not taken.
            limit = waiting[0].first if waiting else LATEST
            first = min(part.first for part in parts)
            end = min(limit, max(part.last for part in parts) + 1)
            count = math.ceil(sum(part.rows for part in parts) / WINDOW_ROWS)
            batches = itertools.chain(*(_batches(part, selection) for part in parts))
            *ready, held = spills.scatter(batches, [*_edges(first, end, count), end])
            for spill in ready:
                yield from _sorted(spills, spill, window_bytes)


def files(tables: Path, selection: Selection) -> list[File]:
    """Return the files that may have something chosen, by their first times."""
    found = []
    for action in pa.table(opened(tables, "messages").get_add_actions(flatten=True)).to_pylist():
        first, last = action.get("min.ts_server"), action.get("max.ts_server")
        file = File(
            tables / "messages" / action["path"],
            action["num_records"],
            EARLIEST if first is None else _us(first),
            LATEST if last is None else _us(last) + CUT_US,
        )
        of_times = file.first < selection.end and file.last >= selection.start
        if of_times and selection.may_be_in(action.get("min.subject"), action.get("max.subject")):
            found.append(file)
    return sorted(found, key=lambda file: (file.first, file.path))


def _together(waiting: deque[File]) -> Iterator[File]:
    """Take the first file, and those that begin before half of the time that is taken is over.

    Files that cover the same time are so read once; of files that follow each other, whose times
    touch, only the first one is taken.
    """
    if waiting:
        taken = waiting.popleft()
        first, last = taken.first, taken.last
        yield taken
        while waiting and waiting[0].first <= first + (last - first) // 2:
            last = max(last, waiting[0].last)
            yield waiting.popleft()


def _batches(part: "File | Spill", selection: Selection) -> Iterator[pa.RecordBatch]:
    return part.read() if isinstance(part, Spill) else _chosen(part, selection)


def _chosen(file: File, selection: Selection) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file that are chosen, a few at a time."""
    with pq.ParquetFile(file.path) as opened_:
        there = [name for name in COLUMNS if name in opened_.schema_arrow.names]
        for number in range(opened_.metadata.num_row_groups):
            group = opened_.metadata.row_group(number)
            rows = max(
                1, min(READ_ROWS, group.num_rows * READ_BYTES // max(1, group.total_byte_size))
            )
            for batch in opened_.iter_batches(rows, row_groups=[number], columns=there):
                times = _times(batch)
                mask = (times >= selection.start) & (times < selection.end)
                subjects = pc.dictionary_encode(batch["subject"])
                named = [selection.takes(each) for each in subjects.dictionary.to_pylist()]
                mask &= np.array(named, bool)[subjects.indices.to_numpy()]
                if mask.any():
                    yield _row(batch.filter(pa.array(mask)))


def _row(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with all columns: a file of an earlier release may lack some."""
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
    """Rows that wait on the disk, in no order. `first` and `last` are their times (us)."""

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
        """Say that there are no more rows."""
        assert self._writer is not None
        self._writer.close()

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, and remove them from the disk."""
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

        There is None in place of a spill without rows.
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
    # At least two: the first row is before, and the last one behind, the middle.
    count = max(2, math.ceil(2 * spill.bytes / window_bytes))
    for smaller in spills.scatter(spill.read(), _edges(spill.first, spill.last + 1, count)):
        yield from _sorted(spills, smaller, window_bytes)


def _edges(first: int, end: int, count: int) -> list[int]:
    """Return the times that divide a span into so many parts of equal length, or fewer."""
    count = min(count, SPILLS_MAX)
    return sorted({first + (end - first) * part // count for part in range(1, count)})


def _times(batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
    times: np.ndarray[Any, np.dtype[np.int64]] = batch["ts_server"].cast(pa.int64()).to_numpy()
    return times


def _us(moment: dt.datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return (aware - EPOCH) // MICROSECOND
