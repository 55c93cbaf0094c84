"""Encodes messages for the same sessions once, so that each outbox takes them with one operation.

Messages that arrive together cost each recipient hardly more than one message.
"""

from collections.abc import Sequence

from mdserver.core.outputs import Deliver
from mdserver.server.clients.forms import Form
from mdserver.server.clients.outbox import Outbox


class Batch:
    """The frames of several deliveries in one form. `size` is their number of bytes."""

    __slots__ = ("_aliases", "_frames", "_introductions", "form", "size")

    def __init__(self, form: Form, run: Sequence[Deliver]) -> None:
        self.form = form
        self._frames: list[bytes] = []
        # Alias -> the index of the frame that uses it first, and the frame that introduces it. The
        # introduction is encoded now, because a later message of the run may give the subject
        # another alias.
        self._introductions: dict[int, tuple[int, bytes]] = {}
        for output in run:
            delivery = output.delivery
            frame = form.delivery(delivery)
            if form.aliased and delivery.alias and delivery.alias not in self._introductions:
                introduction = form.alias_frame(delivery.alias)
                self._introductions[delivery.alias] = (len(self._frames), introduction)
            self._frames.append(frame)
        self._aliases = frozenset(self._introductions)
        self.size = sum(map(len, self._frames))

    def frames_for(self, outbox: Outbox) -> list[bytes]:
        """Return the frames, with introductions of the aliases that are new to the client.

        The list may be shared between outboxes and must not be changed.
        """
        if self._aliases <= outbox.known:
            return self._frames
        frames = self._frames.copy()
        # From the last to the first, so that an insertion does not shift the other indices.
        for alias, (at, introduction) in reversed(self._introductions.items()):
            if alias not in outbox.known:
                outbox.remember_alias(alias)
                frames.insert(at, introduction)
        return frames
