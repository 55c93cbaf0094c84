"""Receipts: ranges that end where something is wrong, kept until the server has them."""

import random
from typing import Any

import pytest

from mdserver import limits
from mdserver.client.core.receipts import ReceiptBook
from mdserver.core.commands import Receipt
from mdserver.core.events import MessageEvent
from mdserver.core.message import MessageType, Position, checksum, fields_checksum
from tests import receipts as told

SECOND = 1_000_000_000


def event(seq: int, subject: str = "/a/b", **keys: Any) -> MessageEvent:
    fixed: dict[str, Any] = {"type": MessageType.UPDATE, "epoch": 1, "content": f"m{seq}"}
    return MessageEvent(subject=subject, seq=seq, **(fixed | keys))


def book(*subjects: str, conflated: bool = False) -> ReceiptBook:
    made = ReceiptBook("c")
    made.connected("n1")
    made.subscribed(subjects or ["/a/b"], conflated=conflated)
    return made


def give(to: ReceiptBook, *seqs: int, now: int = 0, key: str = "/a/b", **keys: Any) -> None:
    for seq in seqs:
        to.delivered(event(seq, **keys), key, "h", now)


def taken(of: ReceiptBook, now: int = 0) -> list[Receipt]:
    of.cut(now)
    portions, mark = of.unsent(now)
    of.confirmed(mark)
    assert not len(of)
    return [receipt for portion in portions for receipt in portion]


def shape(receipts: list[Receipt]) -> list[tuple[int, int, int, int, int]]:
    return [(r.seq_lo, r.seq_hi, r.n, r.dups, r.reordered) for r in receipts]


def crc(*seqs: int) -> int:
    return sum(checksum("/a/b", 1, seq, b"m%d" % seq) for seq in seqs)


def test_messages_that_follow_each_other_are_one_range() -> None:
    it = book()
    give(it, 4, 5, now=2 * SECOND)
    give(it, 6, now=3 * SECOND)
    [receipt] = taken(it, now=5 * SECOND)
    assert receipt == told.receipt(
        seqs=(4, 5, 6),
        content=lambda seq: b"m%d" % seq,
        session="c.1",
        history="h",
        via="n1",
        opened_ms=3000,
    )
    assert receipt.crc_at == crc(5) + 2 * crc(6)


@pytest.mark.parametrize(
    ("seqs", "ranges"),
    [
        ([1, 2, 5, 6], [(1, 2, 2, 0, 0), (5, 6, 2, 0, 0)]),
        ([1, 2, 2, 3], [(1, 2, 2, 0, 0), (2, 3, 2, 1, 0)]),
        ([1, 3, 2, 4], [(1, 1, 1, 0, 0), (3, 3, 1, 0, 0), (2, 2, 1, 0, 1), (4, 4, 1, 0, 0)]),
        ([1, 3, 4, 1], [(1, 1, 1, 0, 0), (3, 4, 2, 0, 0), (1, 1, 1, 1, 0)]),
    ],
    ids=["lost", "twice", "late", "long ago"],
)
def test_a_range_ends_where_something_is_wrong(
    seqs: list[int], ranges: list[tuple[int, int, int, int, int]]
) -> None:
    it = book()
    give(it, *seqs)
    assert shape(taken(it)) == ranges


def test_fields_have_sums_of_their_own() -> None:
    it = book()
    give(it, 4)
    give(it, 5, fields={"unit": "km", "a": ""})
    give(it, 6, fields={})
    [receipt] = taken(it)
    digest = fields_checksum("/a/b", 1, 5, {"a": "", "unit": "km"})
    assert (receipt.fields_sum, receipt.fields_at) == (digest, digest)
    assert receipt.crc_sum == crc(4, 5, 6)


@pytest.mark.parametrize("conflated", [True, False])
def test_fields_that_may_be_those_of_several_messages_are_not_told(conflated: bool) -> None:
    """A first delivery of a window, and one behind those that a slow client's queue merged."""
    it = book(conflated=conflated)
    if not conflated:
        give(it, 1, 2, fields={"a": "1"})
        assert [r.fields_sum is None for r in taken(it)] == [False]
    give(it, 5, fields={"a": "1", "b": "2"})
    give(it, 6, fields={"b": "2"})
    [receipt] = taken(it)
    assert (receipt.n, receipt.fields_sum, receipt.fields_at) == (2, None, None)
    assert receipt.crc_sum == crc(5, 6)


@pytest.mark.parametrize("other", [{"a": "11"}, {"a1": "1"}, {"a": "1", "b": ""}, {}, None])
def test_no_two_sets_of_fields_have_the_same_text(other: dict[str, str] | None) -> None:
    assert fields_checksum("/a/b", 1, 1, other) != fields_checksum("/a/b", 1, 1, {"a": "1"})


def test_ranges_go_on_after_a_cut_but_not_across_epochs_and_connections() -> None:
    it = book()
    give(it, 1, 2)
    assert shape(taken(it)) == [(1, 2, 2, 0, 0)]
    give(it, 3, now=SECOND)
    it.connected("n2")
    give(it, 4, now=9 * SECOND)
    give(it, 5, now=9 * SECOND, epoch=2)
    receipts = taken(it, now=10 * SECOND)
    assert [(r.epoch, r.seq_lo, r.via, r.closed_ms) for r in receipts] == [
        (1, 3, "n1", 9000),
        (1, 4, "n2", 0),
        (2, 5, "n2", 0),
    ]


def test_what_promises_nothing_is_left_out() -> None:
    it = book()
    give(it, 3, type=MessageType.SNAPSHOT)
    give(it, 0)
    give(it, 7, key="/other/**")
    assert taken(it) == []


def test_numbers_may_have_gaps_where_the_message_names_the_one_before() -> None:
    it = book()
    give(it, 3)
    give(it, 9, prev=Position(1, 3))
    assert shape(taken(it)) == [(3, 9, 2, 0, 0)]


def test_a_conflated_subscription_counts_what_was_left_out() -> None:
    it = book(conflated=True)
    give(it, 1, 2, 5)
    [receipt] = taken(it)
    assert (receipt.seq_lo, receipt.seq_hi, receipt.n, receipt.conflated) == (1, 5, 3, 2)
    give(it, 9)
    [receipt] = taken(it)
    assert (receipt.seq_lo, receipt.n, receipt.conflated) == (9, 1, 3)


@pytest.mark.parametrize("conflated", [True, False])
def test_the_first_message_of_a_subject_that_was_forgotten_leaves_out_nothing(
    conflated: bool,
) -> None:
    it = book(conflated=conflated)
    give(it, 1, 2, 3)
    give(it, 8, prev=Position(0, 0))
    [receipt] = taken(it)
    assert (receipt.seq_lo, receipt.seq_hi, receipt.n, receipt.conflated) == (1, 8, 4, 0)


def test_a_subscription_that_is_made_again_has_another_session() -> None:
    it = book("/a/*")
    give(it, 1, key="/a/*")
    it.unsubscribed(["/a/*", "/never/was"], 0)
    give(it, 2, key="/a/*")
    it.subscribed(["/a/*"], conflated=False)
    give(it, 5, key="/a/*")
    assert [(r.session, r.seq_lo) for r in taken(it)] == [("c.1", 1), ("c.2", 5)]


def test_what_is_not_confirmed_is_sent_again_on_the_next_connection() -> None:
    it = book()
    give(it, 1)
    it.cut(0)
    _, first = it.unsent(0)
    give(it, 2)
    it.cut(0)
    portions, second = it.unsent(0)
    assert [r.seq_lo for r in portions[0]] == [2]
    it.confirmed(first)
    it.connected("n1")
    it.confirmed(second)
    portions, third = it.unsent(0)
    assert [r.seq_lo for r in portions[0]] == [2]
    it.confirmed(third)
    assert not len(it)
    assert it.unsent(0)[0] == []


def test_commands_stay_small() -> None:
    it = book("/**")
    for number in range(500):
        subject = f"/{number}/{'x' * 500}"
        it.delivered(event(1, subject), "/**", "h", 0)
    it.cut(0)
    portions, _ = it.unsent(0)
    assert sum(len(portion) for portion in portions) == 500
    assert all(len(portion) * 1400 <= limits.CLIENT_COMMAND_BYTES_MAX for portion in portions)


def test_a_server_that_takes_nothing_costs_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECEIPTS_KEPT_MAX", 10)
    it, rng = book(), random.Random(1)
    marks = []
    for seq in range(0, 80, 2):
        give(it, seq + 1)
        if rng.random() < 0.5:
            marks.append(it.unsent(0)[1])
    assert (len(it), it.dropped) == (10, 29)
    for mark in marks:
        it.confirmed(mark)
    _, mark = it.unsent(0)
    it.confirmed(mark)
    assert not len(it)
