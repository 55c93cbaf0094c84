"""Repeated publications, found by what the records of a partition say of themselves.

A publisher that gets no result sends its publication again under the same number, perhaps to
another member, and both records may end up in Kafka. All records of a subject are in one partition,
so all members see them in the same order: the first one counts, the others are passed over. The
table follows from the records alone, so a member that starts has it again once it has read them;
it knows no numbers of records from before it began to read.

A publisher counts in each subject group, whose subjects may lie in several partitions. So in one
partition its numbers rise with gaps. It has at most `PUBLISHER_NUMBERS_KEPT` without a result,
hence a number that much below the highest one is a repeat.
"""

from collections import OrderedDict

from mdserver.cluster.owners import Owned, Owners, owner_bound
from mdserver.core.message import Position
from mdserver.core.publishers import owner
from mdserver.limits import PUBLISHER_NUMBERS_KEPT, PUBLISHERS_MAX

FORGOTTEN = Position(0, 0)
"""The position of a repeat whose first record is too long ago to be remembered."""

Line = tuple[str, int, int, str]
"""Topic, partition, subject group and publisher: within these, numbers are counted."""


class _Numbers:
    """The latest numbers of one line with their positions, the highest, its owner's lines."""

    __slots__ = ("highest", "owned", "positions")

    def __init__(self, owned: Owned[Line]) -> None:
        self.highest = 0
        self.owned = owned
        self.positions: OrderedDict[int, Position] = OrderedDict()


class Repeats:
    """The latest numbers of each publisher in each partition, with their positions.

    Beyond `publishers_max` lines the one that had no record for the longest goes: of the owner
    that has the most, if that has more than its part (`mdserver.cluster.owners`).
    """

    def __init__(
        self, kept: int = PUBLISHER_NUMBERS_KEPT, publishers_max: int = PUBLISHERS_MAX
    ) -> None:
        self._kept = kept
        self._publishers_max = publishers_max
        self._lines: OrderedDict[Line, _Numbers] = OrderedDict()
        self._owners: Owners[Line] = Owners()

    def __len__(self) -> int:
        return len(self._lines)

    def clear(self) -> None:
        """Forget everything: positions mean other records now."""
        self._lines.clear()
        self._owners.clear()

    def drop(self, topic: str) -> None:
        """Forget the publishers of a topic that was deleted."""
        for line in [line for line in self._lines if line[0] == topic]:
            self._forget(line)

    def find(self, line: Line, number: int) -> Position | None:
        """Return the position of a number that was taken; None if it was not."""
        numbers = self._lines.get(line)
        if numbers is None:
            return None
        position = numbers.positions.get(number)
        if position is None and number <= numbers.highest - self._kept:
            return FORGOTTEN
        return position

    def take(self, line: Line, number: int, position: Position) -> Position | None:
        """Take the number of a record; return the position of an earlier one, None for a new one.

        Each record is taken once, in the order of its partition.
        """
        earlier = self.find(line, number)
        if earlier is not None:
            return earlier
        numbers = self._lines.get(line)
        if numbers is None:
            numbers = self._lines[line] = _Numbers(self._owners.add(owner(line[3]), line))
            if len(self._lines) > self._publishers_max:
                bound = owner_bound(self._publishers_max)
                self._forget(next(iter(self._owners.excessive(bound) or self._lines)))
        else:
            self._lines.move_to_end(line)
            numbers.owned.move_to_end(line)
        numbers.highest = max(numbers.highest, number)
        numbers.positions[number] = position
        if len(numbers.positions) > self._kept:
            numbers.positions.popitem(last=False)
        return None

    def _forget(self, line: Line) -> None:
        del self._lines[line]
        self._owners.remove(owner(line[3]), line)
