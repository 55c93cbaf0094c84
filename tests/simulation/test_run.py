"""Whole runs: they pass, they repeat exactly, and what fails can be made smaller."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from attrs import evolve
from click.testing import CliRunner

import simulation
from mdserver.cluster.learner import Learner
from mdserver.limits import CLIENT_PUBLICATIONS_MAX, NS_PER_S
from simulation.__main__ import main
from simulation.diagram import diagram
from simulation.minimise import minimise, smaller
from simulation.plan import Sending, make, small
from simulation.run import run

ROOT = Path(simulation.__file__).parents[1]


@pytest.mark.slow
def test_fresh_seeds_pass_and_reach_what_must_happen_sometimes() -> None:
    ended = CliRunner().invoke(main, ["run", "--seeds", "60", "--first", "100000", "--jobs", "1"])

    assert ended.exit_code == 0, ended.output
    assert "publications acknowledged" in ended.output


def test_a_publisher_with_more_than_its_client_takes_waits_for_results() -> None:
    more = CLIENT_PUBLICATIONS_MAX + 100

    result, _ = run(small(1, NS_PER_S, [], [Sending(0, 0, 0)] * more))

    assert result.problems == ()
    assert result.acked == more


def test_a_run_with_frames_in_pieces_passes() -> None:
    plan = make(30)

    result, _ = run(plan, split=True)

    assert result.problems == ()
    assert result.events > run(plan)[0].events


def replayed(seed: int, hash_seed: str, *options: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "simulation", "replay", str(seed), *options],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
    )
    return ended.stdout


def test_a_seed_is_the_same_run_under_any_hash_seed(tmp_path: Path) -> None:
    one = replayed(17, "1", "--trace", str(tmp_path / "one"))
    two = replayed(17, "2", "--trace", str(tmp_path / "two"))

    assert one == two
    assert one.splitlines()[-1].startswith("trace hash: ")
    assert (tmp_path / "one").read_text() == (tmp_path / "two").read_text()
    assert (tmp_path / "one").stat().st_size > 0


def test_plan_comes_from_the_seed_alone_and_is_told_in_full() -> None:
    plan = make(21)

    assert plan == make(21)
    assert plan != make(22)
    told = plan.describe()
    assert told.startswith("seed 21: ")
    assert told.count("\n") == 2 + len(plan.faults)


def test_smaller_keeps_only_what_is_needed() -> None:
    assert smaller(range(50), lambda part: {7, 31} <= set(part)) == [7, 31]
    assert smaller([1, 2, 3], lambda part: len(part) >= 0) == []


def silent(self: Learner, peer: str, commit: object) -> None:
    """A member that never hears of a commit."""


@pytest.mark.slow
def test_failing_run_is_found_made_smaller_and_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Learner, "commit", silent)
    monkeypatch.setattr(Learner, "heartbeat", silent)
    seed = next(s for s in range(100) if make(s).members == 3 and make(s).faults)
    plan = evolve(make(seed), patience=2_000_000_000, habits=False)
    result, _ = run(plan)
    assert result.kinds == ("liveness",)

    small, smallest = minimise(plan, result)

    assert smallest.kinds == ("liveness",)
    assert len(small.faults) < len(plan.faults)
    picture = ET.fromstring(diagram(*run(small)))  # noqa: S314 - our own
    assert picture.tag.endswith("svg")
    texts = [element.text or "" for element in picture.iter() if element.tag.endswith("text")]
    assert any("liveness" in text for text in texts)
    assert any(text.startswith("Elect") for text in texts)
