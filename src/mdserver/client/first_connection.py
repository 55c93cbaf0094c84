"""The time that a client has to reach a server at all (`connect_timeout_s`)."""

from collections.abc import Callable

import anyio
from attrs import define, field

from mdserver.client.core.machine import ClientCore
from mdserver.client.errors import ConnectError
from mdserver.client.tasks import Tasks
from mdserver.client.waiting import ClientStanding


@define(eq=False)
class FirstConnection:
    """The wait for the first connection of a client, which fails what waits when it is too long.

    `timeout_s` None: it may take any time. `fail` is called once for each wait that was too long.
    Once a server was reached, connections may be lost for any time.
    """

    timeout_s: float | None
    _core: ClientCore
    _standing: ClientStanding
    _fail: Callable[[ConnectError], None]
    _waiting: anyio.CancelScope | None = field(default=None, init=False)
    _reached: bool = field(default=False, init=False)

    def expect(self, tasks: Tasks) -> None:
        """Begin the wait, or begin it again."""
        if self._waiting is not None:
            self._waiting.cancel()
        if self.timeout_s is not None and not self._reached:
            self._waiting = anyio.CancelScope()
            tasks.start_soon(self._wait, self.timeout_s, self._waiting)

    def reached(self) -> None:
        """End the wait: there is a session."""
        self._reached, self._standing.unreachable = True, None

    async def _wait(self, timeout_s: float, waiting: anyio.CancelScope) -> None:
        with waiting:
            await anyio.sleep(timeout_s)
        if waiting.cancel_called or self._reached or self._standing.stopped is not None:
            return
        reason = f"no server was reached in {timeout_s:g} s: {self._core.failure}"
        error = self._standing.unreachable = ConnectError(reason)
        self._fail(error)
