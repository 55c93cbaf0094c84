"""The queue of a client that reads too slowly, which can be conflated or cut.

While the outbox is parked, messages are kept as deliveries and not as frames, because at the limit
the server's policy drops or conflates some of them, or disconnects the client. The limit is one of
memory: a message counts with the objects that hold it, which outweigh a short frame.
"""

from collections import deque

from mdserver.config import SlowConsumerPolicy
from mdserver.core.conflation import Window
from mdserver.core.events import Delivery
from mdserver.core.message import MessageType, Qos
from mdserver.limits import WAITING_FRAME_OVERHEAD_BYTES, WAITING_MESSAGE_OVERHEAD_BYTES
from mdserver.server.clients.forms import Form

Item = bytes | Delivery
_Key = tuple[str, str | None]


class SlowConsumerQueue:
    """Deliveries, and frames of other events, in order. `size` is the memory (bytes) they take.

    A message counts in full, although the cache or other sessions may share it: they may let go of
    it first.
    """

    __slots__ = ("_form", "_items", "size")

    def __init__(self, form: Form) -> None:
        self._form = form
        self._items: deque[Item] = deque()
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, item: Item) -> int:
        """Append an item; return the memory (bytes) that it takes."""
        memory = self._memory(item)
        self._items.append(item)
        self.size += memory
        return memory

    def take(self, bytes_least: int) -> list[Item]:
        """Remove and return the oldest items, until their frames have `bytes_least` bytes."""
        taken: list[Item] = []
        length = 0
        while self._items and length < bytes_least:
            item = self._items.popleft()
            length += len(item if isinstance(item, bytes) else self._form.delivery(item))
            self.size -= self._memory(item)
            taken.append(item)
        return taken

    def apply_policy(self, policy: SlowConsumerPolicy, bytes_max: int) -> bool:
        """Apply the policy; return whether at most `bytes_max` bytes wait then."""
        if policy is SlowConsumerPolicy.DROP_STANDARD:
            self._drop_standard(bytes_max)
        elif policy is SlowConsumerPolicy.CONFLATE:
            self._conflate()
        return self.size <= bytes_max

    def _drop_standard(self, bytes_max: int) -> None:
        """Drop the oldest STANDARD messages until at most `bytes_max` bytes are left, if possible.

        Guaranteed messages stay, because clients are promised all of them.
        """
        kept: deque[Item] = deque()
        size = self.size
        for item in self._items:
            if (
                size > bytes_max
                and isinstance(item, Delivery)
                and item.entry.publication.qos is Qos.STANDARD
            ):
                size -= self._memory(item)
            else:
                kept.append(item)
        self._items = kept
        self.size = size

    def _conflate(self) -> None:
        """Keep one conflated update for each subject and match, at the place of the last one.

        Everything else keeps its place.
        """
        self._form.conflated()
        windows: dict[_Key, Window] = {}
        last: dict[_Key, int] = {}
        for index, item in enumerate(self._items):
            if isinstance(item, Delivery) and item.type is MessageType.UPDATE:
                key = (item.entry.publication.subject, item.match)
                last[key] = index
                if key in windows:
                    windows[key].add(item.entry)
                else:
                    windows[key] = Window(item)
        kept: deque[Item] = deque()
        for index, item in enumerate(self._items):
            if isinstance(item, Delivery) and item.type is MessageType.UPDATE:
                key = (item.entry.publication.subject, item.match)
                if last[key] == index:
                    kept.append(windows[key].delivery(item.match))
            else:
                kept.append(item)
        self._items = kept
        self.size = sum(map(self._memory, kept))

    def _memory(self, item: Item) -> int:
        if isinstance(item, bytes):
            return len(item) + WAITING_FRAME_OVERHEAD_BYTES
        # The frame repeats the content.
        return 2 * len(self._form.delivery(item)) + WAITING_MESSAGE_OVERHEAD_BYTES
