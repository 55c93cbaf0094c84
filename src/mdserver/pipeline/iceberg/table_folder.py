"""Iceberg tables that need no catalog: each is a folder with its metadata, as Hadoop lays it out.

`metadata/vN.metadata.json` is the table after its Nth commit, and `metadata/version-hint.text` has
the last N, so Spark, DuckDB and pyiceberg open a table by the path of its folder. A commit makes
the file of the next number, which only one of several writers can. A writer that ends behind that
leaves an older hint; readers then see the commit before, and the next writer goes on from the last
file, or mends the hint (Iceberg's specification, "File System Tables").
"""

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from attrs import frozen
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)
from typing_extensions import override

from mdserver.pipeline.common.durable import replace_file
from mdserver.pipeline.common.object_store import FolderStore, ObjectStore
from mdserver.pipeline.common.places import RemoteTables, Tables
from mdserver.pipeline.common.requirements import PipelineError

OF_A_FOLDER = "file://"
FOLDER = "iceberg"
"""Beside the Delta tables, since their compaction deletes what it does not know in theirs."""
SCHEMES = ("file", "s3", "s3a")
METADATA = "metadata"
VERSION = re.compile(r"v(\d+)\.metadata\.json")
HINT = "version-hint.text"
VERSIONS_KEPT = 100
"""So many commits stay readable, until there are twice as many."""
LEFT_S = 3600.0
"""How much older than the last commit a file is that no process is going to commit."""


@frozen
class TableFolder:
    """The folder of one Iceberg table. `store` is the place of all tables of the archive."""

    tables: Tables
    store: ObjectStore
    name: str

    @classmethod
    def of(cls, tables: Tables, name: str) -> "TableFolder":
        """Return the folder for the Delta table of that name.

        Raises PipelineError if the tables are in a place whose URIs pyiceberg does not take.
        """
        place = urlsplit(root(tables))
        if place.scheme not in SCHEMES or place.query or place.fragment:
            raise PipelineError(
                f"{tables}: Iceberg tables are made in folders without # and ? in their names, or"
                " with s3:// and s3a://"
            )
        store = tables.store if isinstance(tables, RemoteTables) else FolderStore(tables)
        return cls(tables, store, f"{FOLDER}/{name}")

    @property
    def location(self) -> str:
        """The URI of the folder."""
        return f"{root(self.tables)}/{self.name}"

    def loaded(self) -> Table | None:
        """Return the table as its last commit left it, None if there is none.

        There is none either if the folder was moved since: the metadata names files by URIs. Raises
        PipelineError if the metadata is damaged.
        """
        number = max(self.versions(), default=0)
        if not number:
            return None
        content = self.store.content(self._path(number))
        try:
            metadata = TableMetadataUtil.parse_raw(content.decode())
        except (ValidationError, UnicodeDecodeError):
            raise PipelineError(
                f"{self.version_uri(number)} is damaged: remove {self.location}, which the next"
                " export makes again"
            ) from None
        return self._table(metadata, number) if metadata.location == self.location else None

    def created(self, schema: Schema, spec: PartitionSpec, properties: dict[str, str]) -> Table:
        """Make a table without files and return it."""
        metadata = new_table_metadata(
            schema, spec, UNSORTED_SORT_ORDER, self.location, dict(properties)
        )
        # Commits of a folder that was moved are there under other URIs.
        number = max(self.versions(), default=0) + 1
        self.write(metadata, number)
        return self._table(metadata, number)

    def write(self, metadata: TableMetadata, number: int) -> None:
        """Make a commit of this number.

        Raises CommitFailedException if another writer made one of that number.
        """
        if not self.store.create(self._path(number), metadata.model_dump_json().encode()):
            raise CommitFailedException(f"{self.location}: another process made commit {number}")
        self._point_to(number)

    def mend_hint(self, number: int, held: Callable[[], None]) -> None:
        """Let readers find this commit, the last one, if who made it ended before that.

        `held` is called before a change.
        """
        with contextlib.suppress(FileNotFoundError):
            if self.store.content(self._hint) == str(number).encode():
                return
        held()
        self._point_to(number)

    def versions(self) -> list[int]:
        """Return the numbers of the commits that are there."""
        found = (VERSION.fullmatch(name) for name in self.store.sizes(f"{self.name}/{METADATA}"))
        return [int(match[1]) for match in found if match]

    def version_uri(self, number: int) -> str:
        """Return the URI of a commit's metadata."""
        return f"{self.location}/{METADATA}/v{number}.metadata.json"

    def tidy(self, table: Table, held: Callable[[], None]) -> None:
        """Delete metadata that no commit which stays readable needs, and what crashed runs left.

        `held` is called before each file is deleted. Manifests that were made shortly before the
        table's last commit stay: a process that lost its lock may be about to commit them.
        """
        last = number_of(table)
        needed = {each.manifest_list for each in table.snapshots()}
        for snapshot in table.snapshots():
            needed |= {each.manifest_path for each in snapshot.manifests(table.io)}
        made = self.store.times(f"{self.name}/{METADATA}")
        before = made[f"v{last}.metadata.json"] - LEFT_S
        for name, at in made.items():
            uri = f"{self.location}/{METADATA}/{name}"
            match = VERSION.fullmatch(name)
            is_old = match is not None and int(match[1]) <= last - VERSIONS_KEPT
            if is_old or (name.endswith(".avro") and uri not in needed and at <= before):
                held()
                table.io.delete(uri)

    @property
    def _hint(self) -> str:
        return f"{self.name}/{METADATA}/{HINT}"

    def _point_to(self, number: int) -> None:
        content = str(number).encode()
        if isinstance(self.tables, RemoteTables):
            self.tables.store.put(self._hint, content)
        else:
            replace_file(self.tables / self._hint, content)

    def _path(self, number: int) -> str:
        return f"{self.name}/{METADATA}/v{number}.metadata.json"

    def _table(self, metadata: TableMetadata, number: int) -> Table:
        return Table(
            identifier=(FOLDER, self.name),
            metadata=metadata,
            metadata_location=self.version_uri(number),
            io=file_io(self.location),
            catalog=_Committer(self),
        )


class _Committer(NoopCatalog):
    """What pyiceberg commits the changes of one table to."""

    def __init__(self, folder: TableFolder) -> None:
        super().__init__(FOLDER)
        self._folder = folder

    @override
    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Write the next version of the table."""
        for requirement in requirements:
            requirement.validate(table.metadata)
        metadata = update_table_metadata(
            table.metadata, updates, metadata_location=table.metadata_location
        )
        for update in updates:
            if isinstance(update, AddSnapshotUpdate):
                _sync(update, table.io)
        number = number_of(table) + 1
        self._folder.write(metadata, number)
        return CommitTableResponse.model_validate(
            {"metadata": metadata, "metadata-location": self._folder.version_uri(number)}
        )


def number_of(table: Table) -> int:
    """Return the number of the commit that a table was opened at, or made last."""
    match = VERSION.fullmatch(table.metadata_location.rpartition("/")[2])
    assert match is not None
    return int(match[1])


def root(tables: Tables) -> str:
    """Return the URI below which the files of the tables are."""
    return tables.store.uri if isinstance(tables, RemoteTables) else f"{OF_A_FOLDER}{tables}"


def file_io(location: str) -> FileIO:
    """Return pyiceberg's access to files; that of S3 goes by the environment, as all jobs do."""
    names = {"s3.endpoint": "AWS_ENDPOINT_URL", "s3.region": "AWS_REGION"}
    given = {
        name: os.environ[variable] for name, variable in names.items() if variable in os.environ
    }
    return load_file_io(given, location)


def _sync(update: AddSnapshotUpdate, io: FileIO) -> None:
    """Let the manifests of a snapshot survive a power cut, as the commit that names them does."""
    snapshot = update.snapshot
    fresh = [
        each.manifest_path
        for each in snapshot.manifests(io)
        if each.added_snapshot_id == snapshot.snapshot_id
    ]
    for uri in (snapshot.manifest_list, *fresh):
        if uri.startswith(OF_A_FOLDER):
            with Path(uri.removeprefix(OF_A_FOLDER)).open("rb") as file:
                os.fsync(file.fileno())
