"""Whether a batch of one journal may have messages that come twice, found without comparing rows.

A member that was killed may write a row a second time. Nearly no batch has such a row, and to
compare the rows of each batch, as for several journals (`one_row`), takes much longer than this.

A journal has the messages of a subject in the order of their seqs, so each written file of a batch
has a range of seqs of a subject and an epoch, and no two files, of the batch or of the table, have
ranges that overlap. Within a file rows are sorted by subject, epoch and seq, so equal ones are
neighbours. If ranges overlap or neighbours are equal, rows may repeat, and are compared.
"""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from attrs import define, field

from mdserver.pipeline.common import places
from mdserver.pipeline.common import tables as archive
from mdserver.pipeline.common.places import Tables

PLACE = ["subject", "epoch", "seq"]
KEY = ["subject", "epoch"]


@define
class WrittenRanges:
    """The ranges of seqs in the files of a batch, and the time span of its publications."""

    _ranges: list[pa.Table] = field(factory=list)
    _equal: bool = False
    _first: dt.datetime | None = None
    _last: dt.datetime | None = None
    _untimed: bool = False
    """Whether a row has no time of publication, which a line need not have."""

    def add(self, files: Sequence[Path]) -> None:
        """Add files that were written."""
        for file in files:
            rows = _placed(str(file), [*PLACE, "ts_pub"])
            if not len(rows):
                continue
            self._equal = self._equal or _has_equal_neighbours(rows)
            self._ranges.append(_ranges(rows))
            self._untimed = self._untimed or rows["ts_pub"].null_count > 0
            span = pc.min_max(rows["ts_pub"]).as_py()
            if span["min"] is not None:
                self._first = min(self._first or span["min"], span["min"])
                self._last = max(self._last or span["max"], span["max"])

    def may_repeat(self, tables: Tables) -> bool:
        """Return whether a row may be there twice, in these files or in one of the table."""
        if self._equal or _overlap(self._ranges):
            return True
        if not self._ranges:
            return False
        span = None if self._untimed else {"ts_pub": (self._first, self._last)}
        # One at a time: ranges of the table's files may overlap, as members' journals do.
        written = _joined(self._ranges)
        for path in archive.files_within(tables, "messages", span):
            with places.readable(tables, "messages", [path]) as (copy,):
                there = _ranges(_placed(copy, PLACE))
            if _overlap([written, there]):
                return True
        return False


def _placed(path: str, columns: list[str]) -> pa.Table:
    """Return the rows of a file that have a place."""
    rows = pq.read_table(path, columns=columns, partitioning=None)
    return rows.filter(pc.field("seq") > 0)


def _has_equal_neighbours(rows: pa.Table) -> bool:
    """Return whether two rows that follow each other have the same place."""
    if len(rows) < 2:
        return False
    same = None
    for name in ("seq", "epoch", "subject"):
        column = rows[name].combine_chunks()
        equal = pc.equal(column.slice(1), column.slice(0, len(rows) - 1))
        same = equal if same is None else pc.and_(same, equal)
        if not pc.any(same).as_py():
            return False
    return True


def _ranges(rows: pa.Table) -> pa.Table:
    """Return the least and the greatest seq of each subject and epoch."""
    found = rows.group_by(KEY).aggregate([("seq", "min"), ("seq", "max")])
    return found.select([*KEY, "seq_min", "seq_max"])


def _joined(ranges: Sequence[pa.Table]) -> pa.Table:
    """Return one range of seqs for each subject and epoch, over all files."""
    rows = pa.concat_tables(ranges)
    found = rows.group_by(KEY).aggregate([("seq_min", "min"), ("seq_max", "max")])
    return found.select([*KEY, "seq_min_min", "seq_max_max"]).rename_columns(
        [*KEY, "seq_min", "seq_max"]
    )


def _overlap(ranges: Sequence[pa.Table]) -> bool:
    """Return whether two files have ranges of one subject and epoch that overlap."""
    if len(ranges) < 2:
        return False
    rows = pa.concat_tables(ranges).sort_by([(name, "ascending") for name in (*KEY, "seq_min")])
    subject, epoch = (rows[name].combine_chunks() for name in KEY)
    # Of ranges in the order of their begins, two that overlap have a pair of neighbours between
    # them that overlaps too.
    last = len(rows) - 1
    same = pc.and_(
        pc.equal(subject.slice(1), subject.slice(0, last)),
        pc.equal(epoch.slice(1), epoch.slice(0, last)),
    ).to_numpy(zero_copy_only=False)
    begins = rows["seq_min"].to_numpy()[1:]
    ends = rows["seq_max"].to_numpy()[:last]
    return bool(np.any(same & (begins <= ends)))
