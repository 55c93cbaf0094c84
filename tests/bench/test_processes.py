import os
import subprocess
import sys

import pytest

from mdserver.bench.processes import (
    ALLOWED,
    BenchError,
    cores,
    cpu_s,
    descriptors,
    highest_resident_kib,
    line,
    measured_on,
    resident_kib,
    running_on,
    started,
)


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_a_process_runs_on_the_measured_core_and_ends_with_the_block() -> None:
    before = os.sched_getaffinity(0)
    program = "import os, sys; print(os.sched_getaffinity(0), flush=True); sys.stdin.read()"
    with started(python(program), subprocess.PIPE) as process:
        assert line(process) == str(cores()[0])
        assert highest_resident_kib(process.pid) >= resident_kib(process.pid) > 1000
        assert cpu_s(process.pid) >= 0
    assert process.poll() is not None
    assert os.sched_getaffinity(0) == before


def test_what_is_measured_has_its_core_though_the_load_has_another_one() -> None:
    program = "import os; print(os.sched_getaffinity(0), flush=True); input()"
    with running_on(cores()[1]), started(python(program), subprocess.PIPE) as process:
        assert line(process) == str(cores()[0])


def test_more_cores_are_those_of_what_is_measured() -> None:
    with measured_on(len(ALLOWED)):
        assert cores() == (set(ALLOWED), {ALLOWED[-1]})
    assert cores() == ({ALLOWED[0]}, {ALLOWED[-1]})
    with (
        pytest.raises(BenchError, match=rf"may use {len(ALLOWED)}"),
        measured_on(len(ALLOWED) + 1),
    ):
        pytest.fail("there are not as many")


def test_descriptors_are_those_of_workers_too() -> None:
    child = "import sys; kept = [open('/dev/null') for _ in range(50)]; print(flush=True); input()"
    program = (
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], "
        "stdout=subprocess.PIPE); child.stdout.readline(); print(flush=True); input(); child.wait()"
    )
    with started([*python(program), child], subprocess.PIPE) as process:
        line(process)
        assert 50 < descriptors(process.pid) < 100


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
