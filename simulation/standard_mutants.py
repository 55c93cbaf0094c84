"""Deliberate bugs that show in `Standard` mode only."""

from typing import Any

from mdserver.client.core.publications import Line, UnresolvedPublication
from simulation.mutant import Mutant, stored


def numbers_are_given_again(_: object) -> Any:
    def refused(self: Line, outgoing: UnresolvedPublication, expected: int) -> None:
        self.accepted = expected - 1
        if outgoing is next(iter(self.queue.values())):
            for each in self.queue.values():
                each.uncertain = False

    return refused


OF_STANDARD = (
    Mutant(
        "numbers that were taken are given to other publications",
        ((Line, "refused", numbers_are_given_again),),
        stored("numbers-given-again"),
    ),
)
