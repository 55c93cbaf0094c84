"""Clients that hold, leave, conflate or number nothing take part in runs, which pass."""

from collections import Counter

import pytest
from attrs import evolve

from simulation.habits import Restless
from simulation.plan import make
from simulation.profiles import PROFILES
from simulation.run import run


@pytest.mark.slow
def test_every_habit_takes_part_and_breaks_no_promise() -> None:
    counted: Counter[str] = Counter()
    problems = {}
    for seed in range(1, 31):
        plan = evolve(make(seed), habits=True)
        result = run(plan)[0]
        counted.update(result.coverage)
        if result.problems:
            problems[seed] = result.problems

    assert problems == {}
    habits = [f"a subscriber with a habit: {kind}" for kind in Restless.KINDS]
    back = [f"back after: {kind}" for kind in ("pause", "hold", "leave")]
    published = ["published with qos", "published with fields", "published with nothing more"]
    wanted = (*habits, *back, *published, "delivered STANDARD")
    assert [what for what in wanted if not counted[what]] == []


def test_a_plan_says_that_such_clients_take_part() -> None:
    assert "clients with habits" in PROFILES["habits"](1).describe()
    assert "clients with habits" not in make(1).describe()
