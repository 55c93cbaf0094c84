"""The job `export-iceberg`: metadata by which readers of Iceberg read the files of the archive.

No row is copied. Of each Delta table the job compares the files of the present version with those
that the Iceberg table names, reads the footers of those that came, and replaces the difference in
one commit, so readers see the rows of one version of the Delta table. Each commit notes which that
was, and a table that did not change costs nothing.

Files do not hold `dt`, by which `messages` is partitioned. The Iceberg table has partitions by the
day of `ts_server` instead, which are the same, and no column `dt`.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from attrs import frozen
from deltalake import DeltaTable
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import DayTransform

from mdserver.pipeline.common import checkpoints, schema
from mdserver.pipeline.common import tables as archive
from mdserver.pipeline.common.places import Tables
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.rewrite import files_of
from mdserver.pipeline.iceberg import table_folder
from mdserver.pipeline.iceberg.table_folder import TableFolder, root

JOB = "export-iceberg"
DELTA_TABLE = "mdserver.delta-table"
DELTA_VERSION = "mdserver.delta-version"
DAYS_OF = {"messages": "ts_server"}
"""The column whose days are the partitions of a table."""
READER_VERSION = 1
"""Delta's protocol for readers. From 3 on rows of a file may be deleted that the file still has."""
FOOTERS_AT_ONCE = 16


class NotExportedError(PipelineError):
    """Some tables could not be exported, and the others were."""


@frozen
class Exported:
    """The report of one table: which version of the Delta table its Iceberg table has now.

    `added` and `removed` are files since the export before, and `files` and `rows` all of them.
    """

    table: str
    version: int
    added: int
    removed: int
    files: int
    rows: int
    seconds: float


def run_export(tables: Tables, tell: Callable[[Exported], None]) -> None:
    """Export all tables of the folder, one after the other; `tell` gets a report of each.

    A table that cannot be exported does not keep those behind it from it. Raises NotExportedError
    at the end if there was one, with a line for each; PipelineError if the folder has no tables;
    BusyError if another process exports.
    """
    found = [name for name in schema.TABLES if archive.exists(tables, name)]
    if not found:
        raise PipelineError(f"{tables} has no tables: run `mdserver pipeline archive` first")
    with checkpoints.alone(tables, JOB) as held:
        failures = []
        for name in found:
            try:
                tell(export(tables, name, held))
            except PipelineError as error:
                failures.append(f"{name}: {error}")
        if failures:
            raise NotExportedError("\n".join(failures))


def export(tables: Tables, name: str, held: Callable[[], None] = lambda: None) -> Exported:
    """Make the Iceberg table have the files of the present version of the Delta table.

    `held` is called before each change, and raises if the job's lock was lost. Raises PipelineError
    if another process commits at the same time, or if the Delta table needs a newer reader.
    """
    began = time.monotonic()
    source = archive.opened(tables, name)
    if source.protocol().min_reader_version > READER_VERSION:
        raise PipelineError(
            f"{tables / name} has features of newer readers of Delta, such as deletion vectors,"
            " which files alone do not show: remove them, and run this again"
        )
    folder = TableFolder.of(tables, name)
    target = folder.loaded() or _created(folder, name)
    mark = {DELTA_TABLE: str(source.metadata().id), DELTA_VERSION: str(source.version())}
    added, removed = 0, 0
    if {**target.properties, **mark} != target.properties:
        try:
            added, removed = _refresh(target, (tables, name), source, mark, held)
            _forget(target, folder, held)
        except CommitFailedException as error:
            raise PipelineError(f"{JOB} failed: {error}") from None
    else:
        folder.mend_hint(table_folder.number_of(target), held)
    summary = target.current_snapshot()
    total = {} if summary is None or summary.summary is None else summary.summary
    return Exported(
        table=name,
        version=source.version(),
        added=added,
        removed=removed,
        files=int(total["total-data-files"] or 0) if total else 0,
        rows=int(total["total-records"] or 0) if total else 0,
        seconds=time.monotonic() - began,
    )


def _columns(name: str) -> Schema:
    """Return the columns that files of a table have."""
    partitions = schema.PARTITIONS.get(name, [])
    held = pa.schema([each for each in schema.TABLES[name] if each.name not in partitions])
    found = Catalog._convert_schema_if_needed(held)
    # Numbers of columns are assigned where a table is made; until then they are all the same.
    made = new_table_metadata(found, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "", {})
    return made.schema()


def _created(folder: TableFolder, name: str) -> Table:
    """Make the Iceberg table, without files."""
    columns = _columns(name)
    spec = UNPARTITIONED_PARTITION_SPEC
    if name in DAYS_OF:
        source = columns.find_field(DAYS_OF[name]).field_id
        spec = PartitionSpec(
            PartitionField(
                source, PartitionSpec().last_assigned_field_id + 1, DayTransform(), "day"
            )
        )
    properties = {
        # Files have no numbers of columns, so their names count.
        TableProperties.DEFAULT_NAME_MAPPING: columns.name_mapping.model_dump_json(),
        TableProperties.MANIFEST_MERGE_ENABLED: "true",
        # Only one process exports, so a commit that fails is no case for another attempt.
        TableProperties.COMMIT_NUM_RETRIES: "0",
    }
    return folder.created(columns, spec, properties)


def _refresh(
    target: Table,
    table: tuple[Tables, str],
    source: DeltaTable,
    mark: dict[str, str],
    held: Callable[[], None],
) -> tuple[int, int]:
    """Replace the difference of files in one commit; return how many came and went.

    `table` is where the Delta table is, and its name.
    """
    tables, name = table
    place = f"{root(tables)}/{name}"
    wanted = {f"{place}/{file.path}" for file in files_of(source)}
    present = {task.file.file_path: task.file for task in target.scan().plan_files()}
    came = sorted(wanted - present.keys())
    went = [file for uri, file in present.items() if uri not in wanted]
    with target.transaction() as change:
        columns = _columns(name)
        if {each.name for each in columns.fields} != {each.name for each in target.schema().fields}:
            with change.update_schema() as update:
                update.union_by_name(columns)
        change.set_properties(mark)
        if came or went:
            snapshot = change.update_snapshot(snapshot_properties=mark)
            with snapshot.overwrite() if went else snapshot.merge_append() as files:
                for file in _data_files(target.io, change.table_metadata, came):
                    files.append_data_file(file)
                for file in went:
                    files.delete_data_file(file)
        held()
    return len(came), len(went)


def _data_files(io: FileIO, metadata: TableMetadata, uris: Sequence[str]) -> list[DataFile]:
    """Return what manifests say of files, by their footers."""
    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as threads:
        return list(threads.map(lambda uri: parquet_file_to_data_file(io, metadata, uri), uris))


def _forget(target: Table, folder: TableFolder, held: Callable[[], None]) -> None:
    """Forget all but the last commits, now and then."""
    if table_folder.number_of(target) % table_folder.VERSIONS_KEPT:
        return
    by_age = sorted(target.snapshots(), key=lambda snapshot: snapshot.sequence_number or 0)
    old = [snapshot.snapshot_id for snapshot in by_age[: -table_folder.VERSIONS_KEPT]]
    if old:
        held()
        target.maintenance.expire_snapshots().by_ids(old).commit()
    folder.tidy(target, held)
