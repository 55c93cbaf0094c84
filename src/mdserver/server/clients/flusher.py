"""Sends the dirty outboxes, once a scheduler pass (docs/design.md, "Fan-out").

An outbox that gets its first frame is appended to `Flusher.dirty`, and `wake` unparks the flusher's
task. Trio runs that task after the tasks that are ready already. What those put into outboxes in
the meantime goes out with the same sends. So the batches grow with the load, without a timer:
an idle server sends at once, and a busy one joins many frames in one system call.

The flusher takes the whole list before it sends. An outbox that becomes dirty during the sends is
in the next list, so none is sent twice in a pass and none is forgotten.
"""

import os
import socket
from collections.abc import Callable, Sequence
from functools import partial

import trio

from mdserver.limits import NS_PER_S, SENT_TOGETHER_BYTES_MAX
from mdserver.server.clients.fanout import SendMany
from mdserver.server.clients.outbox import Outbox, Owner
from mdserver.server.sockets import WRITE_BYTES

TOGETHER_LEAST = 3  # for fewer, preparing the call costs as much as it saves
SENDS_PER_TURN = 512  # some milliseconds: then the readers have a turn


class Flusher:
    """The task that sends dirty outboxes.

    With `batching` (ns) it waits that long before it sends. Unless `space` is 0, an outbox with at
    least `space` bytes ends the wait early. `send` sends to many plain sockets in one call
    (`fanout.py`). `_since` (ns) is the time of the first `wake` since the last list was taken, 0 if
    there was none.
    """

    def __init__(self, batching: int = 0, space: int = 0, send: SendMany | None = None) -> None:
        self._send = send
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

    def flush(self, outboxes: list[Outbox]) -> None:
        """Send these outboxes now."""
        flush_all(outboxes, self._send)

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
                if start:
                    await trio.lowlevel.checkpoint()
                self.flush(dirty[start : start + SENDS_PER_TURN])
            if since:
                self.flushed(since)
            if self.dirty:
                await trio.lowlevel.checkpoint()


def _do_nothing(_: int) -> None:
    """Do nothing: the callback is not set."""


def flush_all(dirty: list[Outbox], send: SendMany | None = None) -> None:
    """Send each outbox with one non-blocking send; parked ones are skipped.

    Outboxes of one form that follow each other with the same frames share the joined bytes. After a
    fan-out that is nearly all of them, and the comparison is quick because the frames are the same
    objects. A failure ends the session that it concerns and no other. With `send`, plain sockets
    are sent to in one call, unless there are only one or two.
    """
    if send is not None and len(dirty) >= TOGETHER_LEAST:
        dirty = _send_together(dirty, send)
    form = None
    joined: Sequence[bytes] = ()
    wire = b""
    for outbox in dirty:
        frames = outbox.frames
        if not frames or outbox.unsent:
            continue
        try:
            if (frames is not joined and frames != joined) or outbox.form is not form:
                form = None  # until `wire` is what these frames make
                wire = outbox.form.wire(frames)
                joined = frames
                form = outbox.form
            outbox.flush(wire)
        except Exception:
            outbox.owner.failed()


def _send_together(dirty: list[Outbox], send: SendMany) -> list[Outbox]:
    """Send what goes to plain sockets with one call of `send`; return the other outboxes.

    With TLS the socket below it is a plain one, and what is sent are the records. Those are not
    shared, so there is a call for each `SENT_TOGETHER_BYTES_MAX` of them.
    """
    others: list[Outbox] = []
    outboxes: list[Outbox] = []
    wires: list[bytes] = []
    socks: list[socket.socket] = []
    form = None
    joined: Sequence[bytes] = ()
    wire = b""
    size = taken = sealed = 0
    plain = socket.socket
    for outbox in dirty:
        frames = outbox.frames
        if not frames or outbox.unsent:
            continue
        sock, tls = outbox.sock, outbox.tls
        if type(sock) is not plain or (tls is not None and tls.owed):
            others.append(outbox)  # the network of the simulator, or TLS has something to say first
            continue
        if (frames is not joined and frames != joined) or outbox.form is not form:
            form = None
            wire = _joined(outbox)
            size = len(wire)
            if not size:
                others.append(outbox)
                continue
            joined = frames
            form = outbox.form
        if tls is None:
            wires.append(wire)
        else:
            try:
                tls.write(wire)  # as `seal` does, without a call of Python for each record
                wires.append(tls.take())
                sealed += size
            except Exception:
                tls.empty()
                others.append(outbox)
                form = None  # it keeps these frames, and may get more
                continue
        outbox.frames = ()
        outbox.size = 0
        outbox.limit = outbox.limit_least
        outboxes.append(outbox)
        socks.append(sock)
        taken += size
        if sealed >= SENT_TOGETHER_BYTES_MAX:
            _send_lot(outboxes, wires, socks, taken, send)
            outboxes, wires, socks, taken, sealed = [], [], [], 0, 0
    if outboxes:
        _send_lot(outboxes, wires, socks, taken, send)
    return others


def _joined(outbox: Outbox) -> bytes:
    """Return the joined frames; empty if the outbox has to be sent alone."""
    if outbox.size > WRITE_BYTES:
        return b""
    try:
        return outbox.form.wire(outbox.frames)
    except Exception:
        return b""  # it fails again when it is sent alone, with nothing held for others


def _send_lot(
    outboxes: list[Outbox],
    wires: list[bytes],
    socks: list[socket.socket],
    taken: int,
    send: SendMany,
) -> None:
    """Send with one call, note what was not sent, then tell the owners.

    `taken` is the number of bytes without the overhead of TLS. Nothing else runs between taking the
    frames and noting what of them was sent, so nothing can overtake them. Owners are told after
    that, because what they do may send to any of the outboxes.
    """
    _, cut, broken = send(wires, socks)
    traffic = outboxes[0].traffic  # the same for all
    traffic.sent += taken
    for at, sent in cut:
        outbox = outboxes[at]
        if outbox.tls is None:  # records count when they are made
            traffic.sent -= len(wires[at])
        outbox.keep_unsent(wires[at], sent)
    for at, _ in broken:
        if outboxes[at].tls is None:
            traffic.sent -= len(wires[at])
    for at, _ in cut:
        _tell(outboxes[at].owner, outboxes[at].owner.parked)
    for at, error in broken:
        owner = outboxes[at].owner
        _tell(owner, partial(owner.lost, str(OSError(error, os.strerror(error)))))


def _tell(owner: Owner, tell: Callable[[], None]) -> None:
    """Call one of the owner's methods; a failure ends its session and no other."""
    try:
        tell()
    except Exception:
        owner.failed()
