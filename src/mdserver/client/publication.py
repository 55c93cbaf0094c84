"""A publication on its way."""

import trio

from mdserver.client.core.values import PublishResult
from mdserver.client.errors import PublishError
from mdserver.core.events import StatusName


class Publication:
    """What `Client.submit` gives: the result may come later."""

    __slots__ = ("_waiting", "result")

    def __init__(self) -> None:
        self.result: PublishResult | None = None
        self._waiting: trio.Event | None = None

    def settle(self, result: PublishResult) -> None:
        """The result is here."""
        self.result = result
        if self._waiting is not None:
            self._waiting.set()

    async def outcome(self) -> PublishResult:
        """Wait for the result; PublishError where it is not PUBLISH_OK.

        To stop waiting takes nothing back: the publication goes on.
        """
        if self.result is None:
            if self._waiting is None:
                self._waiting = trio.Event()
            await self._waiting.wait()
        else:
            await trio.lowlevel.checkpoint()
        assert self.result is not None
        if self.result.status is not StatusName.PUBLISH_OK:
            raise PublishError(self.result)
        return self.result
