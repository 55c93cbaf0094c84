"""Delta tables without another jar: Spark writes the Parquet files, the driver commits them.

Exactly once: each batch of a streaming job is one Delta transaction that carries (job, batch id).
A batch that comes again after a crash is either in the table already, then it is skipped, or not,
then its files are staged anew beside those of the crashed attempt. The two numbers that must agree
are checked and committed on one table handle; another writer of the same job is refused by Delta
(Delta Lake protocol, "Transaction Identifiers").
"""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import frozen
from deltalake import DeltaTable, PostCommitHookProperties, Schema, write_deltalake
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
from pyspark.sql import DataFrame

from mdserver.pipeline import schema

PARTITIONS: dict[str, list[str]] = {"messages": ["root", "dt"]}
# A commit is a file of the log, and there may be one a second.
LOG_RETENTION = {"delta.logRetentionDuration": "interval 2 days"}
KEEP_FILES_H = 7 * 24
CHECKPOINT_INTERVAL = 100
TARGET_FILE_BYTES = 128 << 20


def _nothing() -> None:
    """The check of a batch that needs none."""


@frozen
class Batch:
    """One batch of a streaming job: `number` counts them, the same for a batch that comes again.

    `check` is called when the rows have been read and staged; what it raises keeps them out.
    """

    job: str
    number: int
    check: Callable[[], None] = _nothing


def table(tables: Path, name: str) -> DeltaTable:
    """The Delta table of that name, made from its schema if it is not there yet."""
    path = tables / name
    if DeltaTable.is_deltatable(str(path)):
        return _widened(DeltaTable(path), name)
    path.mkdir(parents=True, exist_ok=True)
    return DeltaTable.create(
        path,
        schema=schema.TABLES[name],
        mode="ignore",
        partition_by=PARTITIONS.get(name),
        configuration=LOG_RETENTION,
    )


def _widened(found: DeltaTable, name: str) -> DeltaTable:
    """The table with the columns that were added since it was made."""
    has = {field.name for field in found.schema().fields}
    wanted = Schema.from_arrow(schema.TABLES[name]).fields
    lacking = [field for field in wanted if field.name not in has]
    if lacking:
        found.alter.add_columns(lacking)
    return found


def commit_batch(tables: Path, name: str, batch: Batch, frame: DataFrame) -> int | None:
    """Append the frame to the table in the transaction (job, number) of the batch.

    Returns how many rows were committed, or None where the batch is in the table already. Raises
    deltalake's CommitFailedError where another writer of the same job got there first, and what
    the batch's check raises.
    """
    target = table(tables, name)
    done = target.transaction_version(batch.job)
    if done is not None and done >= batch.number:
        return None
    partitions = PARTITIONS.get(name, [])
    # Never where another attempt wrote: if that one is still alive, it may commit its files yet.
    staged = f"data/{batch.job}/b{batch.number}-{secrets.token_hex(4)}"
    writer = frame.write.mode("overwrite")
    if partitions:
        writer = writer.partitionBy(*partitions)
    writer.parquet(str(tables / name / staged))
    batch.check()
    adds, rows = _add_actions(tables / name, staged, partitions)
    commit_staged(target, adds, batch, partitions)
    return rows


def append_rows(
    tables: Path, name: str, job: str, version: int, found: Sequence[Mapping[str, object]]
) -> None:
    """Append a few rows that are in the driver already, in the transaction (job, version).

    Does nothing where that is in the table already. Columns that a row lacks are null.
    """
    target = table(tables, name)
    done = target.transaction_version(job)
    if done is None or done < version:
        write_deltalake(
            target,
            pa.Table.from_pylist(list(found), schema.TABLES[name]),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction(job, version)]),
        )


def commit_staged(
    target: DeltaTable,
    adds: list[AddAction | RemoveAction],
    batch: Batch,
    partitions: Sequence[str],
) -> None:
    """The second half of a batch: what Spark staged becomes part of the table, at once."""
    target.create_write_transaction(
        adds,
        "append",
        target.schema(),
        list(partitions),
        commit_properties=CommitProperties(app_transactions=[Transaction(batch.job, batch.number)]),
        post_commithook_properties=PostCommitHookProperties(
            create_checkpoint=batch.number % CHECKPOINT_INTERVAL == CHECKPOINT_INTERVAL - 1,
            cleanup_expired_logs=False,
        ),
    )


def compact(tables: Path, name: str) -> dict[str, object]:
    """Join the small files of a table, and delete what is of no use any more.

    That is files that no version of the last `KEEP_FILES_H` hours names, those of crashed attempts
    among them, and the log behind its retention. Readers and writers go on meanwhile.
    """
    target = table(tables, name)
    metrics: dict[str, object] = target.optimize.compact(target_size=TARGET_FILE_BYTES)
    target.vacuum(retention_hours=KEEP_FILES_H, dry_run=False, full=True)
    target.create_checkpoint()
    target.cleanup_metadata()
    return metrics


def _add_actions(
    folder: Path, staged: str, partitions: Sequence[str]
) -> tuple[list[AddAction | RemoveAction], int]:
    adds: list[AddAction | RemoveAction] = []
    total = 0
    for path in sorted((folder / staged).rglob("*.parquet")):
        rows = pq.read_metadata(path).num_rows
        if not rows:
            continue
        stat = path.stat()
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
                True,
                json.dumps({"numRecords": rows}),
            )
        )
        total += rows
    return adds, total
