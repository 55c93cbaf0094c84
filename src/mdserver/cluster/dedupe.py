"""Exactly once: which numbers of which publisher a group's log holds (docs/protocol.md).

A publisher that gets no result of a publication sends it again, perhaps to another member, although
the first one may have been committed. So publishers number what they publish to a group,
from 1 on without gaps, and the coordinator takes a number only if it is the next one. A lower one
is a repeat, which is answered with the position that it has; a higher one would let publications
pass each other, and is refused. (Invariants: I6, once; I9, order of a publisher. In the
specification `IsNext`.)

The table follows from the log alone, so members that hold the same entries hold the same table, and
a new coordinator knows what its predecessor took. It stands for the end of the log, not for what is
committed, because the next number depends on the tail as well: `apply` takes an entry in, and
`undo` takes it back if a later epoch drops it. Two rules bound the memory:

- Of each publisher the positions of its newest `kept` numbers are kept. They are dropped at commits
  only, and those of numbers that are not committed never, since any of these may be taken back.
- Publishers that are idle for long are forgotten (`mdserver.cluster.forgetting`), by entries of the
  log, so that all members forget the same ones at the same place; and if there are too many, those
  of the owner that has the most (`mdserver.cluster.owners`).
"""

import enum
from collections import OrderedDict
from collections.abc import Iterable, Iterator

import msgspec

from mdserver.cluster.owners import Owned, Owners
from mdserver.core.message import Entry, Position
from mdserver.core.publishers import owner
from mdserver.limits import PUBLISHER_NUMBERS_KEPT

FORGOTTEN = Position(0, 0)


class Verdict(enum.Enum):
    """The kind of a publisher's number: the next one, a repeat, or one that leaves a gap."""

    NEXT = "next"
    TAKEN = "taken"
    GAP = "gap"


class Numbers(msgspec.Struct, array_like=True):
    """One publisher, as members send it to each other: its last number, its newest positions."""

    last: int = 0
    positions: list[Position] = msgspec.field(default_factory=list)


class Publisher:
    """One publisher: its last number, and the positions of its newest numbers.

    `at`: how long the log was when it published last; `owned`: all publishers of its owner.
    Up to twice as many committed positions as promised are kept, so that dropping is rare.
    """

    __slots__ = ("at", "last", "owned", "positions")

    def __init__(self, last: int, positions: list[Position], at: int) -> None:
        self.last = last
        self.positions = positions
        self.at = at
        self.owned: Owned[str]  # once it is in a table

    def copied(self) -> "Publisher":
        """Return a copy that does not change with this one."""
        return Publisher(self.last, list(self.positions), self.at)


class Publishers:
    """The publishers of one group, the one that has published nothing for the longest first.

    `kept` is the number of positions of each that a repeat is surely answered with.
    """

    __slots__ = ("_owners", "kept", "long", "table")

    def __init__(self, kept: int = PUBLISHER_NUMBERS_KEPT) -> None:
        self.kept = kept
        self.table: OrderedDict[str, Publisher] = OrderedDict()
        self._owners: Owners[str] = Owners()
        self.long: dict[str, None] = {}
        """Publishers with so many positions that some of them may be dropped at the next commit."""

    def verdict(self, publisher: str, number: int) -> tuple[Verdict, int, Position]:
        """Return what a number is, the next number, and the position of one that was taken.

        The position of a number that was taken too long ago is `FORGOTTEN`.
        """
        known = self.table.get(publisher)
        last = 0 if known is None else known.last
        if number == last + 1:
            return Verdict.NEXT, number, FORGOTTEN
        if number > last or known is None:
            return Verdict.GAP, last + 1, FORGOTTEN
        back = last - number
        kept = min(len(known.positions), self.kept)
        position = known.positions[-1 - back] if back < kept else FORGOTTEN
        return Verdict.TAKEN, last + 1, position

    def apply(self, entry: Entry, at: int) -> None:
        """Note a numbered entry at the end of the log, `at`.

        A number that the table has already is passed over: logs of earlier versions may hold tables
        that are ahead of where they stand.
        """
        publication = entry.publication
        name, number = publication.publisher, publication.number
        known = self.table.get(name)
        if known is None:
            self._add(name, Publisher(number, [Position(entry.epoch, entry.seq)], at))
            return
        self.table.move_to_end(name)
        known.owned.move_to_end(name)
        known.at = at
        if number <= known.last:
            return
        known.last = number
        known.positions.append(Position(entry.epoch, entry.seq))
        if len(known.positions) >= 2 * self.kept:
            self.long[name] = None

    def undo(self, entry: Entry) -> None:
        """Take back the newest entry of its publisher."""
        name, number = entry.publication.publisher, entry.publication.number
        known = self.table[name]
        if number != known.last:
            return  # `apply` passed it over, so there is nothing to take back
        known.last -= 1
        known.positions.pop()
        if not known.last:
            self.forget(name)

    def committed(self, entries: Iterable[Entry], forgetting: Iterable[str]) -> None:
        """Drop positions that nobody can ask for any more, now that these entries are committed.

        `forgetting`: the publishers that entries which are not committed forget. What is known of
        them now began after that.
        """
        # One that forgets its publisher has no number: what is known now began after it.
        newest = {entry.publication.publisher: entry.publication.number for entry in entries}
        for name in forgetting:
            newest.pop(name, None)
        for name in [name for name in self.long if name in newest]:
            known = self.table[name]
            uncommitted = max(known.last - newest[name], 0)
            if len(known.positions) - uncommitted >= 2 * self.kept:
                del known.positions[: -(self.kept + uncommitted)]
            if len(known.positions) < 2 * self.kept:
                del self.long[name]

    def forget(self, publisher: str) -> Publisher | None:
        """Forget a publisher; return what was known of it."""
        self.long.pop(publisher, None)
        known = self.table.pop(publisher, None)
        if known is not None:
            self._owners.remove(owner(publisher), publisher)
        return known

    def remember(self, publisher: str, known: Publisher) -> None:
        """Restore a publisher, because the entry that had it forgotten is taken back."""
        self._add(publisher, known)
        if len(known.positions) >= 2 * self.kept:
            self.long[publisher] = None

    def _add(self, publisher: str, known: Publisher) -> None:
        self.table[publisher] = known
        known.owned = self._owners.add(owner(publisher), publisher)

    def dispensable(self, bound: int, before: int) -> str | None:
        """Return the publisher to forget if there are too many, or None.

        It is the longest idle one of the owner that has the most, if these are more than `bound`,
        otherwise of all; but none that has an entry beyond `before` in the log.
        """
        name = next(iter(self._owners.excessive(bound) or self.table))
        return name if self.table[name].at <= before else None

    def idle(self, at: int) -> Iterator[str]:
        """Yield the publishers without an entry beyond `at` in the log, the longest idle first."""
        for name, known in self.table.items():
            if known.at > at:
                return
            yield name

    def copied(self) -> "Publishers":
        """Return a copy that does not change with this one."""
        copy = Publishers(self.kept)
        for name, known in self.table.items():
            copy.remember(name, known.copied())
        return copy

    def told(self) -> dict[str, Numbers]:
        """Return the table for other members, in the order in which publishers published last."""
        return {
            name: Numbers(known.last, known.positions[-self.kept :])
            for name, known in self.table.items()
        }

    def take(self, told: dict[str, Numbers], at: int) -> None:
        """Become the table that another member gave, of a log of length `at`."""
        self.table.clear()
        self._owners.clear()
        self.long.clear()
        for name, numbers in told.items():
            self.remember(name, Publisher(numbers.last, list(numbers.positions), at))


def too_many(numbers: int) -> str:
    """Return why a number is refused if its publisher has so many without a result."""
    return (
        f"{numbers:,} numbers of this publisher have no result yet in this subject group, and no "
        "more may: send this one again once one of them has its result"
    )
