"""Clients that hold, leave, conflate or number nothing take part in runs, which pass."""

from collections import Counter

import pytest
from attrs import evolve

from simulation.habits import Restless
from simulation.plan import make
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


def test_some_seeds_have_such_clients_and_say_so() -> None:
    plans = [make(seed) for seed in range(1, 41)]

    with_habits = [plan for plan in plans if plan.habits]
    assert 0 < len(with_habits) < len(plans)
    assert "clients with habits" in with_habits[0].describe()
