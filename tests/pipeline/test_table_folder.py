"""The folders of Iceberg tables: their commits, their names, and what is forgotten of them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mdserver.pipeline.common import delta
from mdserver.pipeline.common.places import RemoteTables, Tables
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.iceberg import table_folder
from mdserver.pipeline.iceberg.job import export
from mdserver.pipeline.iceberg.table_folder import METADATA, TableFolder

from .test_export_iceberg import add_samples, opened, same_rows

pytestmark = pytest.mark.pipeline


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return tmp_path / "tables"


def test_a_folder_that_was_moved_gets_its_tables_anew(tmp_path: Path, tables: Path) -> None:
    add_samples(tables, 0, 2)
    export(tables, "stats")
    moved = tables.rename(tmp_path / "moved")
    add_samples(moved, 2, 2)
    assert export(moved, "stats").added == 2
    assert same_rows(moved, "stats") == 4


def test_old_metadata_is_forgotten(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = 3
    monkeypatch.setattr(table_folder, "VERSIONS_KEPT", kept)
    monkeypatch.setattr(table_folder, "LEFT_S", 0.0)
    folder = TableFolder.of(tables, "stats")
    most = 0
    for n in range(8 * kept):
        add_samples(tables, n, 1)
        export(tables, "stats")
        most = max(most, len(list((tables / folder.name / METADATA).iterdir())))
        assert same_rows(tables, "stats") == n + 1
    assert most < 8 * 2 * kept
    assert kept <= len(opened(tables, "stats").snapshots()) <= 2 * kept
    for snapshot in opened(tables, "stats").snapshots():
        assert len(opened(tables, "stats").scan(snapshot_id=snapshot.snapshot_id).to_arrow())


def test_another_writer_of_the_same_commit_is_a_line(tables: Path) -> None:
    add_samples(tables, 0, 1)
    export(tables, "stats")
    add_samples(tables, 1, 1)
    folder = TableFolder.of(tables, "stats")

    def meanwhile() -> None:
        folder.store.create(f"{folder.name}/{METADATA}/v3.metadata.json", b"{}")

    with pytest.raises(PipelineError, match=r"another process made commit 3"):
        export(tables, "stats", meanwhile)


def test_names_of_folders_are_as_they_are(tmp_path: Path) -> None:
    tables = tmp_path / "a b=1 ü"
    add_samples(tables, 0, 2)
    export(tables, "stats")
    assert same_rows(tables, "stats") == 2
    add_samples(tmp_path / "a#b", 0, 1)
    with pytest.raises(PipelineError, match="in folders without # and"):
        export(tmp_path / "a#b", "stats")


def test_a_hint_that_a_killed_writer_left_behind_is_put_right_by_the_next(tables: Path) -> None:
    add_samples(tables, 0, 1)
    export(tables, "stats")
    hint = tables / "iceberg" / "stats" / METADATA / table_folder.HINT
    before = hint.read_bytes()
    add_samples(tables, 1, 1)
    export(tables, "stats")
    hint.write_bytes(before)
    assert opened(tables, "stats").scan().to_arrow().num_rows == 1
    add_samples(tables, 2, 1)
    assert export(tables, "stats").added == 1
    assert same_rows(tables, "stats") == 3


@pytest.mark.parametrize("left", [b"2", b"", None])
def test_a_hint_is_put_right_although_nothing_changed_since(
    tables: Path, left: bytes | None
) -> None:
    add_samples(tables, 0, 1)
    export(tables, "stats")
    add_samples(tables, 1, 1)
    export(tables, "stats")
    hint = tables / "iceberg" / "stats" / METADATA / table_folder.HINT
    if left is None:
        hint.unlink()
    else:
        hint.write_bytes(left)
    versions = TableFolder.of(tables, "stats").versions()
    with pytest.raises(PipelineError, match="lost"):
        export(tables, "stats", lost)
    assert export(tables, "stats").added == 0
    assert same_rows(tables, "stats") == 2
    assert TableFolder.of(tables, "stats").versions() == versions
    # What is right is left alone.
    export(tables, "stats", lost)


def lost() -> None:
    raise PipelineError("the lock was lost")


def test_commits_without_files_are_forgotten_as_well(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of an archive that sets nothing aside is a version of `quarantine` without files."""
    kept = 3
    monkeypatch.setattr(table_folder, "VERSIONS_KEPT", kept)
    add_samples(tables, 0, 1)
    for n in range(6 * kept):
        delta.commit_nothing(tables, "stats", delta.TableBatch("job", n))
        export(tables, "stats")
        assert len(TableFolder.of(tables, "stats").versions()) <= 2 * kept
    assert same_rows(tables, "stats") == 1


def tidied(tables: Tables, held: Callable[[], None] = delta.nothing) -> set[str]:
    """What is in the folder of the metadata of `stats` after it was tidied."""
    folder = TableFolder.of(tables, "stats")
    table = folder.loaded()
    assert table is not None
    folder.tidy(table, held)
    return set(folder.store.sizes(f"{folder.name}/{METADATA}"))


def test_a_manifest_that_another_process_may_be_about_to_commit_stays(tables: Path) -> None:
    add_samples(tables, 0, 1)
    export(tables, "stats")
    metadata = tables / "iceberg" / "stats" / METADATA
    present = {path.name for path in metadata.iterdir()}
    committed = (metadata / "v2.metadata.json").stat().st_mtime
    for name, age_s in (("young.avro", 0), ("old.avro", 2 * table_folder.LEFT_S)):
        (metadata / name).touch()
        os.utime(metadata / name, (committed - age_s, committed - age_s))
    # Those that the table needs stay at any age.
    for path in metadata.glob("snap-*.avro"):
        os.utime(path, (0, 0))
    with pytest.raises(PipelineError, match="lost"):
        tidied(tables, lost)
    assert (metadata / "old.avro").exists()
    assert tidied(tables) == present | {"young.avro"}
    assert same_rows(tables, "stats") == 1


def test_an_object_store_is_tidied_by_its_own_clock(
    remote: RemoteTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_samples(remote, 0, 1)
    folder = TableFolder.of(remote, "stats")
    left = f"{folder.name}/{METADATA}/left.avro"
    assert folder.store.create(left, b"")
    export(remote, "stats")
    assert "left.avro" in tidied(remote)
    monkeypatch.setattr(table_folder, "LEFT_S", 0.0)
    with pytest.raises(PipelineError, match="lost"):
        tidied(remote, lost)
    assert "left.avro" not in tidied(remote)
    assert same_rows(remote, "stats") == 1
