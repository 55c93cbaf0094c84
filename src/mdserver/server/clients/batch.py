"""Encodes messages for the same sessions once, so that each outbox takes them with one operation.

Messages that arrive together cost each recipient hardly more than one message.
"""

from collections.abc import Sequence

from mdserver.core.outputs import Deliver
from mdserver.server.clients.forms import Form
from mdserver.server.clients.outbox import Outbox


class Batch:
    """The frames of several deliveries in one form. `size` is their number of bytes.

    `aliases` are those that the frames use. A client that knows them is sent `frames` as they are,
    a tuple that many outboxes share.
    """

    __slots__ = ("_introductions", "aliases", "form", "frames", "size")

    def __init__(self, form: Form, run: Sequence[Deliver]) -> None:
        self.form = form
        frames: list[bytes] = []
        # Alias -> the index of the frame that uses it first, and the frame that introduces it. The
        # introduction is encoded now, because a later message of the run may give the subject
        # another alias.
        self._introductions: dict[int, tuple[int, bytes]] = {}
        for output in run:
            delivery = output.delivery
            frame = form.delivery(delivery)
            if form.aliased and delivery.alias and delivery.alias not in self._introductions:
                introduction = form.alias_frame(delivery.alias)
                self._introductions[delivery.alias] = (len(frames), introduction)
            frames.append(frame)
        self.frames = tuple(frames)
        self.aliases = frozenset(self._introductions)
        self.size = sum(map(len, frames))

    def frames_for(self, outbox: Outbox) -> tuple[bytes, ...]:
        """Return the frames, with introductions of the aliases that are new to the client."""
        if self.aliases <= outbox.known:
            return self.frames
        frames = list(self.frames)
        # From the last to the first, so that an insertion does not shift the other indices.
        for alias, (at, introduction) in reversed(self._introductions.items()):
            if alias not in outbox.known:
                outbox.remember_alias(alias)
                frames.insert(at, introduction)
        return tuple(frames)
