"""Rows of the journal say what the entry said."""

import base64
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

import msgspec
import pytest

from mdserver.core.message import Entry, Publication, Qos, checksum
from mdserver.journal.rows import CommittedEnd, MessageRow, Tail, message_row, written
from mdserver.journal.segments import Segment
from mdserver.limits import NS_PER_S

NOW = 1_700_000_000_123_456_789


def line(publication: Publication, epoch: int = 2, seq: int = 5) -> dict[str, object]:
    row = message_row(Entry(epoch, seq, publication), 7, "h1", "n1", NOW)
    decoded: dict[str, object] = msgspec.json.decode(msgspec.json.encode(row))
    assert msgspec.json.decode(msgspec.json.encode(row), type=MessageRow) == row
    return decoded


def test_text_stands_as_text() -> None:
    row = line(Publication("/a/ü", "héllo".encode(), fields={"bid": "1"}, time=NOW - 5_000))
    assert row["content"] == "héllo"
    assert "content_base64" not in row
    assert row["fields"] == {"bid": "1"}
    assert (row["ts_server"], row["ts_pub"]) == (1_700_000_000_123_456, 1_700_000_000_123_451)


def test_bytes_stand_as_base64() -> None:
    row = line(Publication("/a/b", b"\xff\x00", text=False))
    assert base64.b64decode(str(row["content_base64"])) == b"\xff\x00"
    assert "content" not in row


def test_the_checksum_covers_place_and_content() -> None:
    whole = crc32(b"/a/b|2|5|x")
    assert checksum("/a/b", 2, 5, b"x") == whole
    assert line(Publication("/a/b", b"x"))["crc"] == whole
    others = {
        checksum("/a/c", 2, 5, b"x"),
        checksum("/a/b", 1, 5, b"x"),
        checksum("/a/b", 2, 6, b"x"),
    }
    assert len(others | {whole, checksum("/a/b", 2, 5, b"y")}) == 5


def test_what_differs_from_the_default_is_written() -> None:
    row = line(
        Publication("/a/b", b"", retained=False, qos=Qos.STANDARD, publisher="p", number=3), 0, 0
    )
    assert (row["retained"], row["qos"], row["publisher"], row["number"]) == (
        False,
        "STANDARD",
        "p",
        3,
    )
    assert {"closure", "compressed", "reply_subject"}.isdisjoint(row)


class Rows:
    """Segments of rows of three groups, and the ends of groups that are not committed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.segments: list[Segment] = []
        self.read: list[int] = []

    def add(self, modified: int, *rows: tuple[int, int], history: str = "h") -> None:
        """A segment with a row for each (group, seq)."""
        number = len(self.segments) + 1
        path = self.folder / f"seg-{number:012d}.jsonl"
        lines = [
            msgspec.json.encode(
                message_row(
                    Entry(1, seq, Publication(f"/g/{group}", b"x")), group, history, "n", NOW
                )
            )
            for group, seq in rows
        ]
        path.write_bytes(b"".join(line + b"\n" for line in [b"{torn", *lines]))
        self.segments.append(Segment(number, path, path.stat().st_size, modified))

    def written(
        self,
        time: int,
        *places: tuple[int, int],
        committed: Mapping[int, int] | None = None,
        reread: int = 0,
    ) -> set[tuple[int, int]]:
        """What has a row, of places and of what is beyond `committed` (group -> last number)."""
        wanted = {(f"/g/{group}", 1, seq): Tail(group, time) for group, seq in places}
        ends = {
            group: CommittedEnd("h", {f"/g/{group}": seq} if seq else {}, 0)
            for group, seq in (committed or {}).items()
        }
        found = written(self.segments, wanted, ends, reread)
        return {(int(subject.removeprefix("/g/")), seq) for subject, _, seq in found}


MINUTE = 60 * NS_PER_S


def test_a_row_is_found_whatever_the_times_of_segments_are(tmp_path: Path) -> None:
    rows = Rows(tmp_path)
    rows.add(90 * MINUTE, (1, 1), (2, 1))
    rows.add(1 * MINUTE, (1, 2), (1, 3))
    rows.add(2 * MINUTE, (2, 2))
    assert rows.written(99 * MINUTE, (1, 3), (1, 4), (2, 2), reread=1 << 20) == {(1, 3), (2, 2)}


def test_segments_before_a_row_of_each_group_are_not_read(tmp_path: Path) -> None:
    rows = Rows(tmp_path)
    rows.add(9 * MINUTE, (1, 1))
    rows.add(9 * MINUTE, (1, 2), (1, 3))
    rows.segments[0].path.unlink()
    assert rows.written(9 * MINUTE, (1, 3)) == {(1, 3)}


def test_a_group_without_any_row_reads_what_is_recent_and_a_bounded_rest(tmp_path: Path) -> None:
    rows = Rows(tmp_path)
    for minute in range(5):
        rows.add(minute * MINUTE, (2, minute + 1))
    rows.segments[0].path.unlink()
    size = rows.segments[0].size_bytes
    assert rows.written(5 * MINUTE, (1, 1), reread=4 * size) == set()
    with pytest.raises(FileNotFoundError):
        rows.written(5 * MINUTE, (1, 1), reread=4 * size + 1)
    with pytest.raises(FileNotFoundError):
        rows.written(1 * MINUTE, (1, 1), reread=0)


def test_without_uncommitted_entries_nothing_is_read(tmp_path: Path) -> None:
    rows = Rows(tmp_path)
    rows.add(9 * MINUTE, (1, 1))
    rows.segments[0].path.unlink()
    assert rows.written(0) == set()


def test_rows_beyond_the_log_are_found_in_the_last_segments(tmp_path: Path) -> None:
    rows = Rows(tmp_path)
    rows.add(1 * MINUTE, (1, 1), (2, 1))
    rows.add(2 * MINUTE, (1, 2), (2, 2))
    rows.add(3 * MINUTE, (2, 3), (1, 3))
    rows.add(4 * MINUTE, (3, 1), (1, 4))
    rows.segments[0].path.unlink()
    committed = {1: 2, 2: 2, 3: 0}
    found = {(2, 3), (1, 3), (3, 1), (1, 4)}
    assert rows.written(0, committed=committed, reread=1 << 20) == found


def test_no_more_than_a_bounded_rest_is_looked_at_for_rows_beyond_the_log(tmp_path: Path) -> None:
    rows = Rows(tmp_path)
    rows.add(1 * MINUTE, (1, 1))
    rows.add(2 * MINUTE, (1, 2))
    assert rows.written(0, committed={1: 0}, reread=rows.segments[1].size_bytes) == {(1, 2)}


def test_rows_of_another_history_are_not_those_of_the_log(tmp_path: Path) -> None:
    rows = Rows(tmp_path)
    rows.add(1 * MINUTE, (1, 7), history="before")
    rows.add(2 * MINUTE, (1, 1), (1, 2))
    assert rows.written(0, committed={1: 1}, reread=1 << 20) == {(1, 2)}


def test_a_row_of_what_replaces_the_uncommitted_end_is_found(tmp_path: Path) -> None:
    """The log ends with an entry that lost its place to one of which there is a row already."""
    rows = Rows(tmp_path)
    rows.add(1 * MINUTE, (1, 1), (1, 2))
    replaced = {("/g/1", 0, 2): Tail(1, NOW)}
    end = {1: CommittedEnd("h", {"/g/1": 1}, 0)}
    assert written(rows.segments, replaced, end) == {("/g/1", 1, 2)}
