"""Writes the logs of this member's seed to its disk, and keeps what is there from growing.

Every `WriteWal` output becomes lines of the stream `log`, and `Stored` the node's `WalSynced`. Once
the stream has grown to several times what it stands for it is compacted: the node is asked for a
checkpoint of each group in turn, and what stands before the first of them goes.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path

import structlog
import trio

from mdserver.cluster.node import Node
from mdserver.cluster.wal import (
    Checkpoint,
    ConcludeWal,
    WalAppended,
    WalBegun,
    WalCommitted,
    WalEnded,
    WalLog,
    WalRenamed,
    WalResumed,
    WalSynced,
    WriteWal,
)
from mdserver.config import JournalFsync
from mdserver.journal.rows import Place
from mdserver.journal.segments import StreamWriter
from mdserver.journal.wal_lines import LOG, Replacements, WalLines, entry_of, line_of
from mdserver.journal.writer import JournalWriter, Step
from mdserver.limits import (
    JOURNAL_AHEAD_BYTES,
    JOURNAL_LOG_BYTES_MIN,
    JOURNAL_LOG_GROWTH,
    JOURNAL_PORTION_BYTES,
)
from mdserver.server.engine import Engine

MESSAGES = "messages"
log = structlog.get_logger()


class WalWriter:
    """Carries `WriteWal` outputs out. `begun` is how this run's part of the stream begins,
    and `begins`: it does not stand there yet. `renewed` comes before it, if what was found has a
    new history id. `replacements` counted what was found.

    The thread that writes is given `JOURNAL_AHEAD_BYTES` at a time; what comes beyond waits here as
    the objects that it is made of, so nothing that was taken is ever too much for the disk. The
    node keeps what it takes in proportion (`mdserver.cluster.coordinators`).
    `when_whole` is called whenever the stream was written anew and is on the disk.
    """

    def __init__(
        self,
        writer: JournalWriter,
        engine: Engine,
        begun: WalBegun,
        fsync: JournalFsync,
        *,
        begins: bool = True,
        renewed: WalRenamed | None = None,
        replacements: Replacements | None = None,
    ) -> None:
        self._writer = writer
        self._engine = engine
        self._begun = begun
        self._hands_on = fsync is JournalFsync.COMMIT
        self._size = sum(segment.size_bytes for segment in writer.stream(LOG).sealed)
        self._checkpoint_bytes = 0
        self._lines = WalLines()
        self._queue: deque[tuple[int, Iterator[bytes], bool]] = deque()
        self._queued = self._fed = 0
        self._requests = 0
        self._ahead = 0
        self._stored = 0
        self._given: deque[tuple[int, int, int, list[bytes]]] = deque()
        self._grown = trio.Event()
        self._room = trio.Event()
        self._compacting = False
        self._checkpoint: Iterator[bytes] | None = None
        self._asked = False
        self._withdrawals = 0
        self._replacements = replacements or Replacements()
        self._kept_aside = 0
        self._beginning = [line_of(one) for one in (renewed, begun) if one is not None]
        self.when_whole: Callable[[], None] = _nothing
        if begins:
            known: list[Step] = []
            if writer.stream(LOG).gap:  # once it stands there what the gap has led to
                known = [StreamWriter.sync, StreamWriter.end_gap]
            writer.write(LOG, [*self._beginning, *known])

    def write(self, output: WriteWal) -> None:
        """Write entries down, and answer once they are on the disk."""
        if self._hands_on and any(isinstance(one, WalLog | WalCommitted) for one in output.entries):
            # They say that what is committed was handed on: so it has to be, whatever happens.
            self._writer.write(MESSAGES, (StreamWriter.sync,))
        for one in output.entries:
            self._replacements.take(one)
        lines: Iterator[bytes] = chain.from_iterable(map(self._lines.lines, output.entries))
        if self._asked:
            # A checkpoint shows how things are at its first line. The others follow when the disk
            # has room for them, and let everything else go first.
            self._checkpoint, lines = lines, islice(lines, 1)
        self._queue.append((output.request, lines, self._asked))
        self._queued += 1
        self._feed()

    def _feed(self) -> None:
        """Give the thread what waits here, as far as it may have so much."""
        while self._queue and self._ahead < JOURNAL_AHEAD_BYTES:
            request, rest, of_checkpoint = self._queue[0]
            if self._give(rest, request, of_checkpoint=of_checkpoint):
                self._queue.popleft()
                self._fed += 1

    def _give(self, lines: Iterator[bytes], request: int, *, of_checkpoint: bool) -> bool:
        """Give the thread the next lines; True if these were the last, which answer `request`.

        `of_checkpoint`: they are lines of a checkpoint.
        """
        given: list[bytes] = []
        size, ended = 0, True
        for line in lines:
            given.append(line)
            size += len(line)
            if size >= JOURNAL_PORTION_BYTES:
                ended = False
                break
        self._write(given, size, request if ended else 0, of_checkpoint=of_checkpoint)
        if not self._compacting and self._size > self._size_max:
            self._grown.set()
        return ended

    def _write(
        self, lines: list[bytes], size: int, answered: int, *, of_checkpoint: bool = False
    ) -> None:
        self._size += size
        if self._compacting:
            self._checkpoint_bytes += size
        self._requests += 1
        self._ahead += size
        self._given.append((self._requests, size, answered, [] if of_checkpoint else lines))
        self._writer.write(LOG, lines, self._requests)

    @property
    def _size_max(self) -> int:
        return max(JOURNAL_LOG_BYTES_MIN, JOURNAL_LOG_GROWTH * self._checkpoint_bytes)

    def stored(self, request: int) -> None:
        """Note that all up to this request is on the disk, as far as the policy asks for it."""
        answered = 0
        self._stored = request
        while self._given and self._given[0][0] <= request:
            _, size, done, _ = self._given.popleft()
            self._ahead -= size
            answered = done or answered
        self._room.set()
        if answered:
            self._engine.dispatch(WalSynced(answered))
        self._feed()

    def withdrawn(self) -> None:
        """Write again what was not stored, but for new entries: nothing of it is on the disk.

        The node took them out of its logs. A checkpoint may have them too, so it is made anew.
        """
        lines, newest = [], 0
        for _, _, answered, given in self._given:
            lines += given
            newest = answered or newest
        for newest, rest, of_checkpoint in self._queue:  # noqa: B007 - the last one is answered
            if not of_checkpoint:
                lines += rest
        self._queue.clear()
        self._fed = self._queued
        self._given.clear()
        self._ahead = 0
        self._withdrawals += 1
        kept = [line for line in lines if not isinstance(entry_of(line), WalAppended)]
        again = [*self._beginning, *kept]
        self._writer.open_last()
        self._write(again, sum(map(len, again)), newest)

    def begin_again(self) -> None:
        """Record that lines were left out, and have `run` write all that is held once more."""
        self._writer.open_last()
        self._writer.write(LOG, (line_of(self._begun), line_of(WalResumed())))
        self._grown.set()

    def end(self) -> None:
        """Record how much is committed; then write all that waits, and that it is all."""
        self._engine.dispatch(ConcludeWal())
        for _, lines, _ in self._queue:
            self._writer.write(LOG, list(lines))
        self._queue.clear()
        self._writer.write(LOG, (line_of(WalEnded()),))

    async def run(self) -> None:
        """Keep the stream from growing without end, until cancelled."""
        while True:
            await self._grown.wait()
            self._grown = trio.Event()
            await self._shrink()

    async def _shrink(self) -> None:
        """Have everything written once more, one group at a time, and drop what stood before.

        If that comes to nothing, because lines were dropped meanwhile, it is done again.
        """
        compaction, withdrawals, replaced = (
            Compaction(),
            self._withdrawals,
            self._replacements.count,
        )
        self._writer.write(LOG, (compaction.begin, line_of(self._begun)))
        self._compacting, self._checkpoint_bytes = True, 0
        for group in range(self._begun.groups):
            if not await self._write_checkpoint(group):
                break
        self._compacting = False
        if self._engine.failure is not None:
            return  # the process ends, and what stood before is all there is
        if self._withdrawals > withdrawals:
            self._grown.set()
            return
        compaction.keeps = self._replacements.count > self._kept_aside
        self._size = self._checkpoint_bytes
        self._requests += 1
        end = self._requests
        self._writer.write(LOG, (compaction.end,), end)
        while self._stored < end:
            await self._more_room()
        if not compaction.done:
            self._grown.set()
            return
        self._kept_aside = replaced
        if compaction.aside is not None:
            log.warning(
                "journal segments set aside: a subject group has a new history, and they "
                "may hold messages of the old one that nobody else holds",
                kept_in=str(compaction.aside),
            )
        if not self._grown.is_set():
            self.when_whole()

    async def _write_checkpoint(self, group: int) -> bool:
        """Have all of a group written once more; False if that is of no use any more.

        Whatever else comes, each turn of the thread has a share for the checkpoint: it is done
        before the stream has grown by several times its size.
        """
        withdrawals = self._withdrawals
        self._asked = True
        self._engine.dispatch(Checkpoint((group,)))
        self._asked = False
        checkpoint, self._checkpoint = self._checkpoint, None
        if checkpoint is None:
            return False  # the node failed
        place = self._queued
        while self._fed < place:
            await self._more_room()
        while self._withdrawals == withdrawals:
            if self._give(checkpoint, 0, of_checkpoint=True) or self._give(
                checkpoint, 0, of_checkpoint=True
            ):
                return True
            share = self._requests
            while self._given and self._given[0][0] <= share:
                await self._more_room()
        return False

    async def _more_room(self) -> None:
        self._room = trio.Event()
        await self._room.wait()


def _nothing() -> None:
    """Stand for a callback that is not set."""


class Compaction:
    """The steps of the writer's thread around the lines that stand for all before them.

    `keeps`: those before them are set aside, in `aside`, and not deleted. `done`: all of it was.
    """

    def __init__(self) -> None:
        self.keeps = self.done = False
        self.aside: Path | None = None
        self._first = 0
        self._interruptions = -1

    def begin(self, stream: StreamWriter) -> None:
        """Seal the segment: the lines that follow begin another one."""
        stream.seal()
        self._first = stream.next_number
        self._interruptions = stream.interruptions

    def end(self, stream: StreamWriter) -> None:
        """Delete what is before the lines, now on the disk, unless some of these were left out."""
        if stream.interruptions != self._interruptions:
            return
        stream.seal()
        stream.end_gap()
        before = [segment for segment in stream.sealed if segment.number < self._first]
        if self.keeps and before:
            self.aside = stream.set_aside(before)
        elif before:
            stream.delete(before)
        self.done = True


def tail_of(node: Node) -> dict[Place, int]:
    """Return the place of each entry that is not committed, and when (ns) it was published."""
    return {
        (entry.publication.subject, entry.epoch, entry.seq): entry.publication.time
        for group in node.groups
        for entry in group.log.since(group.log.committed)
    }
