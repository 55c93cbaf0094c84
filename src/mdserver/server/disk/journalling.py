"""Writes the journal of a running server: which output becomes a line of which stream.

The streams about clients have the lines and columns of the audit logs. `messages` has every
committed message, `stats` one indicator a line, `receipts` one line a receipt; the stream `log` is
the write-ahead log (`mdserver.server.disk.wal_writer`). Lines are encoded here, in the event loop:
a thread that computes competes with the loop for the interpreter, and holds it up for longer than
the encoding takes. The thread of `mdserver.journal.writer` only writes.

The thread reports its state as events, which `Journal._take` handles in the loop:

    writing --Blocked--> blocked --Unblocked, no gap--> writing
                            |
                            '--Unblocked with a gap--> compacting --stream whole again--> writing
    any --Broken--> broken: `Journal.run` raises, and the process ends

The node is given each change as `Trouble`. With `JournalDiskFull = refuse` it refuses publications
until the trouble is over. With `continue` the server goes on; after a gap in the write-ahead log a
restart could forget messages until a compaction has written all that is held.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import structlog
import trio
from attrs import frozen

from mdserver.cluster.node import TICK, Node
from mdserver.config import JournalDiskFull
from mdserver.core.audit import RECEIPTS
from mdserver.core.inputs import TimerDue, Trouble
from mdserver.core.message import Entry
from mdserver.core.outputs import Committed, Log
from mdserver.errors import MdserverError
from mdserver.journal.audit import fast_line
from mdserver.journal.rows import (
    NS_PER_US,
    ROW_VERSION,
    Place,
    ReceiptRow,
    StatRow,
    checked,
    message_row,
)
from mdserver.journal.writer import (
    Blocked,
    Broken,
    Deleted,
    Event,
    JournalWriter,
    Stored,
    Unblocked,
)
from mdserver.limits import JOURNAL_CLOSE_TIMEOUT_S, JOURNAL_SETTLE_S
from mdserver.server.disk.wal_writer import MESSAGES, WalWriter
from mdserver.server.engine import Engine

STREAMS = (MESSAGES, "access", "publish", "cache", "stats", "receipts")
_STREAM_OF = {"access": "access", "message": "publish", "cache": "cache"}
"""Stream of an audit log -> stream of the journal that has the same lines."""

log = structlog.get_logger()
_encode = msgspec.json.Encoder().encode


class JournalBrokenError(MdserverError):
    """The journal cannot be written any more; the message is one line that says why."""


@frozen
class JournalState:
    """The state of the journal of a running server: `trouble` is None while it is in order.

    `waiting_bytes` is the size of what is queued and not written yet, `lost_lines` the number of
    lines that were dropped since the start.
    """

    trouble: str | None
    waiting_bytes: int
    lost_lines: int


class Journal:
    """The journal of a running server.

    `trouble` is the reason why the journal is not in order now, otherwise None. `written` has the
    places of messages that have a row already. Their commit was not on the disk before the restart,
    so the node hands them on a second time. A place has no history id: one that begins later has a
    greater epoch.
    """

    def __init__(
        self,
        writer: JournalWriter,
        node: str,
        engine: Engine,
        wal: WalWriter | None = None,
        written: set[Place] | None = None,
    ) -> None:
        self.trouble: str | None = None
        self._node = node
        self._engine = engine
        self._refuses = writer.settings.disk_full is JournalDiskFull.REFUSE
        self._writer = writer
        self.wal = wal
        self._written = written or set()
        self._failed = trio.Event()
        self._failure = ""
        self._blocked = False
        self._lost_lines = 0
        self._stored = trio.lowlevel.ParkingLot()
        if wal is not None:
            wal.when_whole = self._whole

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Journal"]:
        """Write until the end of the block, and then all that is still queued."""
        token = trio.lowlevel.current_trio_token()
        self._writer.start(lambda event: token.run_sync_soon(self._take, event))
        try:
            yield self
        finally:
            if self.wal is not None:
                self.wal.end()
            with trio.CancelScope(shield=True), trio.move_on_after(2 * JOURNAL_CLOSE_TIMEOUT_S):
                lost = await trio.to_thread.run_sync(self._writer.close, abandon_on_cancel=True)
                if lost:
                    log.error("journal lines lost", count=lost, reason=self.trouble)

    async def settle(self, node: Node) -> None:
        """Have a single server write its start down, and commit what it found in its logs.

        It serves nobody before that, and workers that begin later learn at once that it does.

        Waits for the disk, for at most `JOURNAL_SETTLE_S`; after that `Node.unready` says what is
        missing. A disk that is full does not keep the server from starting: it is reported as at
        any other time. Raises JournalBrokenError.
        """
        if not node.settings.single:
            return  # members commit together, once they have links to each other
        with trio.move_on_after(JOURNAL_SETTLE_S):
            self._engine.dispatch(TimerDue(TICK))
            while not (self._blocked or self._failed.is_set()):
                if node.settled and node.unready() is None:
                    break
                await self._stored.park()
        if self._failed.is_set():
            raise self._broken()

    async def run(self) -> None:
        """Keep the write-ahead log short. Raises JournalBrokenError when the thread gives up."""
        async with trio.open_nursery() as nursery:
            if self.wal is not None:
                nursery.start_soon(self.wal.run)
            await self._failed.wait()
            nursery.cancel_scope.cancel()
        raise self._broken()

    def _broken(self) -> JournalBrokenError:
        return JournalBrokenError(f"The journal is broken: {self._failure}")

    def state(self) -> JournalState:
        """Return the state of the journal."""
        writer = self._writer
        return JournalState(
            self.trouble, writer.waiting_bytes, self._lost_lines + writer.lost_lines
        )

    def write(self, stream: str, row: msgspec.Struct) -> None:
        """Queue one row of a stream, and return at once."""
        self._writer.write(stream, (checked(_encode(row)),))

    def take(self, line: Log) -> None:
        """Write a line of the core's logs, if the journal has a stream for it."""
        if line.stream == "stats":
            self._sampled(line)
            return
        if line.stream == RECEIPTS:
            values = {name: value for name, value in line.values.items() if name != "time"}
            self.write(RECEIPTS, msgspec.convert({"v": ROW_VERSION, **values}, ReceiptRow))
            return
        stream = _STREAM_OF.get(line.stream)
        if stream is not None:
            self._writer.write(stream, (checked(fast_line(line, self._node)),))

    def _sampled(self, line: Log) -> None:
        """Write a line of statistics as one row for each indicator."""
        values = dict(line.values)
        ts = int(values.pop("time") or 0) // NS_PER_US
        self._writer.write(
            "stats",
            [
                checked(
                    _encode(
                        StatRow(v=ROW_VERSION, ts=ts, node=self._node, indicator=name, value=value)
                    )
                )
                for name, value in values.items()
                if isinstance(value, int | float)
            ],
        )

    def committed(self, output: Committed) -> None:
        """Write a row for each committed message."""
        now = self._engine.clock()
        group, history, node = output.group, output.history, self._node
        entries = self._unwritten(output.entries) if self._written else output.entries
        self._writer.write(
            MESSAGES,
            [checked(_encode(message_row(entry, group, history, node, now))) for entry in entries],
        )

    def _unwritten(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries that have no row yet.

        Each place is removed when it is found: an entry is handed on a second time only once.
        """
        left: list[Entry] = []
        for entry in entries:
            place = (entry.publication.subject, entry.epoch, entry.seq)
            if place in self._written:
                self._written.remove(place)
            else:
                left.append(entry)
        return left

    def _take(self, event: Event) -> None:
        """Handle an event of the thread, in the event loop."""
        match event:
            case Blocked(reason, withdrawn):
                self._blocked = True
                log.error("journal blocked", reason=reason, refusing=self._refuses)
                # First the node takes the withdrawn entries out of its logs. The thread drops what
                # that step writes to the stream `log`, too, so `wal.withdrawn` comes afterwards.
                self._troubled(f"The journal cannot be written: {reason}.", withdrawn=withdrawn)
                if withdrawn and self.wal is not None:
                    self.wal.withdrawn()
                self._stored.unpark_all()
            case Unblocked(lost, gap):
                self._blocked = False
                self._lost_lines += lost
                log.warning("journal goes on", lines_lost=lost)
                if gap and self.wal is not None:
                    self._troubled("The journal is written anew: a restart now may forget.")
                    self.wal.begin_again()
                else:
                    self._troubled(None)
            case Deleted(stream, count, size, unread):
                level = log.warning if unread else log.info
                level(
                    "journal segments deleted",
                    stream=stream,
                    segments=count,
                    size_bytes=size,
                    unread=unread,
                )
            case Broken(reason):
                self._failure = reason
                self._failed.set()
                self._stored.unpark_all()
            case Stored(request):
                if self.wal is not None:
                    self.wal.stored(request)
                self._stored.unpark_all()

    def _whole(self) -> None:
        """End the trouble about a gap: a compaction has closed it."""
        if self.trouble is not None and not self._blocked:
            log.info("journal whole again")
            self._troubled(None)

    def _troubled(self, reason: str | None, *, withdrawn: bool = False) -> None:
        """Set `trouble` and give it to the node."""
        self.trouble = reason
        self._engine.dispatch(Trouble(reason, self._refuses, withdrawn))
