"""Members that come and go unlisted, lists that change, and seeds whose machines are replaced."""

import pytest

from simulation.levels import LEVELS
from simulation.mutant import switched_on
from simulation.mutants import MUTANTS
from simulation.profiles import elastic
from simulation.server.mutants import OF_SERVERS

BY_TITLE = {mutant.title: mutant for mutant in (*MUTANTS, *OF_SERVERS)}


@pytest.mark.slow
@pytest.mark.parametrize(("level", "seed"), [(1, 1), (2, 2), (3, 1)])
def test_lists_change_and_machines_are_replaced_without_a_loss(level: int, seed: int) -> None:
    plan = elastic(seed)
    result, world = LEVELS[level].run(plan)

    assert result.problems == ()
    assert result.acked == len(plan.sendings)
    assert result.coverage["fault relist"] >= 3
    assert world.moves


@pytest.mark.slow
@pytest.mark.parametrize(
    ("title", "level", "seed"),
    [
        ("members that a new list does not name are dropped at once", 1, 1),
        ("members that no list names are not dialed", 3, 1),
        ("a member that moved is dialed where it was", 3, 1),
    ],
)
def test_what_is_wrong_with_lists_is_found(title: str, level: int, seed: int) -> None:
    with switched_on(BY_TITLE[title]):
        result, _ = LEVELS[level].run(elastic(seed))

    assert result.problems
