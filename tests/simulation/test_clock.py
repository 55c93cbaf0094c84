"""Event order and members' clocks."""

from simulation.clock import START, Clock, Heap


def test_events_happen_by_time_and_then_as_planned() -> None:
    heap = Heap()
    seen: list = []
    heap.at(5, lambda: seen.append("c"))
    heap.at(1, lambda: seen.append("a"))
    heap.at(5, lambda: seen.append("d"))
    heap.at(1, lambda: heap.after(0, lambda: seen.append("b")))

    while heap.step(until=10):
        pass

    assert seen == ["a", "b", "c", "d"]
    assert (heap.now, heap.happened) == (10, 5)


def test_nothing_happens_in_the_past() -> None:
    heap = Heap()
    seen: list = []
    heap.at(7, lambda: heap.at(3, lambda: seen.append(heap.now)))

    while heap.step(until=8):
        pass

    assert seen == [7]


def test_clock_runs_at_its_rate_and_never_goes_back() -> None:
    heap = Heap()
    clock = Clock(heap)
    heap.step(until=1000)
    assert clock.now() == START + 1000
    clock.set_rate(2000)
    heap.step(until=1100)
    assert clock.now() == START + 1200
    clock.jump(50)
    clock.set_rate(500)
    assert clock.now() == START + 1250
    assert clock.true_delay(clock.now() + 10) == 20
    assert clock.true_delay(clock.now() - 10) == 0


def test_timer_of_a_slow_clock_is_not_due_too_early() -> None:
    heap = Heap()
    clock = Clock(heap)
    clock.set_rate(999)
    at = clock.now() + 7

    heap.step(until=clock.true_delay(at))

    assert clock.now() >= at
