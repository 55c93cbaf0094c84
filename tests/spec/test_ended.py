"""What is under way when somebody ends the check of the models."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spec import tlc
from tests.live import children

TIMEOUT_S = 30


@pytest.mark.skipif(not tlc.available(), reason="TLC needs Java")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it looks at /proc")
def test_a_check_that_is_ended_leaves_no_run_of_tlc() -> None:
    command = [sys.executable, "-m", "spec", "check", "--full", "--only", "delivery 3e"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while not (runs := children(process.pid)):
            assert process.poll() is None
            assert time.monotonic() < deadline, "no run of TLC began"
            time.sleep(0.02)
        process.terminate()
        assert process.wait(TIMEOUT_S) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    assert not Path(f"/proc/{runs[0]}").exists()
