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
from mdserver.pipeline.common.tail import TailReader

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
    assert reader.latestOffset(second, ReadAllAvailable()) == second


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
        assert batch.to_pylist() == [{"value": None, "src_partition": number, "src_pos": number}]


def test_what_is_done_with_may_be_deleted(tmp_path: Path) -> None:
    TailReader(tmp_path).commit({"segment": 4, "position": 17})
    assert segments.positions(tmp_path) == {"derive": 3}
