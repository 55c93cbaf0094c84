"""Whether every guard of the protocol refused something, by which plans, and how often."""

from collections import Counter
from collections.abc import Iterable

from attrs import evolve
from rich.table import Table

from mdserver.cluster.guards import Guard
from simulation.run import Result, run
from simulation.stored import StoredPlan

PREFIX = "refused: "
"""How a run's coverage counts the refusals of a guard."""


def refusals(coverage: dict[str, int]) -> Counter[Guard]:
    """Return how often each guard refused something in a run."""
    found: Counter[Guard] = Counter()
    for guard in Guard:
        found[guard] = coverage.get(PREFIX + guard.value, 0)
    return found


def reached_by(stored: StoredPlan, draws: int = 300) -> Result:
    """Return the run of a stored plan that reaches what it is kept for, or the last of so many.

    The faults stay as they are. How long messages and writes take is drawn anew until it fits: a
    message more or less in the protocol shifts all these draws.
    """
    for draw in range(draws):
        result = run(evolve(stored.plan, seed=stored.plan.seed + draw))[0]
        counts = refusals(result.coverage)
        if result.problems or all(counts[Guard[name]] for name in stored.reaches):
            break
    return result


def unreached(counted: Iterable[Counter[Guard]]) -> list[Guard]:
    """Return the guards that never refused anything."""
    counts = list(counted)
    return [guard for guard in Guard if not any(count[guard] for count in counts)]


def table(stored: Counter[Guard], drawn: Counter[Guard]) -> Table:
    """Return how often each guard refused, in stored plans and in drawn ones."""
    made = Table("guard", title="What was refused, and how often")
    for column in ("stored plans", "seeds"):
        made.add_column(column, justify="right")
    for guard in Guard:
        made.add_row(guard.value, f"{stored[guard]:,}", f"{drawn[guard]:,}")
    return made
