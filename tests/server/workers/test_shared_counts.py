"""The limits of connections that several processes share."""

import os
from collections.abc import Iterator

import pytest

from mdserver.server.workers.shared_counts import SharedAdmission, SharedCounts, shared_memory

KEY = bytes(16)


@pytest.fixture
def workers() -> Iterator[tuple[SharedCounts, list[SharedAdmission]]]:
    """The counts as the server has them, and the admissions of two workers."""
    memory = shared_memory(2)
    each = [SharedCounts(memory, 2, KEY) for _ in range(3)]
    yield each[2], [SharedAdmission(each[slot], slot, 5, 100, 3) for slot in range(2)]
    for counts in each:
        counts.close()
    os.close(memory)


def test_the_limits_hold_for_all_workers(
    workers: tuple[SharedCounts, list[SharedAdmission]],
) -> None:
    counts, (one, two) = workers
    assert [one.enter("a"), two.enter("a"), one.enter("a")] == [None] * 3
    assert "3 connections of your address" in str(two.enter("a"))
    assert counts.total == 3
    assert [two.enter("b"), one.enter(None)] == [None] * 2
    assert "There are 5 connections, which" in str(two.enter("c"))
    one.leave("a")
    assert two.enter("a") is None
    assert (one.total, two.total, counts.total) == (2, 3, 5)


def test_a_connection_of_a_proxy_counts_for_its_client_over_all(
    workers: tuple[SharedCounts, list[SharedAdmission]],
) -> None:
    _, (one, two) = workers
    assert [one.enter("a"), one.enter("a"), two.enter("a")] == [None] * 3
    assert two.enter(None) is None
    assert "3 connections of your address" in str(two.move(None, "a"))
    assert two.move(None, "b") is None
    two.leave("b")
    one.leave("a")
    assert two.enter("a") is None


def test_a_worker_that_ended_gives_everything_back(
    workers: tuple[SharedCounts, list[SharedAdmission]],
) -> None:
    counts, (one, two) = workers
    for _ in range(3):
        assert one.enter("a") is None
    assert two.enter("a") is not None
    counts.clear(0)
    assert counts.total == 0
    assert [two.enter("a") for _ in range(3)] == [None] * 3
    assert two.enter("a") is not None


def test_addresses_do_not_count_for_each_other(
    workers: tuple[SharedCounts, list[SharedAdmission]],
) -> None:
    counts, _ = workers
    assert {counts.add_address(0, f"10.0.{n // 256}.{n % 256}", 1) for n in range(3000)} == {1}
    assert {counts.add_address(1, f"10.0.{n // 256}.{n % 256}", 1) for n in range(3000)} == {2}
