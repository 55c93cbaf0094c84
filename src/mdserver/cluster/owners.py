"""The owners of a table of publishers, so that an owner of many loses its own first.

A client chooses how many publishers it is: names, series of numbers, idempotency keys. A table that
has no room would forget others in favour of them if it looked at nothing but who published last. So
publishers are counted by their owner (`mdserver.core.publishers.owner`), and an owner that has more
than its part of the table gives way first: the one with the most.

- No entry of a log says whose a publisher is: the name does. So nothing has to be stored or sent.
- Nothing is searched: owners are grouped by how many publishers they have.
- Within an owner publishers are in the order in which they published last, as in the whole table.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

from mdserver.limits import PUBLISHERS_OWNER_PART

Name = TypeVar("Name")
Owned = OrderedDict[Name, None]
"""The publishers of one owner, the one that has published nothing for the longest first."""


def owner_bound(table: int) -> int:
    """Return how many publishers of a table an owner may have whatever others add."""
    return max(table // PUBLISHERS_OWNER_PART, 1)


class Owners(Generic[Name]):
    """The owners of publishers, and which of them has the most.

    `_of_size`: from a number of publishers to the owners that have so many; `_most` is the greatest
    of these numbers.
    """

    __slots__ = ("_most", "_of_size", "_owned")

    def __init__(self) -> None:
        self._owned: dict[str, Owned[Name]] = {}
        self._of_size: dict[int, dict[str, None]] = {}
        self._most = 0

    def clear(self) -> None:
        """Forget all of them."""
        self._owned.clear()
        self._of_size.clear()
        self._most = 0

    def add(self, owner: str, name: Name) -> Owned[Name]:
        """Add a publisher that is not there yet; return all of its owner, in which it is moved."""
        owned = self._owned.setdefault(owner, OrderedDict())
        owned[name] = None
        self._resize(owner, len(owned) - 1, len(owned))
        return owned

    def remove(self, owner: str, name: Name) -> None:
        """Remove a publisher."""
        owned = self._owned[owner]
        del owned[name]
        self._resize(owner, len(owned) + 1, len(owned))
        if not owned:
            del self._owned[owner]

    def _resize(self, owner: str, before: int, after: int) -> None:
        if before:
            self._of_size[before].pop(owner)
            if not self._of_size[before]:
                del self._of_size[before]
        if after:
            self._of_size.setdefault(after, {})[owner] = None
        # One more or less at a time, so the greatest number is one of these two if it changes.
        if after > self._most or (before == self._most and before not in self._of_size):
            self._most = after

    def excessive(self, bound: int) -> Owned[Name] | None:
        """Return the publishers of the owner that has the most, if these are more than `bound`."""
        if self._most <= bound:
            return None
        return self._owned[next(iter(self._of_size[self._most]))]
