"""Where the copy of a partition begins, and which topics can keep what was copied."""

import json
from typing import Any

import pytest
from attrs import define

from mdserver.bridge.beginning import Beginning, PartitionNow, PartitionRow, beginning
from mdserver.bridge.ledger import BridgeError, Ledger, row_key, unfit
from mdserver.bridge.outward import Seen, restored
from mdserver.client import Numbering

NOW = PartitionNow("t", 0, "id", 5, 9)
KEPT = {"groups": 4, "taken": {"1": 3}, "publisher": "p", "publisher_key": "k"}
NUMBERING = Numbering(4, {1: 3}, "p", "k")


def row(offset: int, **more: Any) -> dict[str, Any]:
    return {"topic": "id", "offset": offset, "rules": "r", "numbering": KEPT, **more}


def begin(rows: dict[str, Any], *, from_beginning: bool = False) -> Beginning:
    return beginning(NOW, rows, "r", from_beginning=from_beginning)


def test_a_first_start_begins_at_the_end_unless_it_is_told_otherwise() -> None:
    assert begin({}) == Beginning(9)
    assert begin({"tt/0": row(1)}) == Beginning(9)
    assert begin({}, from_beginning=True) == Beginning(5)


def test_a_partition_that_a_known_topic_got_meanwhile_begins_at_its_beginning() -> None:
    assert begin({"t/1": row(100)}) == Beginning(5)


def test_a_later_start_goes_on_under_the_same_numbers() -> None:
    assert begin({"t/0": row(7)}) == Beginning(7, NUMBERING)
    assert begin({"t/0": row(9, beyond=[11, 12])}) == Beginning(9, NUMBERING, frozenset({11, 12}))


def test_other_rules_number_anew() -> None:
    found = begin({"t/0": row(7, rules="others", beyond=[8])})
    assert (found.offset, found.numbering, found.beyond) == (7, None, frozenset({8}))
    assert "may be copied twice" in (found.told or "")


def test_what_retention_removed_is_told() -> None:
    found = begin({"t/0": row(2)})
    assert (found.offset, found.numbering) == (5, NUMBERING)
    assert "retention removed the records from 2 to 4" in (found.told or "")


@pytest.mark.parametrize(
    ("kept", "said"),
    [(row(10), "has lost records"), (row(7, topic="other"), "was created again")],
)
def test_a_topic_that_is_another_one_is_copied_from_its_beginning(
    kept: dict[str, Any], said: str
) -> None:
    found = begin({"t/0": kept})
    assert (found.offset, found.numbering, found.beyond) == (5, None, frozenset())
    assert said in (found.told or "")


def test_rows_are_those_of_one_name() -> None:
    assert row_key("a", b"a t/0") == "t/0"
    assert row_key("a b", b"a b t/0") == "t/0"
    assert row_key("a", b"ab t/0") is None
    assert row_key("a", None) is None
    assert row_key("a", b"\xff") is None


def test_a_topic_that_cannot_keep_rows_is_refused() -> None:
    assert unfit(1, "compact") is None
    assert unfit(3, "compact") == "it has 3 partitions: the topic of a bridge's state has one"
    assert "needs a compacted topic" in (unfit(1, "delete") or "")
    assert "retention would delete" in (unfit(1, "compact,delete") or "")


def test_positions_that_are_gone_and_those_of_other_patterns_are_not_restored() -> None:
    rows = {"/a/b": ["h", 1, 4], "/a/c": None, "/a/**": ["h", 0, 0], "/b/**": ["h", 0, 0]}
    assert restored(rows, ["/a/**"]) == {"/a/b": ("h", 1, 4), "/a/**": ("h", 0, 0)}


@define
class Stored:
    """A record of the state topic."""

    text: bytes | None

    def value(self) -> bytes | None:
        return self.text

    def offset(self) -> int:
        return 7


def taken(row: Any, *texts: bytes | None) -> dict[str, Any]:
    ledger = Ledger({"bootstrap.servers": "127.0.0.1:1"}, "a", "states", row)
    rows: dict[str, Any] = {}
    for text in texts:
        ledger._take(rows, "t/0", Stored(text))
    return rows


def test_rows_are_taken_as_a_bridge_wrote_them() -> None:
    written = row(5, beyond=[7])
    assert taken(PartitionRow, json.dumps(written).encode()) == {"t/0": written}
    assert taken(PartitionRow, json.dumps(written).encode(), None) == {}
    assert taken(PartitionRow, None) == {}
    assert taken(Seen | None, b'["h",1,4]') == {"t/0": ["h", 1, 4]}
    assert taken(Seen | None, b"null") == {"t/0": None}


@pytest.mark.parametrize("kind", [PartitionRow, Seen | None])
@pytest.mark.parametrize("text", [b"hello", b"\xff", b"", b"5", b"{}", b"[1,2,3]", b'["h",1]'])
def test_a_row_that_no_bridge_wrote_is_one_sentence(kind: Any, text: bytes) -> None:
    said = "states@7: the row of t/0 is not one that a bridge wrote"
    with pytest.raises(BridgeError, match=said):
        taken(kind, text)
