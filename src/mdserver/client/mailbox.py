"""A queue between the driver, which must not wait, and the tasks of the application, which do."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import anyio.lowlevel

from mdserver.client.waiting import Signal

T = TypeVar("T")

_UNYIELDING_MAX = 64  # items taken in a row before the other tasks get a turn


class Mailbox(Generic[T]):
    """Items in order, for any number of takers; each item goes to one of them.

    With `items_max` the oldest item makes room for the newest, and `dropped` counts the lost ones.
    An item that is an exception is raised by the call that would return it. `check` is for a
    `Signal`.
    """

    def __init__(self, check: Callable[[], None], items_max: int | None = None) -> None:
        self.dropped = 0
        self._items: deque[T | Exception] = deque()
        self._max = items_max
        self._arrival = Signal(check)
        self._closed = False
        self._streak = 0

    def __len__(self) -> int:
        return len(self._items)

    def put(self, items: Iterable[T | Exception]) -> None:
        """Add items and wake the takers."""
        self._items.extend(items)
        if self._max is not None:
            while len(self._items) > self._max:
                self._items.popleft()
                self.dropped += 1
        self._arrival.wake()

    def close(self) -> None:
        """Close the mailbox: after the remaining items, takers get StopAsyncIteration."""
        self._closed = True
        self._arrival.wake()

    async def take_all(self) -> list[T]:
        """Wait for an item and return all that have arrived, up to the first exception.

        Raises an exception only if it is the first item, and StopAsyncIteration at the end.
        """
        return [await self.take(), *self._run()]

    def take_rest(self) -> list[T]:
        """Return what `take_all` would, or an empty list if nothing is here; never waits.

        Raises an exception only if it is the first item.
        """
        if self._items and isinstance(error := self._items[0], Exception):
            self._items.popleft()
            raise error
        return self._run()

    def _run(self) -> list[T]:
        """Take the items before the first exception."""
        taken: list[T] = []
        while self._items and not isinstance(self._items[0], Exception):
            taken.append(self._items.popleft())  # type: ignore[arg-type]
        return taken

    async def take(self) -> T:
        """Wait for the next item and return it.

        Raises StopAsyncIteration when the mailbox is closed and empty. A cancelled call loses no
        item.
        """
        # A taker that always finds an item would otherwise never let other tasks run.
        self._streak += 1
        if not self._items or self._streak >= _UNYIELDING_MAX:
            self._streak = 0
            await anyio.lowlevel.checkpoint()
        while not self._items:
            if self._closed:
                raise StopAsyncIteration
            await self._arrival.wait()
        item = self._items.popleft()
        if isinstance(item, Exception):
            raise item
        return item
