"""A publication that may not have its result yet."""

from collections.abc import Callable

import anyio.lowlevel

from mdserver.client.core.values import PublishResult
from mdserver.client.errors import PublishError
from mdserver.client.waiting import Signal
from mdserver.core.events import StatusName


class Publication:
    """A publication that was submitted; `result` is None until the result arrives."""

    __slots__ = ("_check", "_settled", "result")

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self.result: PublishResult | None = None
        self._settled: Signal | None = None

    def settle(self, result: PublishResult) -> None:
        """Set the result and wake the tasks that wait for it; called by the client."""
        self.result = result
        if self._settled is not None:
            self._settled.wake()

    async def outcome(self) -> PublishResult:
        """Wait for the result and return it.

        Raises PublishError if it is not PUBLISH_OK. A cancelled wait takes nothing back: the
        publication goes on.
        """
        if self.result is None:
            if self._settled is None:
                self._settled = Signal(self._check)
            await self._settled.wait()
        else:
            await anyio.lowlevel.checkpoint()
        assert self.result is not None
        if self.result.status is not StatusName.PUBLISH_OK:
            raise PublishError(self.result)
        return self.result
