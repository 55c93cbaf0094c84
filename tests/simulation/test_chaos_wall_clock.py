"""A process sees the wall clock that it is given, and its waits go by the one that none sets."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simulation.chaos.wall_clock import WallClock

JUMP_S = 50_000
PATIENCE_S = 60
TELLS_THE_TIME = """
import select, time
while True:
    print(time.time(), time.monotonic(), flush=True)
    select.select([], [], [], 0.05)
"""
WAIT_S = 0.2
WAITS = f"""
import ctypes, time
class Time(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]
libc = ctypes.CDLL(None)
attributes, condition, mutex = (ctypes.create_string_buffer(128) for _ in range(3))
libc.pthread_condattr_init(attributes)
libc.pthread_condattr_setclock(attributes, time.CLOCK_MONOTONIC)
libc.pthread_cond_init(condition, attributes)
libc.pthread_mutex_init(mutex, None)
libc.pthread_mutex_lock(mutex)
began = time.monotonic_ns()
until = Time(*divmod(began + {int(WAIT_S * 10**9)}, 10**9))
libc.pthread_cond_timedwait(condition, mutex, ctypes.byref(until))
print((time.monotonic_ns() - began) / 10**9)
"""
"""One timed wait, as a thread waits for Python's lock; prints how long it took."""


@pytest.mark.parametrize("wrong_s", [0, JUMP_S, -JUMP_S])
def test_a_wait_lasts_as_long_as_is_asked(tmp_path: Path, wrong_s: int) -> None:
    clock = WallClock(tmp_path / "a.clock")
    if not clock.can_be_set:
        pytest.skip("libfaketime is missing (package libfaketime)")
    clock.set(wrong_s)
    waited = subprocess.run(
        [sys.executable, "-c", WAITS],
        env={**os.environ, **clock.environment()},
        stdout=subprocess.PIPE,
        check=True,
        timeout=PATIENCE_S,
    )
    assert float(waited.stdout) >= WAIT_S


@pytest.mark.slow
def test_a_process_that_runs_sees_its_clock_set_and_set_back(tmp_path: Path) -> None:
    clock = WallClock(tmp_path / "a.clock")
    if not clock.can_be_set:
        assert clock.environment() == {}
        pytest.skip("libfaketime is missing (package libfaketime)")
    process = subprocess.Popen(
        [sys.executable, "-c", TELLS_THE_TIME],
        env={**os.environ, **clock.environment()},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        deadline = time.monotonic() + PATIENCE_S
        for seconds in (0, JUMP_S, -JUMP_S, 0):
            clock.set(seconds)
            for line in process.stdout:
                wall_s, steady_s = map(float, line.split())
                assert time.monotonic() < deadline
                assert abs(steady_s - time.monotonic()) < PATIENCE_S
                if abs(wall_s - time.time() - seconds) < JUMP_S / 10:
                    break
            else:
                raise AssertionError("the process ended")
    finally:
        process.kill()
        process.communicate()
    assert [path.name for path in tmp_path.iterdir()] == ["a.clock"]
