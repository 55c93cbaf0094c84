import os
import subprocess
import sys

import pytest

from mdserver.bench.processes import (
    BenchError,
    cores,
    cpu_s,
    line,
    resident_kib,
    started,
)


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_a_process_runs_on_the_measured_core_and_ends_with_the_block() -> None:
    before = os.sched_getaffinity(0)
    program = "import os, sys; print(os.sched_getaffinity(0), flush=True); sys.stdin.read()"
    with started(python(program), subprocess.PIPE) as process:
        assert line(process) == str(cores()[0])
        assert resident_kib(process.pid) > 1000
        assert cpu_s(process.pid) >= 0
    assert process.poll() is not None
    assert os.sched_getaffinity(0) == before


def test_the_affinity_is_restored_after_an_error() -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(FileNotFoundError), started(["/no/such/program"]):
        pass
    assert os.sched_getaffinity(0) == before


def test_the_last_words_of_a_process_that_ends_too_early_are_told() -> None:
    program = "import sys; sys.exit('the port is in use')"
    with (
        pytest.raises(BenchError, match=r"status 1\nthe port is in use"),
        started(python(program)) as process,
    ):
        line(process)


def test_a_process_that_says_nothing_is_ended() -> None:
    with (
        pytest.raises(BenchError, match="no line within"),
        started(python("import sys; sys.stdin.read()"), subprocess.PIPE) as process,
    ):
        line(process, 0.05)
    assert process.returncode is not None
