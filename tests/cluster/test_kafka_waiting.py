"""Publications without a result, by ticket and by number."""

from mdserver.cluster.kafka_waiting import Waiting, WaitingPublications
from mdserver.limits import KAFKA_PENDING_BYTES_MAX, KAFKA_PENDING_MAX

LINE = ("t", 0, 0, "me")


def waiting(since: int = 0, number: int = 0, size: int = 1) -> Waiting:
    return Waiting(("t", 0), [], since, size, LINE if number else None, number)


def test_one_is_found_by_ticket_and_by_number_until_it_is_removed() -> None:
    all_ = WaitingPublications()
    first = all_.next_ticket
    one, other = waiting(number=7), waiting()
    all_.add(one)
    all_.add(other)
    assert all_.find(first) is one
    assert all_.of_number(LINE, 7) is one
    assert all_.pop_number(LINE, 7) is one
    assert all_.pop_number(LINE, 7) is None
    assert all_.of_number(LINE, 7) is None
    assert all_.find(first) is None
    assert all_.clear() == [other]
    assert len(all_) == 0


def test_those_that_wait_too_long_are_removed() -> None:
    all_ = WaitingPublications()
    for since in (1, 2, 3):
        all_.add(waiting(since, number=since))
    assert [one.since for one in all_.overdue(2)] == [1, 2]
    assert all_.of_number(LINE, 2) is None
    assert len(all_) == 1


def test_number_and_bytes_are_bounded() -> None:
    all_ = WaitingPublications()
    for _ in range(KAFKA_PENDING_MAX):
        assert all_.full() is None
        all_.add(waiting())
    assert all_.full() == "too many publications wait for Kafka here"
    all_.clear()
    assert all_.full() is not None, "the producer has them still"
    for ticket in range(1, all_.next_ticket):
        all_.reported(ticket)
    assert all_.full() is None


def test_bytes_wait_until_the_producer_has_reported_on_them() -> None:
    all_ = WaitingPublications()
    large, small = waiting(since=1, size=KAFKA_PENDING_BYTES_MAX), waiting(since=1)
    for one in (large, small):
        all_.add(one)
    assert list(all_.overdue(1)) == [large, small]
    all_.reported(2)
    all_.reported(2)
    assert all_.full() == "too many bytes wait for Kafka here"
    all_.reported(1)
    assert all_.full() is None
    all_.add(waiting(size=KAFKA_PENDING_BYTES_MAX - 1))
    assert all_.full() is None, "the sizes of those that were reported are given back"
