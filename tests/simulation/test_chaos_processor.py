"""Waiting for a processor is measured, and is no silence of the cluster."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simulation.chaos.processor import WALL_MAX_S, Served, Waiting, waited_ns

PATIENCE_S = 60


@pytest.fixture
def counted() -> None:
    """Skip if the kernel does not say who ran and who waited; some have the file with zeros."""
    spun = 0
    while spun < 1_000_000:
        spun += 1
    file = Path("/proc/self/schedstat")
    if not file.exists() or file.read_text(encoding="ascii").split()[0] == "0":
        pytest.skip("this kernel does not say who waited")


@pytest.mark.usefixtures("counted")
def test_two_processes_of_one_processor_wait_for_it() -> None:
    processor = min(os.sched_getaffinity(0))
    busy = f"import os; os.sched_setaffinity(0, [{processor}])\nwhile True: pass"
    processes = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(2)]
    waiting = Waiting()
    try:
        deadline = time.monotonic() + PATIENCE_S
        waiting.look(process.pid for process in processes)
        assert waiting.total_s == 0
        while waiting.total_s < 0.1:
            assert time.monotonic() < deadline
            time.sleep(0.02)
            waiting.look(process.pid for process in processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    before = waiting.total_s
    waiting.look(process.pid for process in processes)
    assert waiting.total_s == before
    assert waited_ns(processes[0].pid) is None


def test_what_was_served_a_while_ago_is_found_by_the_clock_up_to_a_bound() -> None:
    served = Served()
    assert served.since(100.0, 95.0) == 100.0 - WALL_MAX_S
    for second in range(100, 111):  # with a processor all the while
        served.note(second, second)
    assert served.since(110.0, 105.0) == 105
    for second in range(111, 117):  # and then without one
        served.note(second, 110.0)
    assert served.since(116.0, 105.0) == 105
    assert served.since(116.0, 110.0) == 116
    for second in range(117, 140):
        served.note(second, 110.0)
    assert served.since(139.0, 105.0) == 139 - WALL_MAX_S
