"""Compaction of sorted tables: small files are joined into larger ones that are sorted as well.

deltalake's own compaction puts files one after the other, so the result is not sorted. Spark sorts,
with the disk when memory does not suffice.
"""

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import pyarrow as pa
from attrs import frozen
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import SparkSession

from mdserver.pipeline.common import parquet, places, schema
from mdserver.pipeline.common.files import add_actions
from mdserver.pipeline.common.places import Tables

TARGET_FILE_BYTES = 128 << 20
SMALL_FILE_BYTES = TARGET_FILE_BYTES // 2
"""A file of this size or more is left as it is."""
ROW_GROUP_BYTES = 8 << 20
"""Readers skip whole row groups, so only with small ones do they profit from the order."""


@frozen
class PresentFile:
    """A file of a table's present version."""

    path: str
    size_bytes: int
    partition: str
    """The value of the table's only partition column; empty if it has none."""


def join_sorted(spark: SparkSession, target: DeltaTable, tables: Tables, name: str) -> int:
    """Join the table's small files, each bin in a commit of its own.

    Returns how many files were joined.
    """
    joined = 0
    for files in bins(_files(target, name)):
        staged = f"data/joined/{secrets.token_hex(8)}"
        # Files do not hold the columns of partitions, and a bin is of one partition.
        inner = [column for column in schema.SORT[name] if column not in _partitions(name)]
        value = files[0].partition
        below = "".join(f"/{column}={value}" for column in _partitions(name))
        with (
            places.readable(tables, name, [file.path for file in files]) as paths,
            places.written(tables, name, staged) as folder,
        ):
            # Files may be of several layouts, and all get the columns of this one.
            rows = parquet.read(spark, name, paths)
            writer = rows.coalesce(1).sortWithinPartitions(*inner).write
            writer.option("parquet.block.size", ROW_GROUP_BYTES).parquet(
                f"{folder}/{staged}{below}"
            )
            adds, _ = add_actions(folder, staged, _partitions(name), data_change=False)
        commit_joined(target, adds, files, name)
        joined += len(files)
    return joined


def commit_joined(
    target: DeltaTable,
    adds: Sequence[AddAction | RemoveAction],
    files: Iterable[PresentFile],
    name: str,
) -> None:
    """Replace `files` by those that are added, in one commit.

    The commit says that no data changed, so readers that follow the table skip it.
    """
    partitions = _partitions(name)
    actions = list(adds)
    now = time.time_ns() // 1_000_000
    actions += [
        RemoveAction(
            file.path, False, now, file.size_bytes, dict.fromkeys(partitions, file.partition)
        )
        for file in files
    ]
    target.create_write_transaction(actions, "append", target.schema(), partitions)
    target.update_incremental()


def bins(files: Iterable[PresentFile]) -> Iterator[list[PresentFile]]:
    """Yield the bins of files to join: each of one partition, with two files or more.

    A bin has at most `TARGET_FILE_BYTES`.
    """
    small = sorted(
        (file for file in files if file.size_bytes < SMALL_FILE_BYTES),
        key=lambda file: (file.partition, file.path),
    )
    for _, group in groupby(small, key=lambda file: file.partition):
        chosen: list[PresentFile] = []
        for file in group:
            if sum(each.size_bytes for each in chosen) + file.size_bytes > TARGET_FILE_BYTES:
                yield chosen
                chosen = []
            chosen.append(file)
        if len(chosen) > 1:
            yield chosen


def _files(target: DeltaTable, name: str) -> list[PresentFile]:
    """Return the files of the table's present version."""
    found = pa.table(target.get_add_actions(flatten=True))
    partitions = _partitions(name)
    return [
        PresentFile(
            row["path"],
            row["size_bytes"],
            "".join(row[f"partition.{column}"] for column in partitions),
        )
        for row in found.to_pylist()
    ]


def _partitions(name: str) -> list[str]:
    return schema.PARTITIONS.get(name, [])
