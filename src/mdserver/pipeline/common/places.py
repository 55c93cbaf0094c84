"""The folder of the tables: in the file system, or in an object store.

Spark writes and reads files of this computer. For tables in an object store they are made in a
folder for temporary files, one batch at a time, and copied: so no jars for the store are needed.
Commits to the tables' logs are deltalake's own, each on the condition that no other writer made the
same version.

A job that reads tables copies the files that it reads, once each, and keeps the copies until it
ends: files of a table never change.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from attrs import evolve, frozen

from mdserver.pipeline.common import temporary
from mdserver.pipeline.common.object_store import RemoteStore
from mdserver.pipeline.common.requirements import PipelineError


@frozen
class RemoteTables:
    """A folder of tables in an object store. `copies` is a folder for copies of their files."""

    store: RemoteStore
    copies: Path | None = None

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
    with temporary.folder("tables") as folder:
        yield folder
        for path in sorted((folder / staged).rglob("*.parquet")):
            tables.store.put(f"{name}/{path.relative_to(folder)}", path)


@contextlib.contextmanager
def at_hand(tables: Tables) -> Iterator[Tables]:
    """Give the tables such that `paths` can be asked of them, until the end of the block."""
    if isinstance(tables, Path):
        yield tables
        return
    with temporary.folder("tables") as folder:
        yield evolve(tables, copies=folder)


def paths(tables: Tables, name: str, files: Iterable[str]) -> list[str]:
    """Return the paths under which files of a table are read.

    `files` are relative to the table. Those in an object store are copied when they are asked for
    the first time; the tables are then those of `at_hand`.
    """
    if isinstance(tables, Path):
        return [str(tables / name / file) for file in files]
    assert tables.copies is not None
    copies = []
    for file in files:
        copy = tables.copies / name / file
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            tables.store.fetch(f"{name}/{file}", copy)
        copies.append(str(copy))
    return copies


@contextlib.contextmanager
def readable(tables: Tables, name: str, paths: Sequence[str]) -> Iterator[list[str]]:
    """Give the paths under which Spark reads files of a table, until the end of the block.

    `paths` are relative to the table.
    """
    if isinstance(tables, Path):
        yield [str(tables / name / path) for path in paths]
        return
    with temporary.folder("tables") as folder:
        copies = [folder / f"{number}.parquet" for number in range(len(paths))]
        for path, copy in zip(paths, copies, strict=True):
            tables.store.fetch(f"{name}/{path}", copy)
        yield [str(copy) for copy in copies]
