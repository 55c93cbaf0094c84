"""An error of the harness is a finding: the history stays, and so does the page of the hour."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from simulation.chaos import command
from simulation.chaos.cluster import Cluster
from simulation.chaos.command import INTERRUPTED, Session, leaves
from simulation.chaos.disks import Disk, NoDiskError
from simulation.chaos.loopback import Loopback
from simulation.chaos.members import Member
from simulation.chaos.parts import Part
from simulation.chaos.profiles import make_rounds
from simulation.chaos.wire import Wire


class Broken(Loopback):
    """A network that cannot be made."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Raises RuntimeError, as a command that fails does."""
        await trio.lowlevel.checkpoint()
        raise RuntimeError("no bridge")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where failing runs are kept; nothing of them is elsewhere."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(command.tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "kept"


def session_of(kept: Path, wire: Callable[[int], Wire], *, leaves_out: bool = False) -> Session:
    return Session(wire, kept, False, 0.0, None, leaves_out=leaves_out)


def test_an_error_of_the_harness_is_a_finding_that_keeps_everything(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "choose", lambda *_: Broken)
    report = kept.parent / "report.html"
    words = ["--profile", "all", "--keep", str(kept), "--report", str(report)]
    done = CliRunner().invoke(command.chaos, words)
    assert done.exit_code == 1, done.output
    assert "FAILED harness: RuntimeError: no bridge" in done.output
    assert done.output.count("Chaos, seed") == 1  # none after it
    (folder,) = kept.iterdir()
    assert (folder / "history.jsonl").exists()
    assert "no bridge" in (folder / "harness.txt").read_text(encoding="utf-8")
    assert "harness: RuntimeError: no bridge" in report.read_text(encoding="utf-8")
    assert list((kept.parent / "temporary").iterdir()) == []


@pytest.mark.parametrize("leaves_out", [False, True])
def test_a_disk_that_cannot_be_made_is_no_finding_where_runs_may_be_left_out(
    leaves_out: bool, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_loop_device(disk: Disk) -> None:
        await trio.lowlevel.checkpoint()
        raise NoDiskError(f"{disk.folder.name}: no free loop device")

    monkeypatch.setattr(Disk, "make", no_loop_device)
    monkeypatch.setattr(command, "unable", lambda *_: None)
    session = session_of(kept, Loopback, leaves_out=leaves_out)
    session.make(Part("disks", make_rounds("disks", 1, 2)))
    problems = [outcome.problems for _, outcome in session.made]
    said = "harness: NoDiskError: disk-m0: no free loop device"
    assert problems == ([] if leaves_out else [[said]])
    assert session.broken is not leaves_out


def test_a_signal_between_runs_ends_the_command_and_one_before_a_run_that_run(kept: Path) -> None:
    session = session_of(kept, Loopback)
    with session.heeding():
        command.signal.raise_signal(command.signal.SIGTERM)
        assert session.interrupted
        assert session.ended
        session.make(Part("journal", make_rounds("journal", 1, 2)))
    ((_, outcome),) = session.made
    assert outcome.interrupted
    assert outcome.problems == []
    assert not any(outcome.happened.values())
    assert INTERRUPTED == 130


def test_what_went_wrong_is_told_out_of_its_groups() -> None:
    one, two = ValueError("1"), OSError("2")
    assert list(leaves(ExceptionGroup("a", [one, ExceptionGroup("b", [two])]))) == [one, two]


def test_a_disk_that_cannot_be_left_is_told_and_keeps_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    async def make(disk: Disk) -> None:
        await trio.lowlevel.checkpoint()
        if disk.folder.name == "disk-m2":
            raise NoDiskError("no free loop device")

    async def leave(disk: Disk) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        done.append(disk.folder.name)
        if disk.folder.name == "disk-m0":
            raise RuntimeError("umount: target is busy")

    def kill(member: Member) -> None:
        done.append(member.name)

    monkeypatch.setattr(Disk, "make", make)
    monkeypatch.setattr(Disk, "leave", leave)
    monkeypatch.setattr(Member, "kill", kill)
    monkeypatch.setattr(Path, "is_mount", lambda _: True)
    told: list[str] = []
    cluster = Cluster(make_rounds("disks", 1, 2), Loopback(3), tmp_path, told.append)
    with pytest.raises(ExceptionGroup) as found:
        trio.run(cluster.run)
    assert [str(error) for error in leaves(found.value)] == ["no free loop device"]
    assert done == ["m0", "m1", "m2", "disk-m0", "disk-m1", "disk-m2"]
    assert told == ["the disk of m0 was not left: umount: target is busy"]
