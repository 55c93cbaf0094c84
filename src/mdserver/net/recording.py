"""The logs of this member's seed on its disk: written as the node says, read at the start.

Every `Record` output becomes lines of the stream `log`, and `Stored` the node's `Recorded`. Once
the stream has grown to several times what it stands for, the node is asked for a picture of each
group in turn, and what stands before the first of them goes.
"""

from collections.abc import Callable

import trio

from mdserver.cluster.node import Node
from mdserver.cluster.records import Begun, Ended, Held, Learned, Picture, Record, Recorded
from mdserver.config import JournalFsync
from mdserver.journal.records import LOG, line_of
from mdserver.journal.rows import Place
from mdserver.journal.segments import StreamWriter
from mdserver.journal.writer import JournalWriter
from mdserver.limits import JOURNAL_LOG_BYTES_MIN, JOURNAL_LOG_GROWTH
from mdserver.net.engine import Engine

MESSAGES = "messages"


class Recording:
    """Carries `Record` outputs out. `begun` is how this run's part of the stream begins.

    `when_whole` is called whenever the stream was written anew.
    """

    def __init__(
        self, writer: JournalWriter, engine: Engine, begun: Begun, fsync: JournalFsync
    ) -> None:
        self._writer = writer
        self._engine = engine
        self._begun = begun
        self._hands_on = fsync is JournalFsync.COMMIT
        self._size = sum(segment.size_bytes for segment in writer.stream(LOG).sealed)
        self._pictured = 0
        self._grown = trio.Event()
        self._stored = trio.Event()
        self._picturing = False
        self.when_whole: Callable[[], None] = _nothing
        writer.write(LOG, (line_of(begun),))
        engine.carry(Record, self._record)

    def _record(self, output: Record) -> None:
        lines = [line_of(record) for record in output.records]
        size = sum(map(len, lines))
        self._size += size
        if self._picturing:
            self._pictured += size
        grown = self._size > max(JOURNAL_LOG_BYTES_MIN, JOURNAL_LOG_GROWTH * self._pictured)
        if grown and not self._picturing:
            self._grown.set()
        if self._hands_on and any(isinstance(one, Held | Learned) for one in output.records):
            # They say that what is committed was handed on: so it has to be, whatever happens.
            self._writer.write(MESSAGES, (StreamWriter.sync,))
        self._writer.write(LOG, lines, output.request)

    def stored(self, request: int) -> None:
        """The records of a request are on the disk, as far as the policy asks for it."""
        self._stored.set()
        self._engine.dispatch(Recorded(request))

    def begin_again(self) -> None:
        """The stream was emptied: begin it anew, and have `run` write all that is held."""
        self._writer.open_last()
        self._writer.write(LOG, (line_of(self._begun),))
        self._grown.set()

    def end(self) -> None:
        """Nothing is recorded any more: all was written."""
        self._writer.write(LOG, (line_of(Ended()),))

    async def run(self) -> None:
        """Keep the stream from growing without end, until cancelled."""
        while True:
            await self._grown.wait()
            self._grown = trio.Event()
            await self._shrink()

    async def _shrink(self) -> None:
        """Have everything written once more, one group at a time, and drop what stood before."""
        turn = Turn()
        self._writer.write(LOG, (turn.begin, line_of(self._begun)))
        self._picturing, self._pictured = True, 0
        for group in range(self._begun.groups):
            self._stored = trio.Event()
            self._engine.dispatch(Picture((group,)))
            await self._stored.wait()
        self._picturing = False
        self._size = self._pictured
        self._writer.write(LOG, (turn.end,))
        if not self._grown.is_set():
            self.when_whole()


def _nothing() -> None:
    """Nobody waits for it."""


class Turn:
    """The steps of the writer's thread around the lines that stand for all before them."""

    def __init__(self) -> None:
        self._first = 0

    def begin(self, stream: StreamWriter) -> None:
        """The lines that follow begin a segment."""
        stream.seal()
        self._first = stream.next_number

    def end(self, stream: StreamWriter) -> None:
        """They are on the disk: those before them can go."""
        stream.seal()
        stream.delete([segment for segment in stream.sealed if segment.number < self._first])


def tail_of(node: Node) -> dict[Place, int]:
    """What the logs hold beyond what is committed: each entry's place, and when it was made."""
    return {
        (entry.publication.subject, entry.epoch, entry.seq): entry.publication.time
        for log in node.ground.logs
        for entry in log.since(log.committed)
    }
