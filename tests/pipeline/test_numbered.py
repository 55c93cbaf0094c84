"""Segments by their numbers: everything once and in order, or named as missing."""

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from mdserver.journal import segments
from mdserver.journal.segments import StreamWriter
from mdserver.pipeline.archive.journal import plan
from mdserver.pipeline.common.numbered import Missing, existing, opened, sealed, walk
from mdserver.pipeline.common.stream_segments import FolderSegments

YEAR_S = 365 * 86_400


def put(folder: Path, *numbers: int, opened: int | None = None) -> None:
    for number in numbers:
        sealed(folder, number).write_bytes(b"line\n")
    if opened is not None:
        sealed(folder, opened).with_suffix(".open").write_bytes(b"li")


def test_a_segment_that_is_sealed_as_it_is_opened_is_no_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, opened=1)
    really = Path.open

    def seal_first(path: Path, *mode: Any) -> Any:
        if path.suffix == ".open":
            path.rename(sealed(tmp_path, 1))
        return really(path, *mode)

    monkeypatch.setattr(Path, "open", seal_first)
    with opened(tmp_path, 1) as file:
        assert file.read() == b"li"


def test_what_is_there_and_what_is_missing(tmp_path: Path) -> None:
    assert list(walk(tmp_path, 1)) == []
    put(tmp_path, 3, 4, 7, opened=9)
    assert list(walk(tmp_path, 1)) == [Missing(1, 2), 3, 4, Missing(5, 6), 7, Missing(8, 8), 9]
    assert list(walk(tmp_path, 4)) == [4, Missing(5, 6), 7, Missing(8, 8), 9]
    assert list(walk(tmp_path, 10)) == []
    assert [str(Missing(1, 2)), str(Missing(8, 8))] == [
        "segments 1 to 2 are missing",
        "segment 8 is missing",
    ]


def test_a_name_with_a_number_beyond_all_others_costs_nothing(tmp_path: Path) -> None:
    put(tmp_path, 1, 10**12 - 1)
    assert list(walk(tmp_path, 1)) == [1, Missing(2, 10**12 - 2), 10**12 - 1]


def test_a_file_that_a_listing_misses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is renamed while a folder is read may be in no listing."""
    put(tmp_path, 1, 2, 3)
    monkeypatch.setattr(segments, "numbers", lambda _: [1, 3])
    assert list(walk(tmp_path, 1)) == [1, 2, 3]


def test_batches_end_before_what_is_open_and_at_a_limit(tmp_path: Path) -> None:
    put(tmp_path, 1, 2, 3, opened=4)
    everything = plan(FolderSegments(tmp_path), 0, 1000)
    assert everything is not None
    assert (everything.numbers, everything.missing, everything.end) == ((1, 2, 3), (), 3)
    two = plan(FolderSegments(tmp_path), 0, 10)
    assert two is not None
    assert two.numbers == (1, 2)
    one = plan(FolderSegments(tmp_path), 0, 1)
    assert one is not None
    assert one.numbers == (1,)
    assert plan(FolderSegments(tmp_path), 3, 1000) is None
    assert plan(FolderSegments(tmp_path / ".."), 0, 1000) is None


def test_a_hole_is_named_once_something_after_it_is_sealed(tmp_path: Path) -> None:
    put(tmp_path, 1, opened=4)
    planned = plan(FolderSegments(tmp_path), 0, 1000)
    assert planned is not None
    assert (planned.numbers, planned.missing) == ((1,), ())
    put(tmp_path, 4)
    sealed(tmp_path, 4).with_suffix(".open").unlink()
    planned = plan(FolderSegments(tmp_path), 1, 1000)
    assert planned is not None
    assert (planned.numbers, planned.missing, planned.end) == ((), (Missing(2, 3),), 3)
    planned = plan(FolderSegments(tmp_path), 3, 1000)
    assert planned is not None
    assert (planned.numbers, planned.missing) == ((4,), ())


def test_a_batch_that_is_repeated_ends_where_it_did(tmp_path: Path) -> None:
    put(tmp_path, 1, 2, 3, 4)
    again = plan(FolderSegments(tmp_path), 1, 1, end=3)
    assert again is not None
    assert (again.numbers, again.end) == ((2, 3), 3)
    for number in (2, 3):
        sealed(tmp_path, number).unlink()
    again = plan(FolderSegments(tmp_path), 1, 1, end=3)
    assert again is not None
    assert (again.numbers, again.missing, again.end) == ((), (Missing(2, 2), Missing(3, 3)), 3)


class World:
    """A server that writes a journal, an operator who spoils it, and a reader that goes on."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder = folder / "journal"
        self.rng = rng
        self.written: dict[int, list[bytes]] = {}
        self.read: list[bytes] = []
        self.after = 0
        self.lost: set[int] = set()
        self.count = 0

    def write(self) -> None:
        with StreamWriter(self.folder, 40) as writer:
            for _ in range(self.rng.randrange(1, 6)):
                self.count += 1
                line = b"line %d" % self.count
                writer.append([line])
                writer.sync()
        for segment in segments.sealed(self.folder):
            self.written[segment.number] = segment.path.read_bytes().splitlines()

    def set_clocks(self) -> None:
        for segment in segments.sealed(self.folder):
            moment = self.rng.uniform(0, 60) * YEAR_S
            os.utime(segment.path, (moment, moment))

    def delete(self) -> None:
        for segment in segments.sealed(self.folder):
            if self.rng.random() < 0.2:
                segment.path.unlink()

    def empty(self) -> None:
        for path in segments.paths(self.folder):
            path.unlink()

    def move(self) -> None:
        fresh = self.folder.with_name(f"journal {self.count}")
        if self.folder.exists() and not fresh.exists():
            shutil.copytree(self.folder, fresh)
            shutil.rmtree(self.folder)
            self.folder = fresh

    def archive(self) -> None:
        if not self.folder.exists():
            return
        end = None
        planned = plan(FolderSegments(self.folder), self.after, self.rng.choice([1, 60, 1000]))
        if planned is not None and self.rng.random() < 0.3:  # ended in the middle
            end = planned.end
            if self.rng.random() < 0.3:
                self.delete()
            # Only a batch of lines is repeated up to its end; a hole is planned anew.
            planned = plan(
                FolderSegments(self.folder), self.after, 1, end if planned.numbers else None
            )
        if planned is None:
            return
        for number in planned.numbers:
            path = existing(self.folder, number)
            assert path is not None
            self.read += path.read_bytes().splitlines()
        for hole in planned.missing:
            self.lost |= set(range(hole.first, hole.last + 1))
        self.after = planned.end
        segments.set_position(self.folder, "archive", self.after)
        gone = segments.read_by_all(segments.sealed(self.folder), segments.positions(self.folder))
        for segment in gone:
            segment.path.unlink()


@pytest.mark.parametrize("seed", range(20))
def test_everything_is_read_once_or_named(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    world = World(tmp_path, rng)
    doings = [world.write] * 4 + [world.archive] * 4 + [world.set_clocks, world.delete, world.move]
    doings.append(world.empty)
    world.write()
    for _ in range(25):
        rng.choice(doings)()
    world.write()
    while True:
        before = world.after
        world.archive()
        if world.after == before:
            break
    wanted = [
        line
        for number, lines in sorted(world.written.items())
        if number not in world.lost
        for line in lines
    ]
    assert world.read == wanted
    assert not world.lost & {n for n, lines in world.written.items() if lines[0] in world.read}
