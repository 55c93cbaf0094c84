"""The first record of a number counts, whoever reads when."""

from hypothesis import given
from hypothesis import strategies as st

from mdserver.cluster.kafka_repeats import FORGOTTEN, Repeats
from mdserver.core.message import Position

LINE = ("t", 0, 3, "me")


def test_a_repeat_has_the_position_of_the_first_record() -> None:
    repeats = Repeats()
    assert repeats.take(LINE, 1, Position(1, 10)) is None
    assert repeats.take(LINE, 3, Position(1, 11)) is None  # number 2 is in another partition
    assert repeats.take(LINE, 1, Position(1, 12)) == Position(1, 10)
    assert repeats.find(LINE, 2) is None
    assert repeats.take(("t", 0, 4, "me"), 1, Position(1, 13)) is None


def test_numbers_far_below_the_highest_are_repeats() -> None:
    repeats = Repeats(kept=3)
    for number in range(1, 7):
        repeats.take(LINE, number, Position(1, number))
    assert [repeats.find(LINE, number) for number in (2, 3, 4)] == [
        FORGOTTEN,
        FORGOTTEN,
        Position(1, 4),
    ]


def test_the_publisher_that_was_idle_for_the_longest_is_forgotten() -> None:
    repeats = Repeats(publishers_max=2)
    for at, name in enumerate(("a", "b", "a", "c")):
        repeats.take(("t", 0, 0, name), 1 + at, Position(1, at + 1))
    assert len(repeats) == 2
    assert repeats.find(("t", 0, 0, "b"), 2) is None
    assert repeats.find(("t", 0, 0, "a"), 1) == Position(1, 1)


def test_who_has_many_publishers_is_forgotten_first() -> None:
    repeats = Repeats(publishers_max=20)
    repeats.take(("t", 0, 0, "@ann/feed"), 1, Position(1, 1))
    for at in range(100):
        repeats.take(("t", at % 3, 0, f"{at}@eve/feed"), 1, Position(1, at + 2))
    assert len(repeats) == 20
    assert repeats.find(("t", 0, 0, "@ann/feed"), 1) == Position(1, 1)
    assert repeats.find(("t", 0, 0, "99@eve/feed"), 1) == Position(1, 101)
    repeats.drop("t")
    assert not len(repeats)
    repeats.take(("t", 0, 0, "99@eve/feed"), 1, Position(1, 1))


@given(st.lists(st.integers(1, 30), max_size=100), st.integers(0, 100))
def test_a_member_that_starts_later_agrees_on_what_it_has_read(log: list[int], at: int) -> None:
    """Numbers of which the first record is after its start are judged as by all others."""
    old, new = Repeats(), Repeats()
    for offset, number in enumerate(log):
        first = log.index(number)
        judged = old.take(LINE, number, Position(1, offset + 1))
        assert judged == (None if first == offset else Position(1, first + 1))
        if offset >= at:
            again = new.take(LINE, number, Position(1, offset + 1))
            if first >= at:
                assert again == judged
