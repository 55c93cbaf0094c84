"""Tables in an object store: the same rows, commits and locks as in a folder."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from mdserver.core.message import Publication
from mdserver.journal import segments
from mdserver.pipeline.archive import job as archive_job
from mdserver.pipeline.archive.batches import Archived
from mdserver.pipeline.common import checkpoints, delta, maintenance, object_store
from mdserver.pipeline.common.object_store import RemoteStore
from mdserver.pipeline.common.places import RemoteTables
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.sources import JournalSource
from mdserver.pipeline.common.tables import history

from .conftest import write_lines, write_messages

pytestmark = pytest.mark.pipeline


@pytest.fixture
def remote(bucket: str, tmp_path: Path) -> RemoteTables:
    store = object_store.opened(f"{bucket}/{tmp_path.name}/tables")
    assert isinstance(store, RemoteStore)
    return RemoteTables(store)


def write(journal: Path, subject: str, *seqs: int) -> None:
    for seq in seqs:
        write_messages(journal, [Publication(subject, b"%d" % seq)], seq)


def run_archive(spark: Any, journals: list[Path], tables: RemoteTables) -> list[Archived]:
    told: list[Archived] = []
    sources = [JournalSource(journal, batch_bytes=1) for journal in journals]
    archive_job.run_archive(spark, sources, tables, told.append, once=True)
    return told


def rows(tables: RemoteTables, name: str = "messages") -> list[dict[str, Any]]:
    return DeltaTable(tables / name).to_pyarrow_table().to_pylist()


class CrashError(Exception):
    """The process ends here."""


def test_an_archive_in_an_object_store(
    spark: Any, tmp_path: Path, remote: RemoteTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two members, a crash between the two tables, a restored copy, and files that are joined."""
    members = [tmp_path / "m1", tmp_path / "m2"]
    for member in members:
        write(member, "/a/b", 1, 2)
    write_lines(members[0] / "messages", [b"{no row"])
    with monkeypatch.context() as patched:
        patched.setattr(delta, "commit", crash_for_rows(delta.commit, 3))
        with pytest.raises(PipelineError, match="archiving messages failed: crash"):
            run_archive(spark, members, remote)
    run_archive(spark, members, remote)
    assert sorted(row["seq"] for row in rows(remote)) == [1, 2]
    assert [row["line"] for row in rows(remote, "quarantine")] == [b"{no row"]
    assert segments.positions(members[0] / "messages") == {"archive": 3}
    shutil.copytree(members[0], tmp_path / "copy")
    write(members[0], "/a/b", 3)
    run_archive(spark, [members[0]], remote)
    assert history(remote, "/a/b")["content_text"].to_pylist() == ["1", "2", "3"]
    with pytest.raises(PipelineError, match="an older copy"):
        run_archive(spark, [tmp_path / "copy"], remote)
    files = len(DeltaTable(remote / "messages").file_uris())
    told: list[maintenance.Maintained] = []
    maintenance.run_maintain(spark, remote, told.append)
    assert {each.table: each.files for each in told}["messages"] == 1 < files
    assert history(remote, "/a/b")["seq"].to_pylist() == [1, 2, 3]
    assert run_archive(spark, [members[0]], remote) == []


def crash_for_rows(commit: Any, number: int) -> Any:
    """Crash before the commit of messages in a batch."""

    def wrapped(staged: delta.Staged, batch: delta.TableBatch) -> None:
        if batch.number == number and staged.table.table_uri.rstrip("/").endswith("messages"):
            raise CrashError("crash")
        commit(staged, batch)

    return wrapped


def test_the_numbers_of_checkpoints_are_kept(remote: RemoteTables) -> None:
    """`--new-source` counts up, and each journal of several has its own."""

    def opened(identifier: str, *, new: bool = False, several: bool = True) -> int:
        source = {"the journal": "/j", "the stream messages": identifier}
        found = checkpoints.opened(
            remote,
            "messages",
            source,
            new=new,
            identifier=identifier,
            several=several,
        )
        found.note(remote, 7, "mark")
        assert found.noted(remote) == (7, "mark")
        return found.number

    assert opened("a" * 32, several=False) == 1
    assert opened("b" * 32) == 2
    assert opened("a" * 32) == 1
    assert opened("a" * 32, new=True) == 3
    assert opened("b" * 32) == 2
    assert checkpoints.sources(remote, "messages") == 3
    with pytest.raises(PipelineError, match="is not the one that was archived before"):
        opened("c" * 32, several=False)
