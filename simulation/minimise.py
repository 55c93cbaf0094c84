"""A failing run made smaller: fewer faults and fewer publications that still fail the same way.

Delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002):
leave out ever smaller parts of a list as long as what is left still fails.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from simulation.plan import Plan
from simulation.run import Result, run
from simulation.world import World

Part = TypeVar("Part")


def smaller(parts: Sequence[Part], fails: Callable[[list[Part]], bool]) -> list[Part]:
    """A short list that still fails; no single part of it can be left out."""
    kept = list(parts)
    pieces = 2
    while kept:
        size = -(-len(kept) // pieces)
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            if fails(rest):
                kept, pieces = rest, max(2, pieces - 1)
                break
        else:
            if size == 1:
                break
            pieces = min(len(kept), 2 * pieces)
    return kept


def minimise(
    plan: Plan, failed: Result, run: Callable[[Plan], tuple[Result, World]] = run
) -> tuple[Plan, Result]:
    """The smallest plan found that, `run`, fails with the same first class of problem."""
    kind = failed.kinds[0]
    best = failed

    def fails(candidate: Plan) -> bool:
        nonlocal best
        result = run(candidate)[0]
        if kind not in result.kinds:
            return False
        best = result
        return True

    faults = smaller(plan.faults, lambda part: fails(plan.with_parts(part, list(plan.sendings))))
    sendings = smaller(plan.sendings, lambda part: fails(plan.with_parts(faults, part)))
    small = plan.with_parts(faults, sendings)
    faults = smaller(faults, lambda part: fails(small.with_parts(part, sendings)))
    return plan.with_parts(faults, sendings), best
