"""The archive of a place that members ship to: each message once, whoever comes and goes."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from mdserver.core.message import Publication
from mdserver.pipeline.archive import job as archive_job
from mdserver.pipeline.archive.batches import Archived
from mdserver.pipeline.common import object_store
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.sources import JournalSource
from mdserver.pipeline.ship.destination import SharedPlace
from mdserver.pipeline.ship.job import run_ship

from .conftest import write_messages

pytestmark = pytest.mark.pipeline


def write(journal: Path, subject: str, seq: int = 1) -> None:
    write_messages(journal, [Publication(subject, b"x")], seq)


def ship(journal: Path, place: str) -> None:
    run_ship(journal, SharedPlace(object_store.opened(place)), lambda _: None, once=True)


def run_archive(spark: Any, place: str, folder: Path) -> list[Archived]:
    told: list[Archived] = []
    archive_job.run_archive(
        spark, [], folder, told.append, once=True, shipped=object_store.opened(place)
    )
    return told


def places(folder: Path) -> list[tuple[str, int]]:
    rows = DeltaTable(folder / "messages").to_pyarrow_table().to_pylist()
    return sorted((row["subject"], row["seq"]) for row in rows)


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_what_members_shipped_is_archived_once(
    spark: Any, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Two members with the same messages, and a third that comes later with one more."""
    place, tables = str(tmp_path / "place"), tmp_path / "tables"
    if kind == "s3":
        place = f"{request.getfixturevalue('bucket')}/{tmp_path.name}"
    else:
        (tmp_path / "place").mkdir()
    with pytest.raises(PipelineError, match="nothing was shipped to this place"):
        run_archive(spark, place, tables)
    for member in ("m1", "m2"):
        write(tmp_path / member, "/a/1")
        write(tmp_path / member, "/a/2")
        ship(tmp_path / member, place)
    assert sum(each.rows or 0 for each in run_archive(spark, place, tables)) == 2
    write(tmp_path / "m3", "/a/2")
    write(tmp_path / "m3", "/a/2", 2)
    ship(tmp_path / "m3", place)
    assert sum(each.rows or 0 for each in run_archive(spark, place, tables)) == 1
    assert places(tables) == [("/a/1", 1), ("/a/2", 1), ("/a/2", 2)]
    assert run_archive(spark, place, tables) == []


def test_an_older_copy_that_was_shipped_alone_is_refused(spark: Any, tmp_path: Path) -> None:
    """The place has nothing that was archived any more, and gets what a restored journal has."""
    journal, place, tables = tmp_path / "journal", tmp_path / "place", tmp_path / "tables"
    place.mkdir()
    write(journal, "/a/1")
    shutil.copytree(journal, tmp_path / "copy")
    for subject in ("/a/2", "/a/3", "/a/4"):
        write(journal, subject)
    ship(journal, str(place))
    run_archive(spark, str(place), tables)
    assert run_archive(spark, str(place), tables) == []
    for path in place.rglob("seg-*"):
        path.unlink()
    assert run_archive(spark, str(place), tables) == [], "nothing is there to compare with"
    write(tmp_path / "copy", "/a/5")
    ship(tmp_path / "copy", str(place))
    with pytest.raises(PipelineError, match="an older copy: its last segment is 2, and 4"):
        run_archive(spark, str(place), tables)


def test_a_journal_that_was_archived_where_it_was_is_gone_on_with(
    spark: Any, tmp_path: Path
) -> None:
    journal, place, tables = tmp_path / "journal", tmp_path / "place", tmp_path / "tables"
    place.mkdir()
    write(journal, "/a/1")
    archive_job.run_archive(spark, JournalSource(journal), tables, lambda _: None, once=True)
    write(journal, "/a/2")
    ship(journal, str(place))
    run_archive(spark, str(place), tables)
    assert places(tables) == [("/a/1", 1), ("/a/2", 1)]
