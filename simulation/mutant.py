"""What a deliberate bug of the cluster is, and how it is switched on, in tests only.

A mutant replaces functions for as long as it is switched on, and names the plans that bring it to
light: a bug of recovery does not show where nothing crashes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from attrs import evolve, frozen

from simulation.plan import Plan
from simulation.stored import load

Wrap = Callable[[Any], Any]


@frozen
class Mutant:
    """A bug: `patches` are (class or module, its function, what makes the wrong one of that).

    `beside_release`: its plans have members of the release before.
    """

    title: str
    patches: tuple[tuple[type | ModuleType, str, Wrap], ...]
    plan: Callable[[int], Plan]
    beside_release: bool = False


@contextmanager
def switched_on(mutant: Mutant) -> Iterator[None]:
    """The bug is there inside of this."""
    originals = [owner.__dict__[name] for owner, name, _ in mutant.patches]
    for (owner, name, make), original in zip(mutant.patches, originals, strict=True):
        setattr(owner, name, make(original))
    try:
        yield
    finally:
        for (owner, name, _), original in zip(mutant.patches, originals, strict=True):
            setattr(owner, name, original)


def stored(name: str) -> Callable[[int], Plan]:
    """Return the plans of a stored one: how long messages take is drawn anew in each."""

    def drawn(seed: int) -> Plan:
        plan = load()[name].plan
        return evolve(plan, seed=plan.seed + seed - 1)

    drawn.__name__ = name
    return drawn
