"""Numbered publications: next, taken, gap, forgotten (docs/protocol.md, "Exactly once")."""

from mdserver.cluster.dedupe import FORGOTTEN, Publishers, Verdict
from mdserver.core.message import Entry, Position, Publication
from mdserver.limits import PUBLISHER_NUMBERS_KEPT


def taken(numbers: int) -> Publishers:
    publishers = Publishers()
    for number in range(1, numbers + 1):
        publication = Publication("/a/b", b"", publisher="p", number=number)
        publishers.apply(Entry(4, number, publication), number)
    return publishers


def test_the_next_number_follows() -> None:
    assert taken(0).verdict("p", 1)[0] is Verdict.NEXT
    assert taken(5).verdict("p", 6)[0] is Verdict.NEXT


def test_a_gap_names_the_expected_number() -> None:
    assert taken(5).verdict("p", 8) == (Verdict.GAP, 6, FORGOTTEN)


def test_an_unknown_publisher_starts_at_one() -> None:
    assert taken(5).verdict("q", 2) == (Verdict.GAP, 1, FORGOTTEN)


def test_a_taken_number_has_its_position() -> None:
    assert taken(5).verdict("p", 2) == (Verdict.TAKEN, 6, Position(4, 2))


def test_exactly_the_newest_thousand_positions_are_known() -> None:
    publishers = taken(3 * PUBLISHER_NUMBERS_KEPT + 17)
    last = 3 * PUBLISHER_NUMBERS_KEPT + 17
    oldest = last - PUBLISHER_NUMBERS_KEPT + 1
    assert publishers.verdict("p", oldest)[2] == Position(4, oldest)
    assert publishers.verdict("p", oldest - 1) == (Verdict.TAKEN, last + 1, FORGOTTEN)


def test_a_forgotten_publisher_is_unknown() -> None:
    publishers = taken(3)
    publishers.forget("p")
    assert publishers.verdict("p", 4) == (Verdict.GAP, 1, FORGOTTEN)


def entry(publisher: str, number: int, seq: int = 1) -> Entry:
    return Entry(4, seq, Publication("/a/b", b"", publisher=publisher, number=number))


def test_a_number_that_the_table_has_is_not_noted_again() -> None:
    publishers = taken(5)
    publishers.apply(entry("p", 3, 9), 6)
    assert publishers.verdict("p", 6)[0] is Verdict.NEXT
    assert publishers.verdict("p", 5)[2] == Position(4, 5)


def test_who_published_last_is_idle_last() -> None:
    publishers = Publishers()
    publishers.apply(entry("p", 1), 1)
    publishers.apply(entry("q", 1), 2)
    publishers.apply(entry("p", 2), 3)
    assert list(publishers.idle(2)) == ["q"]


def test_numbers_after_a_publisher_was_forgotten_are_not_dropped_for_those_before() -> None:
    """The entries that are committed now are older than the one that forgets, which is not."""
    publishers = Publishers(2)
    for number in range(1, 5):
        publishers.apply(entry("p", number, 10 + number), number)
    publishers.committed([entry("p", 4)], forgetting=["p"])
    assert publishers.verdict("p", 3)[2] == Position(4, 13)
    assert len(publishers.table["p"].positions) == 4
