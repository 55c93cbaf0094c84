"""Delta tables without another jar: Spark writes the Parquet files, the driver commits them.

Exactly once: each batch of a streaming job is one Delta transaction that carries (job, number), and
the table remembers the last number of each job. A batch that comes again after a crash is either in
the table already, and is skipped, or it is not. Then its files are staged anew, beside those of the
crashed attempt, which no version of the table names and `compact` deletes later. The number is
checked and committed on one handle of the table, so that a commit of another writer of the same job
in between is a conflict, which Delta refuses (Delta Lake protocol, "Transaction Identifiers").
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from attrs import field, frozen
from deltalake import DeltaTable, PostCommitHookProperties, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
from pyspark.sql import DataFrame, SparkSession

from mdserver.pipeline.common import compaction, places, schema
from mdserver.pipeline.common.files import add_actions
from mdserver.pipeline.common.places import Tables
from mdserver.pipeline.common.requirements import PipelineError

# Each commit is a file of the log, and there may be one a second.
LOG_RETENTION = {"delta.logRetentionDuration": "interval 2 days"}
KEEP_FILES_H = 7 * 24
CHECKPOINT_INTERVAL = 100
COMMITS_MAX = 5
"""How often a commit is tried that Delta refuses because another writer removed files."""


def nothing() -> None:
    """Do nothing: the check of a batch that needs none."""


@frozen
class TableBatch:
    """One batch of a streaming job.

    `number` grows from batch to batch, and is the same for a batch that comes again. `check` is
    called when the rows have been read and staged; if it raises, they are not committed. `source`
    counts the sources that the job had, each with its own batches. `reached` are further
    transactions of the same commit: how far the batch comes, by name. `after` has the numbers of
    the batches before this one, by table: it is refused by a table of it that has another one, as
    another process has gone on there.
    """

    job: str
    number: int
    check: Callable[[], None] = nothing
    source: int = 1
    reached: Mapping[str, int] = field(factory=dict)
    after: Mapping[str, int] = field(factory=dict)


def reached_by(node: str) -> str:
    """Return the name of the transaction that says how far a member's journal is archived (us).

    Rows that other members' journals brought before do not have the member's name and times.
    """
    return f"reached-{node}"


def table(tables: Tables, name: str) -> DeltaTable:
    """Return the Delta table of that name, ready to be written to.

    It is made from its schema if it does not exist, and gets the columns that were added since it
    was made. Raises what `opened` does.
    """
    path = tables / name
    if DeltaTable.is_deltatable(str(path)):
        return _upgraded(opened(tables, name), tables, name)
    if isinstance(path, Path):
        path.mkdir(parents=True, exist_ok=True)
    made = DeltaTable.create(
        path,
        schema=schema.TABLES[name],
        mode="ignore",
        partition_by=schema.PARTITIONS.get(name),
        configuration=LOG_RETENTION,
    )
    return _upgraded(made, tables, name)


def opened(tables: Tables, name: str) -> DeltaTable:
    """Return a table that exists.

    A table of an earlier release may lack columns: they are null for readers, and the next writer
    adds them. Raises PipelineError if its layout differs otherwise: if it is of a newer release, or
    of one that is too old, or was changed by other means.
    """
    found = DeltaTable(tables / name)
    layout = layout_of(found)
    if layout > schema.LAYOUT:
        raise PipelineError(
            f"{tables / name} was written by a newer release: its layout is {layout}, and this"
            f" release knows {schema.LAYOUT}; run that release"
        )
    wanted = {field.name: field for field in Schema.from_arrow(schema.TABLES[name]).fields}
    has = {field.name: field for field in found.schema().fields}
    differing = [
        column for column, field in has.items() if field.type != wanted.get(column, field).type
    ]
    if differing or found.metadata().partition_columns != schema.PARTITIONS.get(name, []):
        what = f"the columns {', '.join(differing)}" if differing else "other partitions"
        raise PipelineError(
            f"{tables / name} was made by another release, which differs in {what}: archive into"
            " another folder, and read this one with the release that made it"
        )
    unknown = sorted(has.keys() - wanted.keys())
    if unknown:
        raise PipelineError(
            f"{tables / name} has the columns {', '.join(unknown)}, which no release had: drop"
            " them, or archive into another folder"
        )
    dropped = sorted(wanted.keys() - has.keys())
    if dropped and layout == schema.LAYOUT:
        raise PipelineError(
            f"{tables / name} lacks the columns {', '.join(dropped)}, which were dropped: restore"
            " a version of the table that has them, or archive into another folder"
        )
    return found


def layout_of(found: DeltaTable) -> int:
    """Return the layout of a table, 1 if it has no property for it."""
    told = found.metadata().configuration.get(schema.LAYOUT_PROPERTY) or "1"
    return int(told) if told.isdecimal() else 1


def _upgraded(found: DeltaTable, tables: Tables, name: str) -> DeltaTable:
    """Add the columns that the table lacks, and note its layout; return the table."""
    if layout_of(found) == schema.LAYOUT:
        return found
    has = {field.name for field in found.schema().fields}
    wanted = Schema.from_arrow(schema.TABLES[name]).fields
    lacking = [field for field in wanted if field.name not in has]
    try:
        if lacking:
            found.alter.add_columns(lacking)
        found.alter.set_table_properties(
            {schema.LAYOUT_PROPERTY: str(schema.LAYOUT)}, raise_if_not_exists=False
        )
    except CommitFailedError:
        # Another job that opened the table at the same time has probably added them.
        return opened(tables, name)
    return found


def replace(folder: Tables, name: str, rows: pa.Table) -> None:
    """Replace all rows of a table, in one transaction."""
    table(folder, name)
    write_deltalake(
        folder / name, rows.cast(schema.TABLES[name]), mode="overwrite", schema_mode="overwrite"
    )


def replace_frame(tables: Tables, name: str, frame: DataFrame) -> int:
    """Replace all rows of a table by those of a frame, in one transaction; Spark writes the files.

    The table has no partitions. Returns the number of rows.
    """
    target = table(tables, name)
    staged = f"data/replaced/{secrets.token_hex(8)}"
    with places.written(tables, name, staged) as folder:
        frame.write.parquet(str(folder / staged))
        adds, rows = add_actions(folder, staged, [])
    target.create_write_transaction(adds, "overwrite", target.schema(), [])
    return rows


@frozen
class Staged:
    """The files of a batch, written but not yet in any version of their table."""

    table: DeltaTable
    files: list[AddAction | RemoveAction]
    rows: int
    partitions: list[str]
    after: int | None = None
    """The number of the batch before this one, None if it may be any."""


def stage(
    tables: Tables,
    name: str,
    batch: TableBatch,
    frame: DataFrame,
    look: Callable[[Sequence[Path]], None] | None = None,
) -> Staged | None:
    """Write the rows of a batch beside the table and return the files.

    `look` is called with the paths of the files. Returns None if the batch is in the table already.
    Raises PipelineError if another process committed a part of it.
    """
    target = table(tables, name)
    done = target.transaction_version(batch.job)
    if done is not None and done >= batch.number:
        return None
    after = batch.after.get(name)
    _check_after(target, batch, after)
    partitions = schema.PARTITIONS.get(name, [])
    # Each attempt has a folder of its own: another one may be alive, and still commit its files.
    staged = f"data/{batch.job}/b{batch.number}-{secrets.token_hex(4)}"
    writer = frame.write.mode("overwrite")
    if partitions:
        writer = writer.partitionBy(*partitions)
    with places.written(tables, name, staged) as folder:
        writer.parquet(str(folder / staged))
        adds, rows = add_actions(folder, staged, partitions)
        if look is not None:
            look([folder / each.path for each in adds])
    return Staged(target, adds, rows, partitions, after)


def _check_after(target: DeltaTable, batch: TableBatch, after: int | None) -> None:
    """Raise PipelineError unless the batch is the next one of its job in this table."""
    done = target.transaction_version(batch.job) or 0
    if after is not None and done != after:
        raise PipelineError(
            f"{target.table_uri}: another process has committed batches of {batch.job}, up to"
            f" {done} and not {after}: end one of the two, and start the other again"
        )


def commit(staged: Staged, batch: TableBatch) -> None:
    """Make staged files part of the table, in the transaction (job, number) of the batch.

    Raises deltalake's CommitFailedError if another writer of the same job got there first, or
    PipelineError if that was with another batch, and what the batch's check raises.
    """
    target = staged.table
    for left in reversed(range(COMMITS_MAX)):
        batch.check()
        try:
            commit_staged(target, staged.files, batch, staged.partitions)
            return
        except CommitFailedError:
            # Delta also refuses if files were removed meanwhile, by `rollup` or a compaction. That
            # does not concern rows that are added, so only the transaction's number decides.
            target = DeltaTable(target.table_uri)
            done = target.transaction_version(batch.job)
            if not left or (done is not None and done >= batch.number):
                raise
            _check_after(target, batch, staged.after)


def commit_batch(tables: Tables, name: str, batch: TableBatch, frame: DataFrame) -> int | None:
    """Append the frame to the table: `stage` and `commit` together.

    Returns how many rows were committed, None if the batch is in the table already. Raises what
    `commit` does.
    """
    staged = stage(tables, name, batch, frame)
    if staged is None:
        return None
    commit(staged, batch)
    return staged.rows


def commit_nothing(tables: Tables, name: str, batch: TableBatch) -> None:
    """Commit a batch without rows, so that the table has its number."""
    target, after = table(tables, name), batch.after.get(name)
    _check_after(target, batch, after)
    commit(Staged(target, [], 0, schema.PARTITIONS.get(name, []), after), batch)


def append_rows(
    tables: Tables, name: str, job: str, version: int, found: Sequence[Mapping[str, object]]
) -> None:
    """Append a few rows that are in the driver already, in the transaction (job, version).

    Does nothing if that transaction is in the table already. Columns that a row lacks are null.
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
    batch: TableBatch,
    partitions: Sequence[str],
) -> None:
    """Make staged files part of the table in one commit, which is tried once.

    Now and then a checkpoint of the log is written, so that opening the table does not read all
    commits.
    """
    target.create_write_transaction(
        adds,
        "append",
        target.schema(),
        list(partitions),
        commit_properties=CommitProperties(
            app_transactions=[
                Transaction(job, version)
                for job, version in {batch.job: batch.number, **batch.reached}.items()
            ]
        ),
        post_commithook_properties=PostCommitHookProperties(
            create_checkpoint=batch.number % CHECKPOINT_INTERVAL == CHECKPOINT_INTERVAL - 1,
            cleanup_expired_logs=False,
        ),
    )


def compact(
    spark: SparkSession, tables: Tables, name: str, held: Callable[[], None] = nothing
) -> int:
    """Join the small files of a table, and delete files that are no longer needed.

    Returns how many files were joined into fewer ones. A table that is sorted stays sorted. Deleted
    are files that no version of the last `KEEP_FILES_H` hours names, those of crashed attempts
    among them, and commits of the log that are older than its retention. Readers and writers go on
    meanwhile. `held` is called before each step; if it raises, the table is left as it is then.
    """
    held()
    target = table(tables, name)
    if name in schema.SORT:
        joined = compaction.join_sorted(spark, target, tables, name)
    else:
        metrics = target.optimize.compact(target_size=compaction.TARGET_FILE_BYTES)
        joined = metrics["numFilesRemoved"]
    held()
    target.vacuum(retention_hours=KEEP_FILES_H, dry_run=False, full=True)
    held()
    target.create_checkpoint()
    target.cleanup_metadata()
    return joined
