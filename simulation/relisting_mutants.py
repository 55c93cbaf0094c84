"""Deliberate bugs of the rules by which lists of seeds follow each other."""

from collections.abc import Callable, Mapping
from typing import Any

from mdserver.cluster.acceptor import Voter
from mdserver.cluster.membership import Membership
from mdserver.cluster.relisting import Relisting, Told
from mdserver.cluster.seeds import Seeds
from mdserver.cluster.votes import VoteRecord
from simulation import seed_profiles
from simulation.mutant import Mutant, stored
from simulation.rare_mutants import every_epoch_is_the_newest

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


def votes_by_older_lists_too(original: Callable[..., bool]) -> Any:
    def votes_by(self: Voter, number: int) -> bool:
        return original(self, max(number, self._members.seeds.number))

    return votes_by


def votes_by_newer_lists_too(original: Callable[..., bool]) -> Any:
    def votes_by(self: Voter, number: int) -> bool:
        return original(self, min(number, self._members.seeds.number))

    return votes_by


def settled_at_once(_: object) -> Any:
    return property(lambda _: True)


def never_unfinished(_: object) -> Any:
    def unfinished(_: Relisting) -> None:
        return None

    return unfinished


def told_at_once(_: object) -> Any:
    def told(self: Relisting) -> Told:
        seeds = self._members.seeds
        return seeds.number, seeds.names, seeds.next

    return property(told)


def told_as_at_the_start(_: object) -> Any:
    def told(self: Relisting) -> Told:
        return self._told

    return property(told)


def lists_are_forgotten(original: Callable[..., None]) -> Any:
    """A member starts with the list with which the cluster began, and has named none."""

    def init(self: Seeds, me: str, names: Names, record: VoteRecord | None = None) -> None:
        if record is not None:
            record.number, record.listed, record.next = 1, [], []
        original(self, me, names, record)

    return init


def sure_in_any_case(_: object) -> Any:
    def sure(*_: object) -> bool:
        return True

    return sure


def in_no_newer_list(_: object) -> Any:
    return property(lambda _: True)


OF_LISTS = (
    Mutant(
        "a seed promises epochs of an older list",
        ((Voter, "_votes_by", votes_by_older_lists_too),),
        stored("promised-by-an-older-list"),
    ),
    Mutant(
        "a seed promises epochs of a list that it has not noted",
        ((Voter, "_votes_by", votes_by_newer_lists_too),),
        stored("promised-by-a-newer-list"),
    ),
    Mutant(
        "a list is followed before it is settled",
        ((Relisting, "settled", settled_at_once), (Relisting, "_unfinished", never_unfinished)),
        stored("settled-before-the-next"),
    ),
    Mutant(
        "lists are told before the disk has them",
        ((Relisting, "told", told_at_once),),
        stored("told-once-on-disk"),
    ),
    Mutant(
        "what the disk has of lists is not told",
        ((Relisting, "told", told_as_at_the_start),),
        stored("told-after-the-disk"),
    ),
    Mutant(
        "a start forgets lists",
        ((Seeds, "__init__", lists_are_forgotten),),
        stored("lists-are-durable"),
    ),
    Mutant(
        "a seed that lost its record names a list at once",
        ((Seeds, "sure", sure_in_any_case),),
        stored("named-once-after-a-loss"),
    ),
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
        seed_profiles.reseeded,
    ),
    Mutant(
        "a seed begins anew while a newer list may have it",
        # A member that serves has heard of newer epochs, and with them of nearly all newer lists.
        # So this bug shows only in a member that serves without that.
        (
            (Relisting, "_in_no_newer_list", in_no_newer_list),
            (Membership, "none_newer", every_epoch_is_the_newest),
        ),
        stored("in-no-newer-list"),
    ),
)
