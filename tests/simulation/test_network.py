"""Connections keep the order, lose a suffix, and hold what is blocked."""

import random

import pytest

from simulation.clock import Heap
from simulation.network import Direction, Wires


def run(heap: Heap) -> None:
    while heap.step(until=10_000):
        pass


@pytest.mark.parametrize("seed", range(20))
def test_order_is_kept_and_a_cut_loses_a_suffix(seed: int) -> None:
    heap = Heap()
    way = Direction(heap, random.Random(seed), (1, 500), opens=100)
    seen: list[int] = []
    for number in range(30):
        way.send(lambda number=number: seen.append(number))
    way.end(300)

    run(heap)

    assert seen == list(range(len(seen)))
    assert len(seen) < 30


def test_nothing_arrives_before_the_connection_is_open() -> None:
    heap = Heap()
    way = Direction(heap, random.Random(1), (1, 2), opens=100)
    seen: list[int] = []
    way.send(lambda: seen.append(heap.now))

    run(heap)

    assert seen == [100]


def test_blocked_direction_holds_what_is_sent() -> None:
    heap = Heap()
    way = Direction(heap, random.Random(1), (1, 2), opens=0)
    seen: list[str] = []
    way.send(lambda: seen.append("before"))
    way.block()
    way.send(lambda: seen.append("held"))
    run(heap)
    assert seen == ["before"]

    way.unblock()
    way.send(lambda: seen.append("after"))
    while heap.step(until=20_000):
        pass

    assert seen == ["before", "held", "after"]


def test_blocks_of_several_faults_add_up() -> None:
    wires = Wires()
    assert wires.block("a", "b")
    assert not wires.block("a", "b")
    assert wires.blocked("a", "b")
    assert not wires.blocked("b", "a")
    assert not wires.unblock("a", "b")
    assert wires.unblock("a", "b")
    assert not wires.blocked("a", "b")
