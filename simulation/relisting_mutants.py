"""Deliberate bugs of the rules by which lists of seeds follow each other."""

from collections.abc import Mapping
from typing import Any

from mdserver.cluster.seeds import Seeds
from simulation.mutant import Mutant, stored

Names = tuple[str, ...]


def one_is_enough(_: object) -> Any:
    def begun(_: Seeds, named: Mapping[str, Names]) -> Names | None:
        return next(iter(named.values()), None)

    return begun


OF_LISTS = (
    Mutant(
        "one seed begins a list",
        ((Seeds, "begun", one_is_enough),),
        stored("one-name-is-no-majority"),
    ),
)
