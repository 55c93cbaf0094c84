"""Deliberate bugs of the cluster are found; without them the same plans pass.

`python -m simulation mutants` looks for all of them, which takes minutes.
"""

import pytest
from click.testing import CliRunner

from simulation import __main__ as commands
from simulation.mutant import switched_on
from simulation.mutants import MUTANTS, hunt
from simulation.run import run
from simulation.stored import load

BY_TITLE = {mutant.title: mutant for mutant in MUTANTS}
PLANS = list(dict.fromkeys(mutant.plan for mutant in MUTANTS))


def test_each_bug_has_a_title_of_its_own() -> None:
    assert len(BY_TITLE) == len(MUTANTS)


def test_a_bug_is_found_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MUTANTS", (BY_TITLE["one acknowledgement commits"],))

    ended = CliRunner().invoke(commands.main, ["mutants", "--most", "30", "--jobs", "1"])

    assert ended.exit_code == 0, ended.output
    assert "crowded" in ended.output


def test_a_bug_that_is_not_found_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MUTANTS", (BY_TITLE["a gap is skipped"],))

    ended = CliRunner().invoke(commands.main, ["mutants", "--most", "1", "--jobs", "1"])

    assert ended.exit_code == 1
    assert "nothing" in ended.output


@pytest.mark.slow
@pytest.mark.parametrize(
    "title",
    [
        "the longest log is adopted",
        "promises are not in the vote file",
        "recovery from any seed",
        "entries below the promise are taken",
    ],
)
def test_a_bug_that_needs_a_coincidence_is_found_by_the_plan_that_makes_it(title: str) -> None:
    found = hunt(BY_TITLE[title], range(1, 101)).found

    assert found is not None
    # Seeds that hold less than they acknowledged are noticed at times before their logs fork.
    assert {"I1", "I2", "fork", "disclosed loss"} & set(found.kinds)


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS, ids=[plan.__name__ for plan in PLANS])
def test_directed_plans_pass_without_a_bug(plan: type) -> None:
    problems = {seed: run(plan(seed))[0].problems for seed in range(1, 9)}

    assert {seed: found for seed, found in problems.items() if found} == {}


def test_a_bug_is_gone_once_switched_off() -> None:
    mutant = BY_TITLE["recovery from any seed"]
    originals = [owner.__dict__[name] for owner, name, _ in mutant.patches]

    with switched_on(mutant):
        changed = [owner.__dict__[name] for owner, name, _ in mutant.patches]

    assert all(a is not b for a, b in zip(changed, originals, strict=True))
    assert [owner.__dict__[name] for owner, name, _ in mutant.patches] == originals


STORED = {name: stored for name, stored in load().items() if stored.mutant}


@pytest.mark.parametrize("name", STORED)
def test_a_stored_plan_passes_and_shows_its_bug_once_that_is_put_back(name: str) -> None:
    plan = STORED[name].plan

    assert run(plan)[0].problems == ()
    found = hunt(BY_TITLE[STORED[name].mutant], range(1, 11)).found

    assert found is not None
    assert found.seed in range(plan.seed, plan.seed + 10)
