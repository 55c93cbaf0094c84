"""Chaos runs of real processes: they pass, they say what they found, and they leave nothing."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mdserver import __version__
from simulation.chaos import namespaces, releases
from simulation.chaos.profiles import JOURNAL_AHEAD
from simulation.checker import check
from simulation.history import Acked, Confirmed, Delivered, event_of

pytestmark = pytest.mark.slow
SECONDS = 10
TIMEOUT_S = 400
CHAOS = [sys.executable, "-m", "simulation", "chaos", "--seconds", str(SECONDS)]


def children_of(folder: Path) -> dict[int, str]:
    """Processes that were started with this folder in their arguments, and those arguments."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().decode(errors="replace")
        except OSError:
            continue  # it ended meanwhile
        if str(folder / "mdserver-chaos") in command:
            found[int(entry.parent.name)] = command
    return found


def chaos(folder: Path, *words: str) -> subprocess.Popen[str]:
    """A run whose members' files are in the folder."""
    return subprocess.Popen(
        [*CHAOS, "--keep", str(folder / "kept"), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )


@pytest.fixture(params=["loopback", "namespaces"])
def network(request: pytest.FixtureRequest) -> str:
    """Each network that can be made here, which only trying tells."""
    name: str = request.param
    why = namespaces.missing() if name == "namespaces" else None
    if why is not None:
        pytest.skip(f"no namespaces: {why}")
    return name


def test_a_run_passes_and_its_history_can_be_judged_again(network: str, tmp_path: Path) -> None:
    with chaos(tmp_path, "--network", network, "--keep-all", "--seed", "3") as process:
        said, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, said
    assert not children_of(tmp_path)
    (kept,) = (tmp_path / "kept").iterdir()
    lines = (kept / "history.jsonl").read_text(encoding="utf-8").splitlines()
    events = [event_of(line) for line in lines]
    assert check(events) == []
    assert sum(isinstance(event, Acked) for event in events) > SECONDS
    # The checker is not blind to what such a run delivers.
    index, late = [(i, e) for i, e in enumerate(events) if isinstance(e, Delivered)][-1]
    assert {found.kind for found in check([*events[:index], *events[index + 1 :]])} & {
        "lost",
        "skip",
    }
    assert late.seq > 0
    confirmed = next(event for event in events if isinstance(event, Confirmed))
    wanted = (confirmed.client, confirmed.subject)
    deliveries = [(i, e) for i, e in enumerate(events) if isinstance(e, Delivered)]
    index = next(i for i, e in deliveries if (e.client, e.subject) == wanted)
    found = check([*events[:index], *events[index + 1 :]])
    assert [violation.kind for violation in found] == ["skip"]


def test_seeds_with_a_journal_end_together_and_lose_nothing(tmp_path: Path) -> None:
    """Killed or told to, under publishers that are as far ahead of their results as they may be."""
    words = ("--profile", "journal", "--rounds", "2", "--network", "loopback", "--keep-all")
    with chaos(tmp_path, *words) as process:
        said, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, said
    assert not children_of(tmp_path)
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.name == "journal-seed-1-3"
    lines = (kept / "history.jsonl").read_text(encoding="utf-8").splitlines()
    assert sum(isinstance(event_of(line), Acked) for line in lines) > min(JOURNAL_AHEAD)


def test_starts_with_another_identity_are_refused_and_lose_nothing(tmp_path: Path) -> None:
    """Set back, each goes on; every refusal names what differs and writes nothing."""
    words = ("--profile", "configuration", "--rounds", "2", "--network", "loopback", "--keep-all")
    with chaos(tmp_path, *words) as process:
        said, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, said
    assert not children_of(tmp_path)
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.name == "configuration-seed-1-3"
    refusals = list(kept.glob("m*.said"))
    assert len(refusals) == 3
    assert all("Set it back" in refusal.read_text(encoding="utf-8") for refusal in refusals)


def test_seeds_change_under_publishers_that_have_to_repeat_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    words = ("--profile", "seeds", "--rounds", "6", "--network", "loopback")
    with chaos(tmp_path, *words) as process:
        said, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, said
    assert not children_of(tmp_path)
    assert re.search(r"as a repeat +│ +[1-9]", said), said


@pytest.mark.skipif(releases.missing() is not None, reason=f"no upgrade: {releases.missing()}")
def test_a_cluster_of_the_release_before_is_upgraded_under_load_and_loses_nothing(
    tmp_path: Path,
) -> None:
    """A member at a time, over the files that the release before wrote; kills between."""
    words = ("--profile", "upgrade", "--rounds", "6", "--network", "loopback", "--keep-all")
    with chaos(tmp_path, *words) as process:
        said, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, said
    assert not children_of(tmp_path)
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.name == "upgrade-seed-1-3"
    assert re.search(r"fault: upgrade +│ +3 │", said), said
    lines = (kept / "history.jsonl").read_text(encoding="utf-8").splitlines()
    assert sum(isinstance(event_of(line), Acked) for line in lines) > SECONDS


def test_the_release_before_is_what_runs_before_an_upgrade(tmp_path: Path) -> None:
    why = releases.missing()
    if why is not None:
        with pytest.raises(releases.NoReleaseError, match="not in this repository's history"):
            releases.unpack(tmp_path)
        pytest.skip(f"no upgrade: {why}")
    source = releases.unpack(tmp_path)
    written = (source / "mdserver" / "__init__.py").read_text(encoding="utf-8")
    assert f'__version__ = "{releases.RELEASE}"' in written
    assert __version__ != releases.RELEASE


def test_a_member_that_ends_by_itself_is_a_finding(tmp_path: Path) -> None:
    with chaos(tmp_path, "--network", "loopback") as process:
        victim = first_member(tmp_path, process)
        os.kill(victim, signal.SIGKILL)
        said, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1, said
    assert "ended by itself" in said
    # That it does not come to rest then is no finding of its own.
    assert not re.search(r"FAILED (start|liveness): ", said), said
    (kept,) = (tmp_path / "kept").iterdir()
    # How far the member had come when it was killed, and so what its log says, is chance.
    assert {f"m{number}.log" for number in range(3)} <= {file.name for file in kept.iterdir()}
    assert not children_of(tmp_path)


def test_an_interrupted_run_says_so_and_leaves_no_process(network: str, tmp_path: Path) -> None:
    """It is no finding that faults did not happen and that nothing came to rest."""
    with chaos(tmp_path, "--network", network) as process:
        first_member(tmp_path, process)
        process.send_signal(signal.SIGTERM if network == "loopback" else signal.SIGINT)
        said, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130, said
    assert re.search(r"interrupted after \d+ of \d+ faults", said), said
    assert "FAILED" not in said
    assert not children_of(tmp_path)
    assert list(tmp_path.glob("mdserver-chaos-*")) == []


def first_member(folder: Path, process: "subprocess.Popen[str]") -> int:
    """The process number of a member that is ready."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        ready = [log for log in folder.glob("*/m0.log") if '"ready"' in log.read_text()]
        for number, command in children_of(folder).items() if ready else ():
            if "NodeName=m0" in command:
                return number
        time.sleep(0.05)
    raise AssertionError(f"no member became ready: {process.stdout and process.stdout.read()}")
