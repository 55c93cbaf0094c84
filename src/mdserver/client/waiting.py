"""The state of a client for the tasks that wait for it: whether the wait can still succeed.

A task that waits for a session, a result or an answer must not wait for something that can no
longer happen. So every wait checks its condition and this state together, and is woken whenever
either may have changed.
"""

import asyncio
import os
import threading
from collections.abc import Callable

import anyio
import anyio.lowlevel

from mdserver.client.errors import ClientError, ConnectError, NotOpenError, StoppedError


class Signal:
    """Wakes all tasks that wait, again and again.

    `check` raises for a task that it cannot wake, such as one of another event loop.
    """

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self._event: anyio.Event | None = None

    async def wait(self) -> None:
        """Wait for the next `wake`."""
        self._check()
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()

    def wake(self) -> None:
        """Wake the tasks that wait now."""
        if self._event is not None:
            self._event.set()
            self._event = None


class EntryPlace:
    """The process, the thread and the event loop in which a client was entered.

    A client can be used only there, because nothing elsewhere would wake the tasks that wait.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._thread = threading.get_ident()
        self._loop = _asyncio_loop()

    def check(self) -> None:
        """Raise NotOpenError unless the caller is in this place."""
        if os.getpid() != self._process:
            raise NotOpenError("the process forked since the client was entered: make one in each")
        if threading.get_ident() != self._thread:
            raise NotOpenError(
                "the client belongs to the thread in which it was entered; mdserver.client.sync "
                "has one for several threads"
            )
        # Trio needs no such check: the nursery in which the client was entered cannot outlive its
        # loop, so the client is left before another loop starts.
        if self._loop is not None and _asyncio_loop() is not self._loop:
            raise NotOpenError(
                "the client belongs to the event loop in which it was entered: make one in each"
            )


class ClientStanding:
    """Whether a client is open, and what keeps it from its servers.

    `stopped`: the client does not reconnect by itself. `unreachable`: no server was reached within
    `connect_timeout_s`. `failed`: a task of the client ended by an error, which is a bug.
    """

    def __init__(self) -> None:
        self.stopped: StoppedError | None = None
        self.unreachable: ConnectError | None = None
        self.failed: BaseException | None = None
        self._place: EntryPlace | None = None
        self._open = False
        self._changes = Signal(self.require_place)

    @property
    def entered(self) -> bool:
        """Whether the client was entered, even if it was left since."""
        return self._place is not None

    @property
    def trouble(self) -> ClientError | None:
        """Why nothing can be waited for that comes from a server; None if it can."""
        return self.stopped or self.unreachable

    def enter(self) -> None:
        """Note that the client is entered; raises NotOpenError if it was entered before."""
        if self._place is not None:
            raise NotOpenError("a client can be entered once; make another one")
        self._place = EntryPlace()
        self._open = True

    def leave(self) -> None:
        """Note that the client is left, and wake everything that waits."""
        self._open = False
        self._changes.wake()

    def require_open(self) -> None:
        """Raise NotOpenError unless the client is entered, not left yet, and used in its place."""
        if self._place is None:
            raise NotOpenError("enter the client first: `async with Client(...) as client:`")
        self._place.check()
        if not self._open:
            raise NotOpenError("the client was left: its `async with` is over; make another one")
        if self.failed is not None:
            raise NotOpenError(f"the client ended by an error of its own: {self.failed!r}")

    def require_place(self) -> None:
        """Raise NotOpenError if the client is open, but in another place than this.

        Before it is entered and after it was left, no task of it runs, so any place will do.
        """
        if self._open and self._place is not None:
            self._place.check()

    def changed(self) -> None:
        """Let all that wait check their conditions again."""
        self._changes.wake()

    async def change(self) -> None:
        """Wait for the next change.

        Raises NotOpenError if the client is not open, or is left during the wait.
        """
        self.require_open()
        await self._changes.wait()
        self.require_open()

    async def wait_until(self, there: Callable[[], bool]) -> None:
        """Wait until a condition holds, which is checked after each change.

        Raises the reason why it can no longer come to hold: StoppedError, ConnectError or
        NotOpenError.
        """
        await anyio.lowlevel.checkpoint()
        while not there():
            self.require_open()
            if self.trouble is not None:
                raise self.trouble
            await self._changes.wait()


def _asyncio_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
