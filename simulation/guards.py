"""Whether every guard of the protocol refused something, by which plans, and how often."""

from collections import Counter
from collections.abc import Iterable

from rich.table import Table

from mdserver.cluster.guards import Guard

PREFIX = "refused: "
"""How a run's coverage counts the refusals of a guard."""

NEVER: dict[Guard, str] = {
    Guard.ACK_INCARNATION: (
        "links deliver in order, and a seed's question with its new incarnation comes behind its "
        "older acks (cluster.md, promise 2): tests/cluster/test_coordinator.py"
    ),
}
"""Guards that no order of events reaches, why not, and what tests them instead."""


def refusals(coverage: dict[str, int]) -> Counter[Guard]:
    """Return how often each guard refused something in a run."""
    found: Counter[Guard] = Counter()
    for guard in Guard:
        found[guard] = coverage.get(PREFIX + guard.value, 0)
    return found


def unreached(counted: Iterable[Counter[Guard]]) -> list[Guard]:
    """Return the guards that never refused anything, but for those that cannot."""
    counts = list(counted)
    return [g for g in Guard if g not in NEVER and not any(count[g] for count in counts)]


def table(stored: Counter[Guard], drawn: Counter[Guard]) -> Table:
    """Return how often each guard refused, in stored plans and in drawn ones."""
    made = Table("guard", title="What was refused, and how often")
    for column in ("stored plans", "seeds"):
        made.add_column(column, justify="right")
    for guard in Guard:
        made.add_row(guard.value, f"{stored[guard]:,}", f"{drawn[guard]:,}")
    return made
