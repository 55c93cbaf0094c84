"""Deliberate bugs that show in `Standard` mode only."""

from collections.abc import Callable
from typing import Any

from mdserver.client.core.publications import Line, UnresolvedPublication
from mdserver.cluster.group import Group
from mdserver.cluster.membership import Membership
from mdserver.cluster.standard import Standard
from mdserver.cluster.succession import Succession
from simulation.mutant import Mutant, stored
from simulation.profiles import standard, standard_apart


def numbers_are_given_again(_: object) -> Any:
    def refused(self: Line, outgoing: UnresolvedPublication, expected: int) -> None:
        self.accepted = expected - 1
        if outgoing is next(iter(self.queue.values())):
            for each in self.queue.values():
                each.uncertain = False

    return refused


def nobody_vouches(_: object) -> Any:
    return lambda *_: False


def hidden_members_have_no_turn(original: Callable[..., int]) -> Any:
    def turn(self: Standard, group: Group, weights: dict[str, int], _: list[str]) -> int:
        return original(self, group, weights, [])

    return turn


def a_coordinator_stays(original: Callable[..., bool]) -> Any:
    def prevails(self: Succession, peer: str, epoch: int) -> bool:
        return self._group.coordinator is None and original(self, peer, epoch)

    return prevails


OF_STANDARD = (
    Mutant(
        "numbers that were taken are given to other publications",
        ((Line, "refused", numbers_are_given_again),),
        stored("numbers-given-again"),
    ),
    Mutant(
        "who does not see a successor succeeds as well",
        ((Membership, "vouched", nobody_vouches),),
        standard_apart,
    ),
    Mutant(
        "two that do not see each other have the first turn",
        ((Standard, "_turn", hidden_members_have_no_turn),),
        standard_apart,
    ),
    Mutant(
        "a coordinator stays beside one that prevails",
        ((Succession, "prevails", a_coordinator_stays),),
        standard,
    ),
)
