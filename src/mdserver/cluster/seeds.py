"""The seeds of the cluster, as one member knows them: who votes, and how lists of seeds change.

Everything that asks for a seed or for a majority asks here. Lists have numbers. `ClusterSettings`
has the first list, the vote record has the present one (docs/cluster.md, "Changing the seeds"). A
list differs from the one before it in one seed, so majorities of the two have a seed in common.
That is not so of a list and the one after the next, nor of two lists that both follow the same one.
So there are rules (spec: `Relist`):

- A list is *settled* once an epoch of it is active in every group. Only then may its next list be
  named: from then on the list before it elects nothing ("settled before the next").
- Each seed of a list *names* its next list once, and never another one; the name is on its disk
  before others hear of it ("a next list is named once").
- The next list *begins* when a majority of the seeds of the present one has named it ("a majority
  names the next list"), and with a new seed these are a majority of the next one as well. Who knows
  that notes the new list, and says so. The second half is not for safety: a seed that lost its vote
  record names nothing, so no list begins in which too few seeds vote.
- A seed promises epochs of the list that it noted, of no older and no newer one (`Voter.prepare`).

A seed that lost its vote record does not know whether it had named a next list. It names none until
every other seed of the present list has said, on a link that is newer than the loss, that it named
none either: then nobody holds a name of before the loss, and no list can begin by it. Or it names
what a majority has named, since no other list can begin any more. A new seed has never named one,
and knows that (`Relisting.joined`).
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mdserver.cluster.votes import VoteRecord

SEEDS_MIN = 3
"""The least number of seeds that a change may leave: fewer can do without none of them."""


class Seeds:
    """The present list of seeds; `me` is this member, which need not be one of them.

    `number` is that of the list, `next` the list that this seed has named to follow it, empty if it
    has named none. In Standard mode nobody votes, and the list is empty.
    """

    __slots__ = ("_votes", "me", "names", "next", "number")

    def __init__(self, me: str, names: tuple[str, ...], votes: "VoteRecord | None" = None) -> None:
        self.me = me
        self._votes = votes
        self.number = 1 if votes is None else votes.number
        self.names = names if votes is None else votes.present(names)
        self.next: tuple[str, ...] = () if votes is None else tuple(votes.next)

    @property
    def include_me(self) -> bool:
        """Return whether this member votes."""
        return self.me in self.names

    @property
    def others(self) -> list[str]:
        """Return the other seeds."""
        return [seed for seed in self.names if seed != self.me]

    @property
    def majority(self) -> int:
        """Return how many seeds are a majority of them."""
        return len(self.names) // 2 + 1

    @property
    def changed(self) -> bool:
        """Return whether there was a change of seeds, or one has begun."""
        return self.number > 1 or bool(self.next)

    # Changes; the caller stores the vote record

    def with_seed(self, member: str) -> tuple[str, ...]:
        """Return the list that follows if a member becomes a seed."""
        return (*self.names, member)

    def without_seed(self, member: str) -> tuple[str, ...]:
        """Return the list that follows if a seed is one no more."""
        return tuple(seed for seed in self.names if seed != member)

    def follows(self, names: tuple[str, ...]) -> bool:
        """Return whether a list may follow the present one: they differ in one seed."""
        return names in map(self.without_seed, self.names) or (
            names[:-1] == self.names and names[-1] not in self.names
        )

    @property
    def may_name(self) -> bool:
        """Return whether this seed knows that it named no list that it does not know of."""
        return self._votes is not None and self._votes.may_name

    def named_none(self, others: Iterable[str]) -> None:
        """Note that these seeds said that they named no next list."""
        if self._votes is not None and self.include_me and not self._votes.may_name:
            self._votes.may_name = set(self.others) <= set(others)

    def sure(self, names: tuple[str, ...], named: Mapping[str, tuple[str, ...]]) -> bool:
        """Return whether this seed surely named no other list; `named` as for `begun`."""
        return self.may_name or len(self._agreeing(named, names)) >= self.majority

    def name(
        self, names: tuple[str, ...], named: Mapping[str, tuple[str, ...]], *, settled: bool
    ) -> bool:
        """Name the next list; return False if a rule forbids that (spec: `Name`).

        `named` as for `begun`.
        """
        may = settled and self.include_me and self.follows(names) and self.sure(names, named)
        if self.next or not may:
            return False
        assert self._votes is not None, "only a seed that may name has a vote record"
        self.next = names
        self._votes.next = list(names)
        return True

    def begun(self, named: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
        """Return the list that begins, None if none does (spec: `Begin`).

        `named` has, of seeds whose present list is this one, the next list that they have named and
        have on their disks.
        """
        for names in dict.fromkeys(named.values()):
            agree = self._agreeing(named, names)
            staying = [seed for seed in agree if seed in names]
            joining = [seed for seed in names if seed not in self.names]
            if len(agree) >= self.majority and 2 * len(staying + joining) > len(names):
                return names
        return None

    def _agreeing(self, named: Mapping[str, tuple[str, ...]], names: tuple[str, ...]) -> list[str]:
        """Return the seeds of the present list that have named this list."""
        return [seed for seed in self.names if named.get(seed) == names]

    def note(self, number: int, names: tuple[str, ...]) -> bool:
        """Note a list that has begun; return whether it is newer than this one (spec: `Note`)."""
        if number <= self.number:
            return False
        self.number, self.names, self.next = number, names, ()
        if self._votes is not None:
            self._votes.number = number
            self._votes.listed = list(names)
            self._votes.next = []
        return True
