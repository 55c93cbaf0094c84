"""The life of a client: how its parts are put together, entered and left.

    made    subscriptions may be added, and nothing is sent
    open    from `enter` to `leave`: it connects, and reconnects by itself
    left    every iteration has ended, and nothing waits any more

While a client is open, three things may keep it from its servers (`ClientStanding`): a server
refused it (`stopped`), none was reached in time (`unreachable`), or one of its tasks failed, which
is a bug (`failed`). Then all that waits is woken and fails with that reason. After the first two
`connect` begins again; after the third the client can only be left.

Each part has one purpose, and knows as little as possible of the others:

- `ClientCore` decides, without I/O, what to send and when to reconnect.
- `Driver` carries out the outputs of the core, and reports to it what happened.
- `SharedSubscriptions` hands each message to the subscriptions that it matches.
- `Publishing` hands each result to the task that waits for it.
- `Reporting` sends receipts.
- `FirstConnection` ends waits if no server is reached at all.
- `ClientStanding` says whether a task may wait, and wakes it when something has changed.
"""

from collections.abc import Callable

import anyio
import anyio.lowlevel

from mdserver import limits
from mdserver.client.core import values as out
from mdserver.client.core.machine import ClientCore
from mdserver.client.core.receipts import ReceiptBook
from mdserver.client.driver import Driver, now
from mdserver.client.errors import ClientError, ConnectError, NotOpenError, StoppedError
from mdserver.client.first_connection import FirstConnection
from mdserver.client.publishing import Publishing
from mdserver.client.reporting import Reporting
from mdserver.client.sharing import SharedSubscriptions
from mdserver.client.statuses import Statuses
from mdserver.client.tasks import Tasks, open_tasks
from mdserver.client.waiting import ClientStanding


class ClientLife:
    """The parts of one client. `book` is where receipts are counted; None for a client without."""

    def __init__(
        self,
        core: ClientCore,
        driver: Driver,
        book: ReceiptBook | None,
        connect_timeout_s: float | None,
        timeout_s: float | None,
    ) -> None:
        self._core = core
        self._driver = driver
        self.standing = ClientStanding()
        self.publishing = Publishing(core, driver.perform, self.standing, timeout_s)
        self.shared = SharedSubscriptions(core, driver.perform, self.standing, now, book)
        self._reporting: Reporting | None = None
        if book is not None:
            self._reporting = Reporting(book, core, driver.perform, self.standing, now)
        self._first = FirstConnection(connect_timeout_s, core, self.standing, self._unreachable)
        self._tasks: Tasks | None = None
        self.statuses = Statuses(self.standing.require_place)
        self._takers: dict[type, Callable[..., None]] = {
            out.DeliverMessages: self.shared.deliver,
            out.Published: self.publishing.published,
            out.Notify: lambda output: self.statuses.put(output.notice),
            out.Subscribed: self.shared.subscribed,
            out.Refused: self.shared.refused,
            out.Reported: self._reported,
            out.Connected: self._connected,
            out.Stopped: self._stop,
        }

    # From beginning to end

    async def enter(self) -> None:
        """Open the client, and have it connect. Raises NotOpenError if it was entered before."""
        self.standing.enter()
        try:
            self._tasks = await open_tasks(self._failed)
        except BaseException:
            self.standing.leave()
            raise
        self._driver.start(self._tasks)
        if self._reporting is not None:
            self._tasks.start_soon(self._reporting.run)
        self.connect()

    def connect(self) -> None:
        """Connect now, also after a stop or when no server was reached."""
        self.standing.require_open()
        self.standing.stopped = self.standing.unreachable = None
        assert self._tasks is not None
        self._first.expect(self._tasks)
        self._driver.perform(self._core.connect(now()))

    async def leave(self, error: BaseException | None) -> bool:
        """Close the client, after what is missing has come if it ends without an error.

        Returns whether `error`, which ends it, is to be suppressed.
        """
        assert self._tasks is not None
        suppress = False
        try:
            if error is None and self.standing.failed is None:
                with anyio.move_on_after(limits.CLIENT_DRAIN_TIMEOUT_S):
                    await self.publishing.settled()
                    await self.reported()
        finally:
            # A cancelled drain, too, must leave no task behind and no iteration that waits.
            self._driver.perform(self._core.disconnect())
            try:
                with anyio.move_on_after(2 * limits.CLIENT_CLOSE_TIMEOUT_S, shield=True):
                    await self._driver.leave()
            finally:
                self.statuses.close()
                for subscription in self.shared.all():
                    subscription.close()
                self.standing.leave()
                self.publishing.wake()
                suppress = await self._tasks.close(error)
        return suppress

    async def reported(self) -> None:
        """Wait until the server has all receipts; does nothing if the client gives none."""
        await anyio.lowlevel.checkpoint()
        if self._reporting is not None:
            await self._reporting.reported()

    # What keeps it from its servers

    def _failed(self, error: BaseException) -> None:
        """Fail everything that waits: a task of the client failed.

        The error itself is raised when the client is left. Only asyncio calls this; under Trio the
        nursery cancels the block.
        """
        self.standing.failed = error
        self._fail_all(NotOpenError(f"the client ended by an error of its own: {error!r}"))
        self._driver.perform(self._core.disconnect())
        self.publishing.wake()

    def _unreachable(self, error: ConnectError) -> None:
        """Fail everything that waits: no server was reached in time."""
        self._driver.perform(self._core.give_up(str(error)))
        self._fail_all(error)

    def _stop(self, output: out.Stopped) -> None:
        """Fail everything that waits: a server refused the client."""
        error = self.standing.stopped = StoppedError(output.code, output.reason)
        self._fail_all(error)

    def _fail_all(self, error: ClientError) -> None:
        """Wake the tasks that wait for a change, and raise `error` from every iteration."""
        self.standing.changed()
        for subscription in self.shared.all():
            subscription.fail(error)

    # What the core says

    def take(self, output: out.Output) -> None:
        """Hand an output of the core to its handler; never waits."""
        self._takers[type(output)](output)

    def _connected(self, output: out.Connected) -> None:
        """Go on with receipts and joins in a new session.

        Both are left to tasks, because the commands that subscribe again come after this output.
        """
        assert self._tasks is not None
        if self._reporting is not None:
            self._reporting.connected(output)
            self._tasks.start_soon(self._reporting.report_again)
        self._first.reached()
        if self.shared.connected():
            self._tasks.start_soon(self._join_again)
        self.standing.changed()

    async def _join_again(self) -> None:
        """Start interrupted joins over on a new connection.

        The checkpoint lets the core first send the commands that recover what the other
        subscriptions missed; `_connected` runs in the middle of that.
        """
        await anyio.lowlevel.checkpoint()
        self.shared.go_on()

    def _reported(self, output: out.Reported) -> None:
        """Hand the answer to a mark to the part that asked: negative marks are of subscriptions."""
        if output.mark < 0:
            self.shared.reported(-output.mark)
        elif self._reporting is not None:
            self._reporting.confirmed(output.mark)
