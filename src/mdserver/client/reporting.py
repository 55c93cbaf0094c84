"""Reports to the server what a client received, so that its journal can be audited."""

from collections.abc import Callable

import anyio

from mdserver import limits
from mdserver.client.core import values as out
from mdserver.client.core.machine import ClientCore
from mdserver.client.core.phases import Phase
from mdserver.client.core.receipts import ReceiptBook
from mdserver.client.waiting import ClientStanding


class Reporting:
    """Sends the receipts of a `ReceiptBook`, and keeps them until the server has them.

    `clock` returns the time in nanoseconds. Receipts that a lost connection left unconfirmed are
    sent again in the next session.
    """

    def __init__(
        self,
        book: ReceiptBook,
        core: ClientCore,
        perform: Callable[[list[out.Output]], None],
        standing: ClientStanding,
        clock: Callable[[], int],
    ) -> None:
        self._book = book
        self._core = core
        self._perform = perform
        self._standing = standing
        self._clock = clock

    async def run(self) -> None:
        """Report what was received, once a minute, until cancelled."""
        while True:
            await anyio.sleep(limits.CLIENT_RECEIPT_S)
            if self._core.phase is Phase.UP:
                self._book.cut(self._clock())
                self._report()

    async def reported(self) -> None:
        """Report now, and wait until the server has the receipts."""
        self._book.cut(self._clock())
        self._report()
        while len(self._book):
            await self._standing.change()

    async def report_again(self) -> None:
        """Send the receipts that the last connection did not confirm.

        This runs in a task of its own, so that it comes after the commands that subscribe again: a
        member confirms only receipts about subjects to which the session subscribes.
        """
        self._report()

    def connected(self, output: out.Connected) -> None:
        """Note the member to which receipts go from now on."""
        self._book.connected(output.event.member)

    def confirmed(self, mark: int) -> None:
        """Forget the receipts that the server has."""
        self._book.confirmed(mark)
        self._standing.changed()

    def _report(self) -> None:
        if self._core.phase is Phase.UP:
            self._perform(self._core.report(*self._book.unsent(self._clock())))
