"""The statuses of a client, as an application reads them."""

from collections.abc import AsyncIterator, Callable

from mdserver import limits
from mdserver.client.core.values import Notice
from mdserver.client.logs import log_notice
from mdserver.client.mailbox import Mailbox


class Statuses:
    """The statuses of a client, oldest first, as an asynchronous iterator of `Notice`.

    At most 1,000 are kept for an application that reads them late; the oldest ones are dropped.
    The iteration ends when the client is left.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._mailbox: Mailbox[Notice] = Mailbox(check, limits.CLIENT_NOTICES_MAX)

    def __aiter__(self) -> AsyncIterator[Notice]:
        return self

    async def __anext__(self) -> Notice:
        return await self._mailbox.take()

    async def batch(self) -> list[Notice]:
        """Wait for at least one status and return all that have arrived.

        Raises StopAsyncIteration at the end.
        """
        return await self._mailbox.take_all()

    def rest(self) -> list[Notice]:
        """Return the statuses that are left once the client was left; never waits."""
        return self._mailbox.take_rest()

    def put(self, notice: Notice) -> None:
        """Add a status and log it; called by the client."""
        log_notice(notice)
        self._mailbox.put([notice])

    def close(self) -> None:
        """End the iteration after the statuses that are kept; called by the client."""
        self._mailbox.close()
