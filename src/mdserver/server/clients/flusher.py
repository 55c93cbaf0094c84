"""Sends the dirty outboxes, once a scheduler pass (docs/design.md, "Fan-out")."""

from collections.abc import Callable

import trio

from mdserver.limits import NS_PER_S
from mdserver.server.clients.outbox import Outbox

SENDS_PER_TURN = 512  # some milliseconds: then the readers have a turn


class Flusher:
    """Sends outboxes once a scheduler pass: the longer that takes, the more frames are joined.

    With `batching` (ns) what became dirty waits that long before it is sent; an outbox with `space`
    bytes or more ends the wait early, where `space` is not 0.
    """

    def __init__(self, batching: int = 0, space: int = 0) -> None:
        self.dirty: list[Outbox] = []
        self.flushed: Callable[[int], None] = _do_nothing
        """Called after all that was dirty was sent, with the time of the first `wake`."""
        self._since = 0
        self._batching_s = batching / NS_PER_S
        self._space = space
        self._lot = trio.lowlevel.ParkingLot()
        self._full = trio.Event()

    def wake(self, now: int = 0) -> None:
        """Have what is dirty since `now` (ns) sent once the tasks that are ready had their turn."""
        if not self.dirty:
            return
        if not self._since:
            self._since = now
        self._lot.unpark()
        if self._space and any(outbox.size >= self._space for outbox in self.dirty):
            self._full.set()

    async def run(self) -> None:
        """Flush for ever."""
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
    """Measure nothing."""


def flush_all(dirty: list[Outbox]) -> None:
    """Send each outbox with one direct send; those with the same frames share the joined bytes."""
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
