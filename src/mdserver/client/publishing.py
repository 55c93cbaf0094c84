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
    """Submits publications, and hands their results to whoever waits for them.

    `timeout_s`: how long `publish` waits for a result if it is not told otherwise.
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
        self._answers = Signal()

    async def submit(self, command: Publish) -> Publication:
        """Send a publication, as soon as there is room for one more without a result."""
        standing = self._standing
        standing.require_open()
        while self._core.publications_waiting >= self._core.settings.publications_max:
            await self._answers.wait()
            standing.require_open()
        publication = Publication()
        number, outputs = self._core.publish(command)
        self._unanswered[number] = publication
        self._perform(outputs)
        if standing.unreachable is not None:
            # Waiting for a server that was never reached would block the caller for ever.
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
        """Hand out a result."""
        self._unanswered.pop(output.result.publication).settle(output.result)
        self._answers.wake()

    def wake(self) -> None:
        """Let waiting submissions see that the client was left."""
        self._answers.wake()
