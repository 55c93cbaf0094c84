"""Each guard of the protocol refuses something in a stored plan, or in the seeds of a long run."""

from collections import Counter
from pathlib import Path

import pytest
from attrs import evolve

from mdserver.cluster.guards import Guard
from simulation import guards
from simulation.mutants import hunt
from simulation.plan import make
from simulation.rare_mutants import RARE
from simulation.stored import StoredPlan, load, save

PLANS = load()


@pytest.mark.parametrize("name", PLANS)
def test_a_stored_plan_passes_and_reaches_what_it_is_kept_for(name: str) -> None:
    result = guards.reached_by(PLANS[name])

    counts = guards.refusals(result.coverage)
    assert result.problems == ()
    assert {
        guard: counts[Guard[guard]] for guard in PLANS[name].reaches if not counts[Guard[guard]]
    } == {}


def test_a_guard_that_never_refused_is_named() -> None:
    count = Counter(dict.fromkeys(Guard, 1))
    del count[Guard.LOG_PROMISED]

    assert guards.unreached([count]) == [Guard.LOG_PROMISED]
    assert guards.unreached([count, Counter({Guard.LOG_PROMISED: 1})]) == []


@pytest.mark.parametrize(
    ("title", "rule"),
    [
        ("a copy takes the place of what is newer", "I7"),
        ("an incarnation that was lost is registered", "I1"),
        ("a log of another history is adopted without its beginning", "I1"),
        ("votes of members that are no seeds count", "I1"),
        ("acks of a start before the present one count", "I1"),
    ],
)
def test_without_a_guard_its_plan_breaks_the_rule_behind_it(title: str, rule: str) -> None:
    mutant = next(one for one in RARE if one.title == title)

    found = hunt(mutant, range(1, 4)).found

    assert found is not None
    assert rule in found.kinds


def test_a_plan_that_was_stored_is_the_same_plan(tmp_path: Path) -> None:
    plan = evolve(make(335), groups=3)
    stored = StoredPlan(about="an example", reaches=("LOG_PROMISED",), plan=plan)

    path = save("example", stored, tmp_path)

    assert load(tmp_path) == {"example": stored}
    lines = path.read_text(encoding="utf-8").splitlines()
    parts = len(plan.faults) + len(plan.sendings)
    assert (
        sum(line.startswith("   {") and line.rstrip(",").endswith("}") for line in lines) == parts
    )
