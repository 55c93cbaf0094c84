"""Links between members that stay cut, one way or both: clients are served meanwhile."""

import pytest

from mdserver.limits import NS_PER_S
from simulation.levels import LEVELS
from simulation.mutant import switched_on
from simulation.mutants import MUTANTS
from simulation.profiles import half_cut

BY_TITLE = {mutant.title: mutant for mutant in MUTANTS}


@pytest.mark.parametrize(("level", "seed"), [(1, 1), (1, 3), (1, 29), (2, 5), (3, 1)])
def test_clients_are_served_while_links_stay_cut(level: int, seed: int) -> None:
    plan = half_cut(seed)
    result, _ = LEVELS[level].run(plan)

    assert result.problems == ()
    assert result.acked == len(plan.sendings)
    assert result.simulated > max(fault.at for fault in plan.faults) + 2 * plan.bound
    assert min(fault.lasting for fault in plan.faults) >= plan.calm == 20 * NS_PER_S


@pytest.mark.parametrize(
    ("title", "level", "seed"),
    [
        ("half-cut members go on", 1, 1),
        ("half-cut members go on", 3, 1),
        ("a link that carries one way counts", 1, 3),
    ],
)
def test_what_is_missing_while_links_stay_cut_is_found(title: str, level: int, seed: int) -> None:
    with switched_on(BY_TITLE[title]):
        result, _ = LEVELS[level].run(half_cut(seed))

    assert result.problems[0].startswith("service: 5 s later, ")
