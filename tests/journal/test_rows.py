"""Rows of the journal say what the entry said."""

import base64
from zlib import crc32

import msgspec

from mdserver.core.message import Entry, Publication, Qos, checksum
from mdserver.journal.rows import MessageRow, message_row

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
