"""`python -m tests.mutation`: put small bugs in, one at a time, and see what finds each.

Each bug of `bugs.toml` is a place in a file, what stands there instead, and the rule that this
breaks. It is put into a copy of the sources, and the tests that are named for its file run against
that, then simulated runs for a while. A bug that nothing finds *survives*. Those that change
nothing that anybody could see say why under `equivalent`, and are not run.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import click
from attrs import frozen
from rich.console import Console
from rich.table import Table

from simulation.fresh import commit_of, tenth_of
from tests.mutation import hunt

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "mdserver"
BUGS = Path(__file__).with_name("bugs.toml")
WORK = ROOT / "build" / "mutation"
TESTS_TIMEOUT_S = 90
UNCHANGED_TIMEOUT_S = 600  # of all tests of all bugs
HUNT_SLOWDOWN = 10
"""How much longer simulated runs may take than the processor time that they are given."""
SIMULATOR = "cluster/"
"""The simulator runs for bugs in files below this folder."""
NOT_SIMULATED = ("cluster/standard.py", "cluster/succession.py")
"""But for these: it does not know this delivery mode."""

ENDLESS_TESTS = "the tests do not come to an end"
ENDLESS_RUN = "a simulated run does not come to an end"
TESTS_CANNOT_RUN = "the tests cannot run"
SIMULATOR_CANNOT_RUN = "the simulator cannot run"


@frozen
class Bug:
    """One bug: in `file`, `old` is replaced by `new`. `tests` are run against it, in this order."""

    file: str
    old: str
    new: str
    breaks: str
    tests: tuple[str, ...]
    equivalent: str = ""

    @property
    def stale(self) -> bool:
        """Whether its place is not there (once) any more."""
        return (SOURCES / self.file).read_text(encoding="utf-8").count(self.old) != 1


@frozen
class Outcome:
    """What became of a bug: `killer` is what found it, "" if nothing did."""

    bug: Bug
    killer: str
    seconds: float

    @property
    def broken(self) -> bool:
        """Whether what should have found it did not run: that says nothing about the bug."""
        return self.killer in {TESTS_CANNOT_RUN, SIMULATOR_CANNOT_RUN}

    @property
    def endless(self) -> bool:
        """Whether it was found by what did not come to an end; a busy machine can do that, too."""
        return self.killer in {ENDLESS_TESTS, ENDLESS_RUN}


def listed(path: Path = BUGS) -> list[Bug]:
    """Return the bugs of the list."""
    return [
        Bug(
            part["name"],
            bug["old"],
            bug["new"],
            bug["breaks"],
            tuple(part["tests"]),
            bug.get("equivalent", ""),
        )
        for part in tomllib.loads(path.read_text(encoding="utf-8"))["file"]
        for bug in part["bugs"]
    ]


def chosen(bugs: Sequence[Bug], tenth: int | None) -> list[Bug]:
    """Return every tenth bug from one on, or all."""
    return list(bugs) if tenth is None else list(bugs[tenth % 10 :: 10])


def copied(number: int) -> Path:
    """Return a folder of its own with a copy of the sources."""
    folder = WORK / str(number)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SOURCES, folder / "mdserver", ignore=shutil.ignore_patterns("*.tmp"))
    return folder


def tried(bug: Bug, folder: Path, simulated_s: float) -> Outcome:
    """Run what may find a bug, until something does."""
    place, original = folder / "mdserver" / bug.file, SOURCES / bug.file
    place.write_text(
        original.read_text(encoding="utf-8").replace(bug.old, bug.new), encoding="utf-8"
    )
    began = time.monotonic()
    try:
        killer = killed_by_tests(bug, folder) or killed_by_runs(bug, folder, simulated_s)
    finally:
        shutil.copyfile(original, place)
    return Outcome(bug, killer, time.monotonic() - began)


def killed_by_tests(bug: Bug, folder: Path) -> str:
    """Return the first test that fails, or "" if all pass."""
    return failing(bug.tests, folder, TESTS_TIMEOUT_S)


def unchanged(tests: Sequence[str]) -> str:
    """Return the first of these tests that fails without a bug, or "" if all pass."""
    return failing(tests, WORK / "0", UNCHANGED_TIMEOUT_S)


def failing(tests: Sequence[str], folder: Path, seconds: float) -> str:
    """Return the first of these tests that fails against a copy, or "" if all pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "--no-header"]
    # One process for all files: to begin takes longer than most tests.
    command += ["--tb=no", *tests]
    code, said = carried_out(command, folder, seconds)
    if code is None:
        return ENDLESS_TESTS
    if code == 0:
        return ""
    failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR "))]
    return failed[0].split(" ")[1] if failed else TESTS_CANNOT_RUN


def killed_by_runs(bug: Bug, folder: Path, seconds: float) -> str:
    """Return the simulated run that fails, or "" if none does for so long."""
    if not bug.file.startswith(SIMULATOR) or bug.file in NOT_SIMULATED:
        return ""
    command = [sys.executable, "-m", "tests.mutation.hunt", str(seconds)]
    code, said = carried_out(command, folder, HUNT_SLOWDOWN * (seconds + hunt.GRACE_S))
    if code in (None, -signal.SIGXCPU):
        return ENDLESS_RUN
    return "" if code == 0 else (said.strip().splitlines() or [SIMULATOR_CANNOT_RUN])[-1]


def carried_out(command: list[str], folder: Path, seconds: float) -> tuple[int | None, str]:
    """Run a command against a copy; return its status, None if it took too long, and its output."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None, ""
    return process.returncode, said


@click.command()
@click.option("--tenth", type=int, help="Only every tenth bug, from this one on.")
@click.option("--turn", is_flag=True, help="Only the tenth whose turn it is with this commit.")
@click.option("--file", "name", help="Only the bugs of this file.")
@click.option("--seconds", default=20.0, show_default=True, help="Of simulated runs for each bug.")
@click.option("--budget", type=float, help="Begin with no more bugs after so many seconds.")
@click.option("--jobs", default=2, show_default=True, help="How many at a time.")
@click.option("--least", default=90, show_default=True, help="Percent that have to be found.")
def main(
    tenth: int | None,
    turn: bool,
    name: str | None,
    seconds: float,
    budget: float | None,
    jobs: int,
    least: int,
) -> None:
    """Put the listed bugs in, one at a time; exit 1 if too few of them are found.

    Their tests run first without any bug: what fails then would be taken for a find.
    """
    console = Console(width=160)
    if turn:
        commit = commit_of()
        tenth = tenth_of(commit)
        console.print(f"tenth {tenth}, of commit {commit[:12] or 'none'}")
    every = listed()
    bugs = [bug for bug in chosen(every, tenth) if name in (None, bug.file)]
    stale = [bug for bug in bugs if bug.stale]
    live = [bug for bug in bugs if not bug.stale and not bug.equivalent]
    folders: SimpleQueue[Path] = SimpleQueue()
    for number in range(jobs):
        folders.put(copied(number))
    began = time.monotonic()
    tests = list(dict.fromkeys(test for bug in live for test in bug.tests))
    # A second time after a failure: one that does not come again is no reason to give up.
    if tests and unchanged(tests) and (fails := unchanged(tests)):
        console.print(f"without any bug there is a failure: {fails}", markup=False)
        sys.exit(1)

    def one(bug: Bug) -> Outcome | None:
        if budget is not None and time.monotonic() - began > budget:
            return None
        folder = folders.get()
        try:
            outcome = tried(bug, folder, seconds)
        finally:
            folders.put(folder)
        if not outcome.killer:
            console.print(f"nothing found: {bug.file}: {bug.breaks}", markup=False)
        return outcome

    with ThreadPoolExecutor(jobs) as pool:
        outcomes = [outcome for outcome in pool.map(one, live) if outcome is not None]
    broken = [outcome for outcome in outcomes if outcome.broken]
    found = [outcome for outcome in outcomes if outcome.killer and not outcome.broken]
    endless = sum(outcome.endless for outcome in found)
    table = Table("file", "breaks", "found by", title="Bugs that were put in")
    table.add_column("seconds", justify="right")
    for outcome in outcomes:
        killer = outcome.killer or "NOTHING"
        table.add_row(outcome.bug.file, outcome.bug.breaks, killer, f"{outcome.seconds:.1f}")
    console.print(table)
    for bug in stale:
        console.print(f"not in {bug.file} any more: {bug.breaks}", markup=False)
    score = 100 * len(found) / max(1, len(outcomes))
    equivalent = sum(bool(bug.equivalent) for bug in bugs)
    console.print(
        f"{len(found)} of {len(outcomes)} found ({score:.0f} %), {endless} of them by what did not "
        f"come to an end; {len(broken)} not tried, as nothing ran; {equivalent} equivalent, "
        f"{len(stale)} without their place, {len(live) - len(outcomes)} not tried for want of time"
    )
    # A part of the list may hit upon those of one file that was just rewritten: the whole counts.
    without_place = sum(bug.stale for bug in every)
    sys.exit(1 if broken or score < least or 10 * without_place > len(every) else 0)


if __name__ == "__main__":
    main()
