"""Rows of a batch: their events, and how far each part of the source has come."""

import base64
import zlib
from typing import Any

import pytest

from mdserver.pipeline.derive.operators import WatchedMessage
from mdserver.pipeline.derive.watched_rows import aside, clocks_of, event_of, reached_by_all

PLACE = {"src_kind": "kafka", "src_topic": "t.messages", "src_partition": 3, "src_pos": 17}
ROW: dict[str, Any] = {
    **PLACE,
    "reason": None,
    "ts": 5,
    "subject": "/a/b",
    "fields": [("unit", "km/h")],
    "content": None,
    "content_base64": None,
    "compressed": None,
    "value": b"{}",
}


def coded(content: bytes) -> str:
    return base64.b64encode(content).decode()


@pytest.mark.parametrize(
    ("changed", "content"),
    [
        ({"content": "42"}, {"content": "42"}),
        ({"content_base64": coded(b"\xff")}, {}),
        ({"content_base64": coded(zlib.compress(b"42")), "compressed": True}, {"content": "42"}),
    ],
)
def test_content_is_a_field_if_it_is_text(changed: dict[str, Any], content: dict[str, str]) -> None:
    assert event_of(ROW | changed) == WatchedMessage("/a/b", 5, {"unit": "km/h", **content})


def test_partitions_of_the_same_number_in_two_topics_have_clocks_of_their_own() -> None:
    rows = [
        ROW | {"ts": 9},
        ROW | {"ts": 7},
        ROW | {"ts": 4, "src_topic": "other.messages"},
        ROW | {"ts": None, "reason": "no JSON", "src_partition": 4},
    ]
    assert clocks_of(rows) == {"t.messages/3": 9, "other.messages/3": 4}
    assert reached_by_all(clocks_of(rows)) == 4
    assert reached_by_all({}) is None


def test_segments_of_a_journal_have_one_clock() -> None:
    journal = {"src_kind": "journal", "src_topic": None}
    assert clocks_of([ROW | journal, ROW | journal | {"src_partition": 9, "ts": 8}]) == {
        "journal": 8
    }


def test_a_line_is_set_aside_as_text() -> None:
    row = aside(ROW | {"value": b"\xff{"}, "no JSON")
    assert (row["line"], row["reason"], row["src_pos"]) == ("�{", "no JSON", 17)
