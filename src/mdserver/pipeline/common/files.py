"""Parquet files that Spark wrote, as actions of a Delta log: partition, rows and statistics.

With the least and the greatest value of a column in the log readers open only files that may have
what they look for (Delta Lake protocol, "Per-file Statistics").
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
"""Of a longer text only the beginning is in the log."""
GREATEST = "\U0010ffff"
TEXT_MAX = GREATEST * TEXT_CHARACTERS_MAX * 2

NUMBER_MAX = sys.float_info.max
WIDEST: dict[str, tuple["Value", "Value"]] = {
    "BYTE_ARRAY": ("", TEXT_MAX),
    "DOUBLE": (-NUMBER_MAX, NUMBER_MAX),
}
"""What bounds every value of a physical type for which Spark leaves bounds out: of texts that are
long, and of numbers with NaN among them."""

Found = bool | int | float | str | dt.datetime
Value = bool | int | float | str


def add_actions(
    folder: Path, staged: str, partitions: Sequence[str], *, data_change: bool = True
) -> tuple[list[AddAction | RemoveAction], int]:
    """Return the actions that add all files below a folder of a table's, and how many rows."""
    adds: list[AddAction | RemoveAction] = []
    total = 0
    for path in sorted((folder / staged).rglob("*.parquet")):
        metadata = pq.read_metadata(path)
        if not metadata.num_rows:
            continue
        stat = path.stat()
        told = statistics(path, metadata)
        named = dict(part.split("=", 1) for part in path.parent.relative_to(folder / staged).parts)
        # Spark escapes partition values in folder names; the log has the value itself, and the
        # path as it stands on disk.
        values = {name: unquote(named[name]) for name in partitions}
        adds.append(
            AddAction(
                str(path.relative_to(folder)),
                stat.st_size,
                values,
                stat.st_mtime_ns // 1_000_000,
                data_change,
                # deltalake reads escapes beyond the first plane as other characters.
                json.dumps(told, ensure_ascii=False),
            )
        )
        total += metadata.num_rows
    return adds, total


def statistics(path: Path, metadata: pq.FileMetaData) -> dict[str, object]:
    """Return the rows, nulls, least and greatest values of a file's plain columns.

    Each column that is not null throughout has bounds: deltalake takes those that are missing for
    null if other files have some, and hides the file from whoever filters by the column. Bounds may
    be too wide. Columns of bytes have none in any file.
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
        else:  # Spark leaves out what would be long, the number of nulls with it.
            nulls[column.path] = _nulls(path, column.path)
        if nulls[column.path] == metadata.num_rows:
            continue
        known = [each for each in found if each is not None and each.has_min_max]
        if len(known) < len(found) and column.physical_type in WIDEST:
            least[column.path], greatest[column.path] = WIDEST[column.physical_type]
        elif known:  # groups without bounds have nothing but nulls
            least[column.path] = _low(min(each.min for each in known))
            greatest[column.path] = _high(max(each.max for each in known))
    return {
        "numRecords": metadata.num_rows,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
    }


def _nulls(path: Path, column: str) -> int:
    with pq.ParquetFile(path) as file:
        return sum(batch.column(0).null_count for batch in file.iter_batches(columns=[column]))


def _low(found: Found) -> Value:
    """Return a value as the log has it, or a lower one."""
    if isinstance(found, str):
        return found[:TEXT_CHARACTERS_MAX]
    return _moment(found) if isinstance(found, dt.datetime) else found


def _high(found: Found) -> Value:
    """Return a value as the log has it, or a higher one."""
    if isinstance(found, str):
        return found if len(found) <= TEXT_CHARACTERS_MAX else _after(found[:TEXT_CHARACTERS_MAX])
    return _moment(found) if isinstance(found, dt.datetime) else found


def _after(prefix: str) -> str:
    """Return a text behind all that begin so."""
    kept = prefix.rstrip(GREATEST)
    if not kept:
        return TEXT_MAX
    following = ord(kept[-1]) + 1
    # Surrogates are no characters of a text.
    return kept[:-1] + chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)


def _moment(found: dt.datetime) -> str:
    return found.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
