"""Which numbers of which publisher stand in a group's log (docs/protocol.md, "Exactly once").

The table follows from the log alone: every member that holds the same entries holds the same
table. It is kept for the end of the log; `undo` takes an entry back that a later epoch dropped.
"""

import enum

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
    """One publisher: its last number, and the positions of its newest ones.

    Up to twice as many positions as promised are kept, so that dropping the oldest is rare and
    taking back the newest never leaves too few.
    """

    last: int = 0
    positions: list[Position] = msgspec.field(default_factory=list)


class Publishers:
    """The publishers of one group."""

    __slots__ = ("table",)

    def __init__(self) -> None:
        self.table: dict[str, Numbers] = {}

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
        kept = min(len(known.positions), PUBLISHER_NUMBERS_KEPT)
        position = known.positions[-1 - back] if back < kept else FORGOTTEN
        return Verdict.TAKEN, last + 1, position

    def apply(self, entry: Entry) -> None:
        """Note a numbered entry at the end of the log."""
        publication = entry.publication
        known = self.table.get(publication.publisher)
        if known is None:
            known = self.table[publication.publisher] = Numbers()
        known.last = publication.number
        known.positions.append(Position(entry.epoch, entry.seq))
        if len(known.positions) >= 2 * PUBLISHER_NUMBERS_KEPT:
            del known.positions[:-PUBLISHER_NUMBERS_KEPT]

    def undo(self, entry: Entry) -> None:
        """Take back the newest entry of its publisher."""
        known = self.table[entry.publication.publisher]
        known.last -= 1
        known.positions.pop()
        if not known.last:
            del self.table[entry.publication.publisher]

    def forget(self, publisher: str) -> Numbers | None:
        """Forget a publisher that was idle for long; returns what was known of it."""
        return self.table.pop(publisher, None)

    def copied(self) -> dict[str, Numbers]:
        """The table as a value of its own."""
        return {
            publisher: Numbers(known.last, list(known.positions))
            for publisher, known in self.table.items()
        }
