"""A place that members share refuses what an older copy of a journal would send."""

import shutil
from pathlib import Path

import pytest

from mdserver.journal import segments
from mdserver.pipeline.common import shipped
from mdserver.pipeline.common.object_store import ObjectStore
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.ship.destination import READER, SharedPlace, Shipped
from mdserver.pipeline.ship.job import run_ship

from .conftest import write_lines
from .shipping import delete, lines_of, ship


def test_an_older_copy_of_a_journal_is_refused(store: ObjectStore, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write_lines(journal / "messages", [b"1"])
    shutil.copytree(journal, tmp_path / "copy")
    write_lines(journal / "messages", [b"2"])
    ship(journal, store)
    write_lines(tmp_path / "copy" / "messages", [b"other"])
    with pytest.raises(PipelineError, match="the journal is an older copy"):
        ship(tmp_path / "copy", store)
    assert lines_of(store) == [b"1", b"2"]
    assert segments.positions(tmp_path / "copy" / "messages")[READER] == 1


def test_an_older_copy_is_refused_although_its_numbers_were_deleted(
    store: ObjectStore, tmp_path: Path
) -> None:
    """A rule of the bucket deletes what is old, so the copy's own numbers are free there."""
    journal = tmp_path / "journal"
    write_lines(journal / "messages", [b"1"])
    write_lines(journal / "stats", [b"s"])
    shutil.copytree(journal, tmp_path / "copy")
    for line in (b"2", b"3", b"4"):
        write_lines(journal / "messages", [line])
    ship(journal, store)
    (stream,) = (each for each in shipped.found(store) if each.stream == "messages")
    for number in (1, 2, 3):
        delete(store, shipped.name_of("messages", stream.identifier, number))
    write_lines(tmp_path / "copy" / "messages", [b"other"])
    write_lines(tmp_path / "copy" / "stats", [b"t"])
    with pytest.raises(PipelineError, match=r"has segment 4, .*the journal is an older copy"):
        ship(tmp_path / "copy", store)
    assert lines_of(store) == [b"4"]
    assert lines_of(store, "stats") == [b"s", b"t"], "the other streams are sent"


def test_an_older_copy_is_noticed_while_the_job_runs(store: ObjectStore, tmp_path: Path) -> None:
    """The journal and a copy of it are shipped at the same time."""
    journal, copy = tmp_path / "journal", tmp_path / "copy"
    write_lines(journal / "messages", [b"1"])
    shutil.copytree(journal, copy)
    for number in range(2, 5):
        write_lines(copy / "messages", [b"copy %d" % number])

    def other(sent: Shipped) -> None:
        told.append(sent.segment)
        if sent.segment == 2:
            for number in range(2, 6):
                write_lines(journal / "messages", [b"%d" % number])
            for number in range(1, 6):
                stored = (journal / "messages" / f"seg-{number:012d}.jsonl").read_bytes()
                store.create(shipped.name_of("messages", identifier, number), stored)
            delete(store, shipped.name_of("messages", identifier, 3))

    told: list[int] = []
    known = segments.identified(journal / "messages")
    assert known is not None
    identifier = known.identifier
    with pytest.raises(PipelineError, match=r"has segment 5, .*the journal is an older copy"):
        run_ship(copy, SharedPlace(store), other, once=True)
    assert told == [1, 2]
