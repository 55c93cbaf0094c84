"""Members without votes: both sides of a cut serve, and publishers go from one to the other."""

import pytest

from simulation.history import Acked
from simulation.levels import LEVELS
from simulation.profiles import standard
from simulation.stored import load


@pytest.mark.parametrize(("level", "seed"), [(1, 2), (1, 7), (1, 17), (1, 2014), (2, 13), (3, 1)])
def test_clients_are_acknowledged_what_they_published(level: int, seed: int) -> None:
    plan = standard(seed)
    result, world = LEVELS[level].run(plan)

    assert result.problems == ()
    assert result.coverage["told of a reset"]
    acked = {event.publication for event in world.history if isinstance(event, Acked)}
    assert len(acked) > 0.9 * len(plan.sendings), "the position of some repeats is forgotten"


def test_a_publisher_that_was_told_to_begin_anew_meets_a_log_with_its_earlier_numbers() -> None:
    plan = load()["numbers-given-again"].plan
    assert "Standard mode" in plan.describe()

    result, world = LEVELS[1].run(plan)

    assert result.problems == ()
    acked = [event.publication for event in world.history if isinstance(event, Acked)]
    assert sorted(acked) == [f"p{number}" for number in range(len(plan.sendings))]
