"""The publications of a client, from their submission to their result."""

from collections.abc import Callable

import anyio

from mdserver.client.core import values as out
from mdserver.client.core.machine import ClientCore
from mdserver.client.core.values import PublishResult
from mdserver.client.errors import ClientTimeoutError
from mdserver.client.publication import Publication
from mdserver.client.waiting import ClientStanding, Signal
from mdserver.core.commands import Publish


class Publishing:
    """Submits publications, and hands each result to the `Publication` that waits for it.

    `timeout_s` is the default of `publish`, in seconds; with None it waits without a limit.
    """

    def __init__(
        self,
        core: ClientCore,
        perform: Callable[[list[out.Output]], None],
        standing: ClientStanding,
        timeout_s: float | None,
    ) -> None:
        self._core = core
        self._perform = perform
        self._standing = standing
        self._timeout_s = timeout_s
        self._unanswered: dict[int, Publication] = {}
        self._answers = Signal(standing.require_place)

    async def submit(self, command: Publish) -> Publication:
        """Send a publication, as soon as fewer than `publications_max` have no result yet."""
        standing = self._standing
        standing.require_open()
        while self._core.publications_waiting >= self._core.settings.publications_max:
            await self._answers.wait()
            standing.require_open()
        publication = Publication(standing.require_place)
        number, outputs = self._core.publish(command)
        self._unanswered[number] = publication
        self._perform(outputs)
        if standing.unreachable is not None:
            # After `connect_timeout_s` nothing waits for a server that was never reached, and
            # neither must what is submitted later.
            self._perform(self._core.give_up(str(standing.unreachable)))
        return publication

    async def publish(self, command: Publish, timeout_s: float | None) -> PublishResult:
        """Send a publication and wait for its result; the errors are those of `Client.publish`."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        with anyio.move_on_after(limit_s):
            publication = await self.submit(command)
            return await publication.outcome()
        raise ClientTimeoutError(
            f"the publication to {command.subject} had no result in {limit_s:g} s; it may still be "
            "taken"
        )

    async def settled(self) -> None:
        """Wait until every publication has its result."""
        while self._unanswered:
            await self._answers.wait()

    def published(self, output: out.Published) -> None:
        """Set the result of a publication, and wake the tasks that wait."""
        self._unanswered.pop(output.result.publication).settle(output.result)
        self._answers.wake()

    def wake(self) -> None:
        """Have the submissions that wait for room check whether the client was left."""
        self._answers.wake()
