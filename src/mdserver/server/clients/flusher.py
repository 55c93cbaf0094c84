"""Sends the dirty outboxes, once a scheduler pass (docs/design.md, "Fan-out").

An outbox that gets its first frame is appended to `Flusher.dirty`, and `wake` unparks the flusher's
task. Trio runs that task after the tasks that are ready already. What those put into outboxes in
the meantime goes out with the same sends. So the batches grow with the load, without a timer:
an idle server sends at once, and a busy one joins many frames in one system call.

The flusher takes the whole list before it sends. An outbox that becomes dirty during the sends is
in the next list, so none is sent twice in a pass and none is forgotten.
"""

from collections.abc import Callable

import trio

from mdserver.limits import NS_PER_S
from mdserver.server.clients.outbox import Outbox

SENDS_PER_TURN = 512  # some milliseconds: then the readers have a turn


class Flusher:
    """The task that sends dirty outboxes.

    With `batching` (ns) it waits that long before it sends. Unless `space` is 0, an outbox with at
    least `space` bytes ends the wait early. `_since` (ns) is the time of the first `wake` since the
    last list was taken, 0 if there was none.
    """

    def __init__(self, batching: int = 0, space: int = 0) -> None:
        self.dirty: list[Outbox] = []
        self.flushed: Callable[[int], None] = _do_nothing
        """Called when a list was sent, with the time (ns) of the first `wake` that it answers."""
        self._since = 0
        self._batching_s = batching / NS_PER_S
        self._space = space
        self._lot = trio.lowlevel.ParkingLot()
        self._full = trio.Event()

    def wake(self, now: int = 0) -> None:
        """Have the dirty outboxes sent after the tasks that are ready have run.

        `now` (ns) is the time of the step that made them dirty, 0 if it is not to be measured.
        """
        if not self.dirty:
            return
        if not self._since:
            self._since = now
        self._lot.unpark()
        if self._space and any(outbox.size >= self._space for outbox in self.dirty):
            self._full.set()

    async def run(self) -> None:
        """Send dirty outboxes until cancelled."""
        while True:
            if not self.dirty:
                await self._lot.park()
            if self._batching_s:
                with trio.move_on_after(self._batching_s):
                    await self._full.wait()
                self._full = trio.Event()
            since, self._since = self._since, 0
            dirty, self.dirty = self.dirty, []
            for start in range(0, len(dirty), SENDS_PER_TURN):
                flush_all(dirty[start : start + SENDS_PER_TURN])
                if start + SENDS_PER_TURN >= len(dirty) and since:
                    self.flushed(since)
                await trio.lowlevel.checkpoint()


def _do_nothing(_: int) -> None:
    """Do nothing: the callback is not set."""


def flush_all(dirty: list[Outbox]) -> None:
    """Send each outbox with one non-blocking send; parked ones are skipped.

    Outboxes of one form that follow each other with the same frames share the joined bytes. After a
    fan-out that is nearly all of them, and the comparison is quick because the frames are the same
    objects. A failure ends the session that it concerns and no other.
    """
    form = None
    joined: list[bytes] = []
    wire = b""
    for outbox in dirty:
        frames = outbox.frames
        if not frames or outbox.unsent:
            continue
        try:
            if frames != joined or outbox.form is not form:
                form = None  # until `wire` is what these frames make
                wire = outbox.form.wire(frames)
                joined = frames
                form = outbox.form
            outbox.flush(wire)
        except Exception:
            outbox.owner.failed()
