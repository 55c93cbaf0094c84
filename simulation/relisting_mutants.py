"""Deliberate bugs of the rules by which lists of seeds follow each other."""

from collections.abc import Callable, Mapping
from typing import Any

from mdserver.cluster.relisting import Relisting
from mdserver.cluster.seeds import Seeds
from simulation import profiles
from simulation.mutant import Mutant, stored

Names = tuple[str, ...]


def named_anew(original: Callable[..., bool]) -> Any:
    def name(self: Seeds, names: Names, named: Mapping[str, Names], *, settled: bool) -> bool:
        self.next = ()
        return original(self, names, named, settled=settled)

    return name


def tried_anew(original: Callable[..., None]) -> Any:
    def try_name(self: Relisting, names: Names) -> None:
        seeds = self._members.seeds
        before, seeds.next = seeds.next, ()
        original(self, names)
        seeds.next = seeds.next or before

    return try_name


def one_is_enough(_: object) -> Any:
    def begun(_: Seeds, named: Mapping[str, Names]) -> Names | None:
        return next(iter(named.values()), None)

    return begun


def taken_for_ready(original: Callable[..., None]) -> Any:
    """The member that an order is about is named although it has not been given the logs."""

    def carry_out(self: Relisting) -> None:
        order = self._order
        peer = None if order is None else self._members.peers.get(order.member)
        if order is not None and order.votes and peer is not None:
            peer.takes_part, peer.not_voting, peer.admitted = True, [], True
        original(self)

    return carry_out


OF_LISTS = (
    Mutant(
        "a seed names another next list",
        ((Seeds, "name", named_anew), (Relisting, "_name", tried_anew)),
        stored("two-names-of-one-seed"),
    ),
    Mutant(
        "one seed begins a list",
        ((Seeds, "begun", one_is_enough),),
        stored("one-name-is-no-majority"),
    ),
    Mutant(
        "a new seed is named before it has the logs",
        ((Relisting, "_carry_out", taken_for_ready),),
        profiles.reseeded,
    ),
)
