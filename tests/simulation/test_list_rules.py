"""Each rule of lists of seeds that is left out is found by the check of its name."""

import pytest

from simulation import list_rules
from simulation.mutants import MUTANTS, hunt
from simulation.profiles import PROFILES
from simulation.run import run
from simulation.stored import load

FOUND = {
    "promised-by-an-older-list": list_rules.OLDER,
    "promised-by-a-newer-list": list_rules.NEWER,
    "settled-before-the-next": list_rules.SETTLED,
    "lists-are-durable": list_rules.DURABLE,
    "told-once-on-disk": list_rules.TOLD,
    "named-once-after-a-loss": list_rules.ONCE,
    "two-names-of-one-seed": list_rules.ONCE,
    "in-no-newer-list": list_rules.UNLISTED,
}
BY_TITLE = {mutant.title: mutant for mutant in MUTANTS}


def test_each_rule_has_a_plan() -> None:
    assert set(FOUND.values()) == set(list_rules.RULES)


@pytest.mark.parametrize("name", FOUND)
def test_a_rule_that_is_left_out_is_named(name: str) -> None:
    found = hunt(BY_TITLE[load()[name].mutant], range(1, 11)).found

    assert found is not None
    assert found.kinds[0] == FOUND[name]


def test_what_is_on_the_disk_but_not_told_shows_by_a_change_that_does_not_end() -> None:
    found = hunt(BY_TITLE["what the disk has of lists is not told"], range(1, 3)).found

    assert found is not None
    assert found.kinds == ("liveness",)
    assert "list 1, which is not settled" in found.problems[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["reseeded-at-once", "reseeded-amid-hand-overs", "named-apart", "named-and-lost"]
)
def test_profiles_in_which_lists_change_pass(name: str) -> None:
    problems = {seed: run(PROFILES[name](seed))[0].problems for seed in range(1, 9)}

    assert {seed: found for seed, found in problems.items() if found} == {}
