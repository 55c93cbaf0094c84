"""The folder of the tables: in the file system, or in an object store.

Spark writes and reads files of this computer. For tables in an object store they are made in a
folder for temporary files, one batch at a time, and copied: so no jars for the store are needed.
Commits to the tables' logs are deltalake's own, each on the condition that no other writer made the
same version.
"""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import frozen

from mdserver.pipeline.common.object_store import RemoteStore
from mdserver.pipeline.common.requirements import PipelineError


@frozen
class RemoteTables:
    """A folder of tables in an object store."""

    store: RemoteStore

    def __truediv__(self, name: str) -> str:
        """Return the URI of a table."""
        return f"{self.store.uri}/{name}"

    def __str__(self) -> str:
        return self.store.uri


Tables = Path | RemoteTables


def local(tables: Tables, job: str) -> Path:
    """Return the folder of the tables; raise PipelineError if it is in an object store."""
    if isinstance(tables, RemoteTables):
        raise PipelineError(f"{job} takes tables in a folder, and {tables} is none")
    return tables


@contextlib.contextmanager
def written(tables: Tables, name: str, staged: str) -> Iterator[Path]:
    """Give a folder for files of a table; what the block writes below `staged` goes to the table.

    That is the table's own folder, or one whose files are copied at the end of the block.
    """
    if isinstance(tables, Path):
        yield tables / name
        return
    with tempfile.TemporaryDirectory(prefix="mdserver-tables-") as folder:
        yield Path(folder)
        for path in sorted((Path(folder) / staged).rglob("*.parquet")):
            tables.store.put(f"{name}/{path.relative_to(folder)}", path)


@contextlib.contextmanager
def readable(tables: Tables, name: str, paths: Sequence[str]) -> Iterator[list[str]]:
    """Give the paths under which Spark reads files of a table, until the end of the block.

    `paths` are relative to the table.
    """
    if isinstance(tables, Path):
        yield [str(tables / name / path) for path in paths]
        return
    with tempfile.TemporaryDirectory(prefix="mdserver-tables-") as folder:
        copies = [Path(folder) / f"{number}.parquet" for number in range(len(paths))]
        for path, copy in zip(paths, copies, strict=True):
            tables.store.fetch(f"{name}/{path}", copy)
        yield [str(copy) for copy in copies]
