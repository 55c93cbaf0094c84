"""Deliberate bugs of the cluster are found; without them the same plans pass."""

import pytest

from simulation.mutants import CRASHES, MUTANTS, SPLITS, SURVIVORS, Mutant, hunt, plan, switched_on
from simulation.run import run

SEEDS = range(1, 121)
FOUND = [mutant for mutant in MUTANTS if mutant.title not in SURVIVORS]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", FOUND, ids=[mutant.title for mutant in FOUND])
def test_bug_is_found(mutant: Mutant) -> None:
    result, count, seconds = hunt(mutant, SEEDS)

    assert result is not None, f"{mutant.title}: not found in {count} runs, {seconds:.0f} s"


def test_directed_plans_pass_without_a_bug() -> None:
    problems = {seed: run(plan(seed, (*CRASHES, *SPLITS)))[0].problems for seed in range(1, 6)}

    assert {seed: found for seed, found in problems.items() if found} == {}


def test_a_bug_is_gone_once_switched_off() -> None:
    mutant = MUTANTS[0]
    original = mutant.owner.__dict__[mutant.name]

    with switched_on(mutant):
        assert mutant.owner.__dict__[mutant.name] is not original

    assert mutant.owner.__dict__[mutant.name] is original
