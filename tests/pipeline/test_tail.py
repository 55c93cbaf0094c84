"""Following a journal: every whole line once, across sealing, torn ends and limits."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from mdserver.journal import segments
from mdserver.journal.segments import StreamWriter
from mdserver.pipeline.common import tail
from mdserver.pipeline.common.tail import SegmentRange, TailReader

START = {"segment": 0, "position": 0}


def read(reader: TailReader, start: dict[str, int], end: dict[str, int]) -> list[str]:
    parts = reader.partitions(start, end)
    batches = [batch for part in parts for batch in reader.read(part)]
    return list(pa.Table.from_batches(batches, tail.COLUMNS)["value"].to_pylist())


def test_lines_of_the_open_segment_are_read_and_stay_where_they_are(tmp_path: Path) -> None:
    reader = TailReader(tmp_path)
    with StreamWriter(tmp_path, 1 << 20) as writer:
        assert reader.latestOffset(START, ReadAllAvailable()) == START
        writer.append([b"one", b"two"])
        first = reader.latestOffset(START, ReadAllAvailable())
        assert first == {"segment": 1, "position": 8}
        assert read(reader, START, first) == ["one", "two"]
        writer.append(["drei ü".encode()])
        writer.seal()
        writer.append([b"four"])
        second = reader.latestOffset(first, ReadAllAvailable())
        assert read(reader, first, second) == ["drei ü", "four"]
    assert read(reader, START, second) == ["one", "two", "drei ü", "four"]
    third = reader.latestOffset(second, ReadAllAvailable())
    assert third == {"segment": 3, "position": 0}  # the second segment is sealed
    assert read(reader, second, third) == []
    assert reader.latestOffset(third, ReadAllAvailable()) == third


def test_half_a_line_waits_for_the_other_half(tmp_path: Path) -> None:
    reader = TailReader(tmp_path)
    path = tmp_path / "seg-000000000001.open"
    path.write_bytes(b"whole\nhal")
    end = reader.latestOffset(START, ReadAllAvailable())
    assert end == {"segment": 1, "position": 6}
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    path.write_bytes(b"whole\nhalf\n")
    assert read(reader, end, reader.latestOffset(end, ReadAllAvailable())) == ["half"]


def test_a_line_longer_than_what_is_searched_at_a_time(tmp_path: Path) -> None:
    reader = TailReader(tmp_path)
    long = "x" * (2 * tail.READ_BYTES + 7)
    (tmp_path / "seg-000000000001.open").write_text(f"a\n{long}\n{long}")
    assert read(reader, START, reader.latestOffset(START, ReadAllAvailable())) == ["a", long]


@pytest.mark.parametrize("limit", [20, 64, 1000])
def test_batches_under_a_limit_read_everything_once(tmp_path: Path, limit: int) -> None:
    rng = random.Random(limit)
    wanted = [f"line {number} {'x' * rng.randrange(9)}" for number in range(300)]
    reader, at, got = TailReader(tmp_path), START, []
    with StreamWriter(tmp_path, 500) as writer:
        for index in range(0, 300, 7):
            writer.append([line.encode() for line in wanted[index : index + 7]])
            end = reader.latestOffset(at, ReadMaxBytes(limit))
            got += read(reader, at, end)
            at = end
    while (end := reader.latestOffset(at, ReadMaxBytes(limit))) != at:
        lines = read(reader, at, end)
        assert sum(len(line) + 1 for line in lines) <= limit
        got += lines
        at = end
    assert got == wanted


def test_a_range_without_a_whole_line_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "seg-000000000001.open").write_bytes(b"half")
    (batch,) = TailReader(tmp_path).read(SegmentRange(1, 0, 4))
    assert batch.num_rows == 0


def test_only_the_last_line_of_a_range_is_the_last(tmp_path: Path) -> None:
    (tmp_path / "seg-000000000001.open").write_bytes(b"one\ntwo\nsix\n")
    (batch,) = TailReader(tmp_path).read(SegmentRange(1, 0, 12))
    assert batch.column("last").to_pylist() == [False, False, True]


def test_a_run_until_caught_up_ignores_what_comes_later(tmp_path: Path) -> None:
    reader = TailReader(tmp_path)
    with StreamWriter(tmp_path, 10) as writer:
        writer.append([b"first"])
        writer.append([b"second"])
        reader.prepareForTriggerAvailableNow()
        writer.append([b"third"])
        end = reader.latestOffset(START, ReadAllAvailable())
        assert read(reader, START, end) == ["first", "second"]
        assert reader.latestOffset(end, ReadMaxBytes(100)) == end


def test_what_was_deleted_is_named(tmp_path: Path) -> None:
    reader = TailReader(tmp_path)
    with StreamWriter(tmp_path, 4) as writer:
        for line in (b"one", b"two", b"six"):
            writer.append([line])
    (tmp_path / "seg-000000000002.jsonl").unlink()
    end = reader.latestOffset(START, ReadAllAvailable())
    assert read(reader, START, end) == ["one", None, "six"]
    (part, hole, _) = reader.partitions(START, end)
    (tmp_path / "seg-000000000001.jsonl").unlink()
    for each, number in ((part, 1), (hole, 2)):
        (batch,) = reader.read(each)
        (row,) = batch.to_pylist()
        assert (row["value"], row["src_partition"], row["src_pos"]) == (None, number, number)


def test_what_is_done_with_may_be_deleted(tmp_path: Path) -> None:
    TailReader(tmp_path).commit({"segment": 4, "position": 17})
    assert segments.positions(tmp_path) == {"derive": 3}


class Following:
    """A server that writes, limits that delete, and a job that follows and is started again."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder = folder
        self.rng = rng
        self.at = START
        self.written: dict[int, list[str]] = {}
        self.read: list[str] = []
        self.missing: set[int] = set()
        self.count = 0

    def write(self) -> None:
        with StreamWriter(self.folder, 40) as writer:
            for _ in range(self.rng.randrange(1, 6)):
                self.count += 1
                writer.append([b"line %d" % self.count])
                if self.rng.random() < 0.5:
                    writer.sync()
                    self.note()
                    self.follow(TailReader(self.folder))
        self.note()

    def note(self) -> None:
        for path in segments.paths(self.folder):
            self.written[int(path.name[4:16])] = path.read_text().splitlines()

    def delete(self) -> None:
        """Segments are deleted by the limits of the journal, the oldest first."""
        found = segments.sealed(self.folder)
        for segment in found[: self.rng.randrange(len(found) + 1)]:
            segment.path.unlink()

    def lose(self) -> None:
        for segment in segments.sealed(self.folder):
            if self.rng.random() < 0.2:
                segment.path.unlink()

    def follow(self, reader: TailReader | None = None) -> None:
        reader = reader or TailReader(self.folder)
        limit = self.rng.choice([ReadAllAvailable(), ReadMaxBytes(self.rng.choice([20, 100]))])
        if self.rng.random() < 0.3:
            reader.prepareForTriggerAvailableNow()
        end = reader.latestOffset(self.at, limit)
        assert (end["segment"], end["position"]) >= (self.at["segment"], self.at["position"])
        if end == self.at:
            return
        parts = reader.partitions(self.at, end)
        if self.rng.random() < 0.2:
            self.lose()
        for part in parts:
            for row in (row for batch in reader.read(part) for row in batch.to_pylist()):
                if row["value"] is None:
                    self.missing |= set(range(row["src_partition"], row["src_pos"] + 1))
                else:
                    self.read.append(row["value"])
        reader.commit(end)
        self.at = end


@pytest.mark.parametrize("seed", range(40))
def test_every_line_is_read_once_or_its_segment_is_named(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    world = Following(tmp_path, rng)
    world.write()
    world.follow()
    for _ in range(25):
        doings = [world.write] * 4 + [world.follow] * 5 + [world.delete, world.lose]
        rng.choice(doings)()
    world.write()
    while True:
        before = world.at
        world.follow()
        if world.at == before:
            break
    lacking = [
        (number, line)
        for number, lines in world.written.items()
        if number not in world.missing
        for line in lines
        if line not in world.read
    ]
    assert lacking == []
    assert len(world.read) == len(set(world.read))


def test_a_segment_with_lines_that_were_not_read_is_named(tmp_path: Path) -> None:
    """It was read in part, and deleted by a limit of the journal before the rest was read."""
    reader = TailReader(tmp_path)
    with StreamWriter(tmp_path, 1 << 20) as writer:
        writer.append([b"one"])
        at = reader.latestOffset(START, ReadAllAvailable())
        writer.append([b"two"])
        writer.seal()
        writer.append([b"six"])
        (tmp_path / "seg-000000000001.jsonl").unlink()
        end = reader.latestOffset(at, ReadAllAvailable())
    assert read(reader, at, end) == [None, "six"]


def test_a_segment_that_was_read_to_its_end_is_not_named(tmp_path: Path) -> None:
    reader = TailReader(tmp_path)
    with StreamWriter(tmp_path, 1 << 20) as writer:
        writer.append([b"one"])
        at = reader.latestOffset(START, ReadAllAvailable())
        writer.seal()
        at = reader.latestOffset(at, ReadAllAvailable())
        (tmp_path / "seg-000000000001.jsonl").unlink()
        writer.append([b"two"])
        end = reader.latestOffset(at, ReadAllAvailable())
    assert read(reader, at, end) == ["two"]
