"""Chooses how the flusher sends: to many sockets in one call of native code, or one by one.

    python     one call of Python's `socket.send` for each socket
    send       one call of `_sends.c` for all of them, which loops over send(2)
    io_uring   the same, which hands the sends to the kernel in batches

Native code is optional: it is built where a compiler is when mdserver is installed. io_uring needs
Linux 5.18, and containers often forbid it. So each engine is tried on a pair of sockets before it
is used, and what cannot be used is replaced by the next slower one.
"""

import socket
from collections.abc import Callable

from attrs import frozen

from mdserver.config import FanoutEngine

try:
    from mdserver.server.clients import _sends
except ImportError:
    INSTALLED = False
else:
    INSTALLED = True

RING_ENTRIES = 256
_TRIAL = b"mdserver"

Sent = tuple[list[int], list[tuple[int, int]], list[tuple[int, int]]]
SendMany = Callable[[list[bytes], list[socket.socket]], Sent]
"""Sends wires[i] to socks[i], and returns three lists of indices: of those that were sent as a
whole, (index, bytes sent) of those whose sockets take no more, (index, errno) of broken ones."""


@frozen
class Fanout:
    """The engine in force. `send` is None for that of Python.

    `reason` is one sentence that says why it is another one than what was asked for, None if it is
    not.
    """

    engine: FanoutEngine
    send: SendMany | None = None
    reason: str | None = None


def open_fanout(wanted: FanoutEngine) -> Fanout:
    """Return the engine that is asked for, or else the next one that can be used here.

    For `auto` that is the fastest one.
    """
    if wanted is FanoutEngine.PYTHON:
        return Fanout(wanted)
    if not INSTALLED:
        reason = "There is no native code: no C compiler was there at the installation."
        return Fanout(FanoutEngine.PYTHON, None, reason)
    reasons: list[str] = []
    for engine, opener in _OPENERS.items():
        if wanted in (FanoutEngine.AUTO, FanoutEngine.IO_URING, engine):
            try:
                return Fanout(engine, _tried(opener()), " ".join(reasons) or None)
            except OSError as error:
                reasons.append(f"{engine.value} cannot be used: {error.strerror or error}.")
    return Fanout(FanoutEngine.PYTHON, None, " ".join(reasons))


def _open_ring() -> SendMany:
    """Make an io_uring. Raises OSError if the kernel has none, or keeps it from this process."""
    return _sends.Ring(RING_ENTRIES).send


def _open_loop() -> SendMany:
    """Return the function that calls send(2) for each socket."""
    return _sends.send


def _tried(send: SendMany) -> SendMany:
    """Return `send` if it works. Raises OSError: a filter may forbid a part of what it needs."""
    near, far = socket.socketpair()
    with near, far:
        done, _, failed = send([_TRIAL], [near])
        if failed:
            raise OSError(failed[0][1], "its trial failed")
        if not done or getattr(getattr(send, "__self__", None), "closed", False):
            raise OSError("its trial failed")
        return send


_OPENERS: dict[FanoutEngine, Callable[[], SendMany]] = {
    FanoutEngine.IO_URING: _open_ring,
    FanoutEngine.SEND: _open_loop,
}
