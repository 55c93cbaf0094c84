"""The vote record: what it says after a restart, after a loss, and when it cannot be read."""

import msgspec
import pytest

from mdserver.cluster import votes
from mdserver.cluster.votes import DamagedError, Vote, VoteRecord


def test_each_start_is_a_newer_incarnation_with_the_same_promises() -> None:
    first = votes.started(None, "m1:1", "test", 3)
    assert (first.incarnation, first.admitted, first.promised) == (1, False, [Vote()] * 3)
    first.promised[1] = Vote(7, "m2:1")
    first.known["m2:1"] = 4
    first.admitted = True
    again = votes.started(first.encode(), "m1:1", "test", 3)
    assert again.incarnation == 2
    again.incarnation = 1
    assert again == first


def test_promises_of_one_record_are_not_those_of_another() -> None:
    one, other = (votes.started(None, "m1:1", "test", 2) for _ in range(2))
    one.promised[0] = Vote(1, "m1:1")
    one.known["m2:1"] = 1
    assert other.promised == [Vote(), Vote()]
    assert other.known == {}


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"member":1,"cluster":"x"}', b"\xff"])
def test_a_record_that_cannot_be_read_is_damaged_and_never_a_new_one(content: bytes) -> None:
    with pytest.raises(DamagedError):
        votes.read(content)
    with pytest.raises(DamagedError):
        votes.started(content, "m1:1", "test", 1)


def test_a_record_of_a_later_format_is_left_alone() -> None:
    record = VoteRecord("m1:1", "test", 1, format=votes.FORMAT + 1)
    with pytest.raises(DamagedError, match=f"its format is {votes.FORMAT + 1}"):
        votes.read(record.encode())


def test_records_of_earlier_versions_lack_what_came_later() -> None:
    content = b'{"member":"m1:1","cluster":"test","incarnation":5,"promised":[[3,"m2:1"]]}'
    record = votes.read(content)
    assert (record.incarnation, record.promised) == (5, [Vote(3, "m2:1")])
    assert (record.seeds, record.log, record.starts, record.recorded) == ([], "", {}, False)
    assert msgspec.json.decode(record.encode(), type=VoteRecord) == record


@pytest.mark.parametrize("known", [1, 2, 1000, votes.RESTARTS_MAX, votes.RESTARTS_MAX + 1])
def test_an_incarnation_after_a_loss_is_above_all_that_others_may_not_have_heard_of(
    known: int,
) -> None:
    after = votes.after_loss(known)
    assert after > known
    assert after % votes.RESTARTS_MAX == 0
    assert votes.after_loss(after) > after, "the next loss is a newer one again"


@pytest.mark.parametrize(
    ("incarnation", "follows"),
    [
        (1, False),
        (2, True),
        (votes.RESTARTS_MAX - 1, True),
        (votes.RESTARTS_MAX, False),
        (votes.RESTARTS_MAX + 1, True),
    ],
)
def test_an_older_copy_gives_no_first_incarnation(incarnation: int, follows: bool) -> None:
    assert votes.follows_on_record(incarnation) is follows
