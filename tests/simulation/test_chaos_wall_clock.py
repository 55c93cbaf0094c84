"""A process sees the wall clock that it is given, also when that is set while it runs."""

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
