"""Which numbers of which publisher stand in a group's log (docs/protocol.md, "Exactly once").

The table follows from the log alone: every member that holds the same entries holds the same
table. It is kept for the end of the log; `undo` takes an entry back that a later epoch dropped.
Positions go only at commit, and never those of numbers that are not committed: as many of them as
there are can be taken back.
"""

import enum
from collections import OrderedDict
from collections.abc import Iterable, Iterator

import msgspec

from mdserver.core.message import Entry, Position
from mdserver.limits import PUBLISHER_NUMBERS_KEPT

FORGOTTEN = Position(0, 0)


class Verdict(enum.Enum):
    """What a number is to the table."""

    NEXT = "next"
    TAKEN = "taken"
    GAP = "gap"


class Numbers(msgspec.Struct, array_like=True):
    """One publisher as others are told of it: its last number, and the positions of its newest."""

    last: int = 0
    positions: list[Position] = msgspec.field(default_factory=list)


class Publisher:
    """One publisher: its last number, the positions of its newest ones, and where the log ended
    when it published last.

    Up to twice as many committed positions as promised are kept, so that dropping is rare.
    """

    __slots__ = ("at", "last", "positions")

    def __init__(self, last: int, positions: list[Position], at: int) -> None:
        self.last = last
        self.positions = positions
        self.at = at

    def copied(self) -> "Publisher":
        """The same as a value of its own."""
        return Publisher(self.last, list(self.positions), self.at)


class Publishers:
    """The publishers of one group, the one that has published nothing for the longest first.

    `kept` is how many numbers of each can be told again.
    """

    __slots__ = ("kept", "long", "table")

    def __init__(self, kept: int = PUBLISHER_NUMBERS_KEPT) -> None:
        self.kept = kept
        self.table: OrderedDict[str, Publisher] = OrderedDict()
        self.long: dict[str, None] = {}
        """Publishers of whom so much is kept that some of it may go at the next commit."""

    def verdict(self, publisher: str, number: int) -> tuple[Verdict, int, Position]:
        """What a number is, the number that is expected next, and the position of a taken one.

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
            self.table[name] = Publisher(number, [Position(entry.epoch, entry.seq)], at)
            return
        self.table.move_to_end(name)
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
            return  # `apply` passed it over
        known.last -= 1
        known.positions.pop()
        if not known.last:
            self.forget(name)

    def committed(self, entries: Iterable[Entry], forgetting: Iterable[str]) -> None:
        """Let positions go that nobody can ask for: these entries are committed now.

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
        """Forget a publisher; returns what was known of it."""
        self.long.pop(publisher, None)
        return self.table.pop(publisher, None)

    def remember(self, publisher: str, known: Publisher) -> None:
        """Take back that a publisher was forgotten."""
        self.table[publisher] = known
        if len(known.positions) >= 2 * self.kept:
            self.long[publisher] = None

    def idle(self, at: int) -> Iterator[str]:
        """The publishers without an entry beyond `at` in the log, the longest idle first."""
        for name, known in self.table.items():
            if known.at > at:
                return
            yield name

    def copied(self) -> "Publishers":
        """The same table as a value of its own."""
        copy = Publishers(self.kept)
        for name, known in self.table.items():
            copy.remember(name, known.copied())
        return copy

    def told(self) -> dict[str, Numbers]:
        """The table for others, in the order in which publishers were heard last."""
        return {
            name: Numbers(known.last, known.positions[-self.kept :])
            for name, known in self.table.items()
        }

    def take(self, told: dict[str, Numbers], at: int) -> None:
        """Become what another member told of the log that ends `at`."""
        self.table.clear()
        self.long.clear()
        for name, numbers in told.items():
            self.remember(name, Publisher(numbers.last, list(numbers.positions), at))


def too_many(numbers: int) -> str:
    """Why a number is refused whose publisher has so many without a result."""
    return (
        f"{numbers:,} numbers of this publisher have no result yet in this subject group, and no "
        "more may: send this one again once one of them has its result"
    )
