"""Parquet files that Spark wrote, as actions of a Delta log: partition, rows and statistics.

The log has the least and the greatest value of each column of a file, so readers open only files
that may have what they look for (Delta Lake protocol, "Per-file Statistics"). Bounds may therefore
be wider than the values, but never narrower: a reader would miss rows.
"""

import datetime as dt
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction

TEXT_CHARACTERS_MAX = 64
"""Only so many characters of a longer text are in the log."""
GREATEST = "\U0010ffff"
TEXT_MAX = GREATEST * TEXT_CHARACTERS_MAX * 2

NUMBER_MAX = sys.float_info.max
WIDEST: dict[str, tuple["Value", "Value"]] = {
    "BYTE_ARRAY": ("", TEXT_MAX),
    "DOUBLE": (-NUMBER_MAX, NUMBER_MAX),
}
"""Bounds of all values of a physical type, for columns without bounds of their own: Spark leaves
them out of long texts, and of numbers with NaN among them."""

Found = bool | int | float | str | dt.datetime
Value = bool | int | float | str


def add_actions(
    folder: Path, staged: str, partitions: Sequence[str], *, data_change: bool = True
) -> tuple[list[AddAction | RemoveAction], int]:
    """Return the actions that add the files below `staged`, and the number of their rows.

    `folder` is the table's, and `staged` is relative to it. Files without rows are left out.
    """
    adds: list[AddAction | RemoveAction] = []
    total = 0
    for path in sorted((folder / staged).rglob("*.parquet")):
        metadata = pq.read_metadata(path)
        if not metadata.num_rows:
            continue
        stat = path.stat()
        told = statistics(path, metadata)
        named = dict(part.split("=", 1) for part in path.parent.relative_to(folder / staged).parts)
        # Spark escapes partition values in names of folders. The log has the value without escapes,
        # and the path as it is on the disk.
        values = {name: unquote(named[name]) for name in partitions}
        adds.append(
            AddAction(
                str(path.relative_to(folder)),
                stat.st_size,
                values,
                stat.st_mtime_ns // 1_000_000,
                data_change,
                # deltalake misreads JSON escapes of characters beyond the first plane of Unicode.
                json.dumps(told, ensure_ascii=False),
            )
        )
        total += metadata.num_rows
    return adds, total


def statistics(path: Path, metadata: pq.FileMetaData) -> dict[str, object]:
    """Return the rows, nulls, least and greatest values of a file's plain columns.

    Each column has bounds unless all its values are null. If bounds were missing in one file and
    not in others, deltalake would take them for null, and a filter by the column would skip the
    file. Columns of bytes have bounds in no file.
    """
    least: dict[str, Value] = {}
    greatest: dict[str, Value] = {}
    nulls: dict[str, int] = {}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for index in range(metadata.num_columns):
        column = metadata.schema.column(index)
        text = column.logical_type.type == "STRING"
        if "." in column.path or (column.physical_type == "BYTE_ARRAY" and not text):
            continue
        found = [group.column(index).statistics for group in groups]
        if all(each is not None and each.has_null_count for each in found):
            nulls[column.path] = sum(each.null_count for each in found)
        else:  # Spark leaves out statistics of long texts, the number of nulls with them
            nulls[column.path] = _nulls(path, column.path)
        if nulls[column.path] == metadata.num_rows:
            continue
        known = [each for each in found if each is not None and each.has_min_max]
        if len(known) < len(found) and column.physical_type in WIDEST:
            least[column.path], greatest[column.path] = WIDEST[column.physical_type]
        elif known:  # row groups without bounds have only nulls
            least[column.path] = _low(min(each.min for each in known))
            greatest[column.path] = _high(max(each.max for each in known))
    return {
        "numRecords": metadata.num_rows,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
    }


def _nulls(path: Path, column: str) -> int:
    """Count the nulls of a column by reading it."""
    with pq.ParquetFile(path) as file:
        return sum(batch.column(0).null_count for batch in file.iter_batches(columns=[column]))


def _low(found: Found) -> Value:
    """Return a lower bound for the log: the value in its form there, or a lower one."""
    if isinstance(found, str):
        return found[:TEXT_CHARACTERS_MAX]
    return _moment(found) if isinstance(found, dt.datetime) else found


def _high(found: Found) -> Value:
    """Return an upper bound for the log: the value in its form there, or a higher one."""
    if isinstance(found, str):
        return found if len(found) <= TEXT_CHARACTERS_MAX else _after(found[:TEXT_CHARACTERS_MAX])
    return _moment(found) if isinstance(found, dt.datetime) else found


def _after(prefix: str) -> str:
    """Return a text that sorts after all texts with this prefix."""
    kept = prefix.rstrip(GREATEST)
    if not kept:
        return TEXT_MAX
    following = ord(kept[-1]) + 1
    # Surrogates are not valid characters, so the next one after them is taken.
    return kept[:-1] + chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)


def _moment(found: dt.datetime) -> str:
    return found.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
