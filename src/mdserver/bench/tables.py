"""Tables of an archive written without a journal, which would take much longer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from mdserver.pipeline.common import delta, schema

START_US = 1_764_000_000_000_000
"""The time of the first message. All of a table are of one day, which is `DAY`."""
DAY = "2025-11-24"


def append_messages(
    tables: Path, rows: int, given: Mapping[str, Any], content: bytes = b"x"
) -> None:
    """Append guaranteed messages with this content to the table `messages`.

    `given` are the columns in which messages differ, as in `append_rows`.
    """
    same: dict[str, Any] = {
        "root": "bench",
        "history": "h1",
        "epoch": 1,
        "content": content,
        "text": True,
        "compressed": False,
        "retained": True,
        "qos": "GUARANTEED",
        "node": "n1",
        "dt": DAY,
    }
    append_rows(tables, "messages", rows, given, same)


def append_rows(
    tables: Path, name: str, rows: int, given: Mapping[str, Any], same: Mapping[str, Any]
) -> None:
    """Append so many rows to a table of an archive.

    `given` and `same` are columns, of which the second have one value for all rows; others are
    null.
    """
    arrays = [
        pa.array(given[each.name]).cast(each.type)
        if each.name in given
        else pa.repeat(pa.scalar(same.get(each.name), each.type), rows)
        for each in schema.TABLES[name]
    ]
    table = pa.Table.from_arrays(arrays, schema=schema.TABLES[name])
    write_deltalake(delta.table(tables, name), table, mode="append")
