"""Messages for the same sessions, made into frames once and put into each outbox in one go.

What arrives together costs each recipient hardly more than one message does.
"""

from collections.abc import Sequence

from mdserver.core.outputs import Deliver
from mdserver.server.clients.forms import Form
from mdserver.server.clients.outbox import Outbox


class Batch:
    """Deliveries in one form. `size` is the number of bytes of their frames."""

    __slots__ = ("_aliases", "_frames", "_introductions", "form", "size")

    def __init__(self, form: Form, run: Sequence[Deliver]) -> None:
        self.form = form
        self._frames: list[bytes] = []
        # Where the introduction of an alias goes: it is made at once, because a later message of
        # the run may make the server agree on another alias for the same subject.
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
        """Return the frames, with introductions of the aliases that are new to the client."""
        if self._aliases <= outbox.known:
            return self._frames
        frames = self._frames.copy()
        for alias, (at, introduction) in reversed(self._introductions.items()):
            if alias not in outbox.known:
                outbox.remember_alias(alias)
                frames.insert(at, introduction)
        return frames
