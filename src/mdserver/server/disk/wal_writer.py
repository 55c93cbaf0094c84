"""Writes the write-ahead log of this member to the stream `log`, and keeps the stream short.

Every `WriteWal` output becomes lines of the stream, and the writer's `Stored` becomes the node's
`WalSynced`. The order of the stream is the order of the outputs, because a replay of it has to
give the same group logs (`mdserver.cluster.wal`).

*Bounded hand-over.* The lines of an output are encoded only when the thread that writes has room
for them (`JOURNAL_AHEAD_BYTES`). A large entry is therefore never held as bytes as a whole, and
these lines alone never fill the queue of the thread, which drops lines when it is full.

*Compaction.* Once the stream has grown to `JOURNAL_LOG_GROWTH` times the size of the checkpoints of
the last compaction, and to `JOURNAL_LOG_BYTES_MIN`, it is written anew (`WalWriter._shrink`):

1. The open segment is sealed, and the lines that follow begin a new one (`Compaction.begin`).
2. The node writes a checkpoint of each group, one after the other. The first line of a checkpoint
   takes its place in the order of all lines, because the checkpoint shows the group as it is
   there. Its other lines may stand between later entries, so publications need not wait for them.
3. When all checkpoints are on the disk, the segments before step 1 are deleted (`Compaction.end`).

Until step 3 the old segments are complete, so a crash in between loses nothing. If lines were
dropped or withdrawn since step 1, the checkpoints may be incomplete: the old segments stay, and the
compaction is repeated.
"""

from collections import ChainMap, deque
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path

import structlog
import trio

from mdserver.cluster.log import GroupLog
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
from mdserver.journal.rows import CommittedEnd, Place, Tail
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
    """The part of the server that carries `WriteWal` outputs out.

    `begun` is the entry with which this run's part of the stream begins. With `begins` it is not in
    the stream yet and is written first, after `renewed` if the entries that were found have a new
    history id. `replacements` has counted the entries that were found at the start.

    `_queue` holds the requests of the node whose lines the thread was not given yet, `_given` the
    writes that the thread has and that are not on the disk yet. Together they are bounded by what
    the node lets be on its way to the disk (`mdserver.cluster.coordinators`).

    `when_whole` is called when a compaction is on the disk, so that the stream has no gap any more.
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
            if writer.stream(LOG).gap:
                # The gap may be forgotten only when the lines that account for it are on the disk.
                known = [StreamWriter.sync, StreamWriter.end_gap]
            writer.write(LOG, [*self._beginning, *known])

    def write(self, output: WriteWal) -> None:
        """Queue the entries of a request; `WalSynced` answers it once they are on the disk."""
        if self._hands_on and any(isinstance(one, WalLog | WalCommitted) for one in output.entries):
            # These entries say that committed messages were handed on to the stream `messages`, and
            # a restart does not hand them on again. So the rows have to be on the disk first; the
            # stream `log` is written after all others.
            self._writer.write(MESSAGES, (StreamWriter.sync,))
        for one in output.entries:
            self._replacements.take(one)
        lines: Iterator[bytes] = chain.from_iterable(map(self._lines.lines, output.entries))
        if self._asked:
            # A checkpoint shows the group as it is at the first line, so that line keeps its place
            # among the others. The rest follows bit by bit (`_write_checkpoint`).
            self._checkpoint, lines = lines, islice(lines, 1)
        self._queue.append((output.request, lines, self._asked))
        self._queued += 1
        self._feed()

    def _feed(self) -> None:
        """Give the thread what is queued here until it has `JOURNAL_AHEAD_BYTES`."""
        while self._queue and self._ahead < JOURNAL_AHEAD_BYTES:
            request, rest, of_checkpoint = self._queue[0]
            if self._give(rest, request, of_checkpoint=of_checkpoint):
                self._queue.popleft()
                self._fed += 1

    def _give(self, lines: Iterator[bytes], request: int, *, of_checkpoint: bool) -> bool:
        """Give the thread the next `JOURNAL_PORTION_BYTES` of lines; return whether none is left.

        The last lines answer `request`, the node's number of it, or 0 for no answer.
        `of_checkpoint` says that they are lines of a checkpoint.
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
        """Give the thread lines of `size` bytes; `answered` is the request that they complete.

        Lines are kept until they are on the disk, in case the thread withdraws them. Those of a
        checkpoint are not: after a withdrawal the checkpoint is made anew.
        """
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
        """Take the answer of the thread: its writes up to `request` are stored.

        With `JournalFsync = commit` they are on the disk, otherwise with the operating system.
        """
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
        """Write again what the thread withdrew, without the entries of `WalAppended`.

        Nothing of it is on the disk. The node was given `Trouble` and has taken those entries out
        of its logs, so they must not come back with a replay; the other lines still hold. A
        checkpoint may contain the entries, so a compaction that is under way starts again.
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
        """Record that lines were dropped, and start a compaction, which closes the gap.

        Entries between the gap and the next checkpoint of their group cannot be relied on;
        `WalResumed` says so to a replay.
        """
        self._writer.open_last()
        self._writer.write(LOG, (line_of(self._begun), line_of(WalResumed())))
        self._grown.set()

    def end(self) -> None:
        """Write how much is committed, all that is queued, and `WalEnded` as the last line.

        A start that finds `WalEnded` knows that no lines are missing at the end, even if
        `JournalFsync` syncs seldom or never.
        """
        self._engine.dispatch(ConcludeWal())
        for _, lines, _ in self._queue:
            self._writer.write(LOG, list(lines))
        self._queue.clear()
        self._writer.write(LOG, (line_of(WalEnded()),))

    async def run(self) -> None:
        """Compact the stream whenever it has grown enough, until cancelled."""
        while True:
            await self._grown.wait()
            self._grown = trio.Event()
            await self._shrink()

    async def _shrink(self) -> None:
        """Compact the stream: write a checkpoint of each group, then drop the older segments.

        If lines were dropped or withdrawn meanwhile, the older segments stay and `run` calls this
        again.
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
            return  # the process ends, and the next start needs the older segments
        if self._withdrawals > withdrawals:
            self._grown.set()
            return
        # Since the last compaction a group's log was replaced under another history id. The older
        # segments may hold the only copy of the replaced messages.
        compaction.sets_aside = self._replacements.count > self._kept_aside
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
        """Write a checkpoint of a group; False if the node failed or lines were withdrawn.

        The checkpoint proceeds by two portions for each time that the thread catches up. It is
        therefore finished in bounded time even under full load, and the load does not wait for it.
        """
        withdrawals = self._withdrawals
        self._asked = True
        self._engine.dispatch(Checkpoint((group,)))
        self._asked = False
        checkpoint, self._checkpoint = self._checkpoint, None
        if checkpoint is None:
            return False  # the node failed
        # The first line was queued like any other; the rest must not overtake it.
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
        """Wait until the thread has stored something."""
        self._room = trio.Event()
        await self._room.wait()


def _nothing() -> None:
    """Do nothing: the callback is not set."""


class Compaction:
    """The two steps that the writer's thread takes before and after the lines of a compaction.

    With `sets_aside` the older segments go to the folder `aside` instead of being deleted. `done`
    says that the older segments are gone, so that the compaction counts.
    """

    def __init__(self) -> None:
        self.sets_aside = self.done = False
        self.aside: Path | None = None
        self._first = 0
        self._interruptions = -1

    def begin(self, stream: StreamWriter) -> None:
        """Seal the segment, so that the lines that follow begin another one."""
        stream.seal()
        self._first = stream.next_number
        self._interruptions = stream.interruptions

    def end(self, stream: StreamWriter) -> None:
        """Delete the segments from before `begin`, unless lines were dropped since."""
        if stream.interruptions != self._interruptions:
            return
        # `seal` syncs: the older segments may go only when the checkpoints are on the disk.
        stream.seal()
        stream.end_gap()
        before = [segment for segment in stream.sealed if segment.number < self._first]
        if self.sets_aside and before:
            self.aside = stream.set_aside(before)
        elif before:
            stream.delete(before)
        self.done = True


def tail_of(node: Node) -> dict[Place, Tail]:
    """Return the places of all uncommitted entries, with group and time of publication."""
    return {
        (entry.publication.subject, entry.epoch, entry.seq): Tail(
            group.index, entry.publication.time
        )
        for group in node.groups
        for entry in group.log.since(group.log.committed)
    }


def ends_of(node: Node) -> dict[int, CommittedEnd]:
    """Return how far the logs are committed, of the groups that have a history id."""
    return {
        group.index: CommittedEnd(
            group.history, _committed_numbering(group.log), group.log.floor.seq
        )
        for group in node.groups
        if group.history
    }


def _committed_numbering(log: GroupLog) -> Mapping[str, int]:
    """Return the last committed number of each subject."""
    uncommitted: dict[str, int] = {}
    for entry in log.since(log.committed):
        uncommitted.setdefault(entry.publication.subject, entry.seq - 1)
    return ChainMap(uncommitted, log.numbering)
