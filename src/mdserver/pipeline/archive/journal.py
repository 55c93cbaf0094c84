"""The archive of journals: their sealed segments in the order of their numbers, a batch at a time.

Each journal of several is archived by itself, and rows of a message that more than one of them has
become one (`one_row`). What follows is about one of them.

Spark's own file source goes by the times and paths of files. This archive goes by numbers alone.
The position in a stream is in the stream's table itself: the transaction of a batch has the number
of its last segment, and the next batch begins behind it. So no row comes twice and none is left
out, at whatever point a run ends:

1. lines that cannot be used go to `quarantine`, in a transaction with the number of the batch;
2. rows go to the stream's table, in a transaction with the same number: the batch is archived;
3. the checkpoint notes a mark of the last segment, by which an older copy is recognised;
4. the position of the archive is written into the journal, so that the server may delete segments.

A run that ended before 1 leaves both numbers as they were, and the next run plans anew. A run that
ended between 1 and 2 leaves a greater number in `quarantine` than in the stream's table. The batch
is then repeated up to that number: with another end, what was set aside of it would be committed
under another number, and come twice. A run that ended after 2 has finished the batch; the next run
writes the position again.

Segments that are missing, a hole, are a batch of their own, and a row in `quarantine` names them.
Between its commit and that of the batch the hole may grow, as the next segments are deleted. So the
row's transaction has the last number that was named, and a later row begins behind it. Segments
that were deleted before their batch is repeated are named one by one, for the same reason.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from attrs import frozen

from mdserver.pipeline.archive.batches import Archived, ArchiveRun, Written, archive_batch
from mdserver.pipeline.common import checkpoints, delta, rows
from mdserver.pipeline.common.checkpoints import StreamCheckpoint
from mdserver.pipeline.common.delta import TableBatch
from mdserver.pipeline.common.numbered import Missing
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.sources import (
    JournalSource,
    MemberSource,
    ShippedSource,
    segment_lines,
)
from mdserver.pipeline.common.spark_errors import reason_of
from mdserver.pipeline.common.stream_segments import StreamSegments

SEGMENTS_MAX = 1_000
"""The most segments of one batch: the driver has a list of them."""


@frozen
class SegmentPlan:
    """The segments of one batch: those to read, and those that are missing.

    `end` is the number of the last segment, read or missing, and so the number of the batch. A
    batch has either segments or a hole. Only a repeated one may lack some of its segments.
    """

    numbers: tuple[int, ...]
    missing: tuple[Missing, ...]
    end: int
    repeated: bool = False


def plan(
    segments: StreamSegments, after: int, bytes_max: int, end: int | None = None
) -> SegmentPlan | None:
    """Return the plan of the batch behind the segment `after`, None if nothing there is sealed.

    The batch is a hole, if there is one right behind `after` and a sealed segment behind that; else
    segments that follow each other, one at least, and more only as long as they have no more than
    `bytes_max` together. With an `end` it goes exactly up to that segment, whatever is left of the
    segments.
    """
    if end is not None:
        return _repeated(segments, after, end)
    numbers: list[int] = []
    hole: Missing | None = None
    total = 0
    for found in segments.walk(after + 1):
        if isinstance(found, Missing):
            if numbers:
                break
            hole = found
            continue
        if found.size_bytes is None:
            break
        if hole is not None:
            return SegmentPlan((), (hole,), hole.last)
        if numbers and (total + found.size_bytes > bytes_max or len(numbers) >= SEGMENTS_MAX):
            break
        numbers.append(found.number)
        total += found.size_bytes
    return SegmentPlan(tuple(numbers), (), numbers[-1]) if numbers else None


def _repeated(segments: StreamSegments, after: int, end: int) -> SegmentPlan:
    """Return the plan of a batch that is repeated: up to `end`, with what is left of it."""
    whole = range(after + 1, end + 1)
    numbers = tuple(number for number in whole if segments.exists(number))
    missing = sorted(set(whole) - set(numbers))
    return SegmentPlan(
        numbers, tuple(Missing(number, number) for number in missing), end, repeated=True
    )


def run_journals(
    run: ArchiveRun,
    journals: Sequence[JournalSource],
    shipped: Callable[[], Sequence[ShippedSource]] | None = None,
    *,
    once: bool,
    trigger_s: float = 1.0,
) -> None:
    """Archive what is sealed, for ever, or with `once` until there is no more.

    `shipped` is asked again and again for the streams that there are in a place, so those of a
    member that joins the cluster are archived too. The journals take turns, a batch of each stream
    at a time. `trigger_s` is the pause when nothing was found. Raises PipelineError if a journal
    has none of the known streams, if two journals are one or copies of one, if a stream is not the
    one that was archived, or if a batch fails. What was wrong with any of them at the start is
    found before the first batch.
    """
    several = shipped is not None or len(journals) > 1
    archives = [JournalArchive(run, each, several=several) for each in journals]
    known: set[ShippedSource] = set()
    while True:
        for source in shipped() if shipped is not None else ():
            if source not in known:
                known.add(source)
                archives.append(JournalArchive(run, source, several=True))
        if once and not archives:
            raise PipelineError("there is nothing to archive: nothing was shipped to this place")
        # Streams that began since the last turn are looked for in all journals, and compared,
        # before one of them is opened: opening writes a checkpoint.
        for archive in archives:
            archive.identify()
        _check_different(archives)
        for archive in archives:
            archive.open()
        found = False
        for archive in archives:
            found = archive.archive_next() or found
        if once and not found:
            return
        if not found:
            time.sleep(trigger_s)


def _check_different(archives: Sequence["JournalArchive"]) -> None:
    """Raise PipelineError if two of the journals have a stream with the same identifier."""
    seen: dict[str, JournalArchive] = {}
    for archive in archives:
        for identifier in archive.identifiers.values():
            other = seen.setdefault(identifier, archive) if identifier else archive
            if other is archive:
                continue
            if other.is_same_folder(archive):
                raise PipelineError(f"{other.source} and {archive.source} are the same folder")
            raise PipelineError(f"{other.source} and {archive.source} are copies of one journal")


class JournalArchive:
    """One run over all streams of a journal, one of `several` or the only one.

    `identifiers` has those of the streams that were found. Of those that were opened, `_streams`
    has the checkpoints, and `_read` the last archived segment of each.
    """

    def __init__(self, run: ArchiveRun, source: MemberSource, *, several: bool = False) -> None:
        self.source = source
        self.identifiers: dict[str, str | None] = {}
        self._run = run
        self._several = several
        self._streams: dict[str, StreamCheckpoint] = {}
        self._read: dict[str, int] = {}

    def identify(self) -> None:
        """Find the streams that there are, and their identifiers; nothing is written.

        Raises PipelineError if there is none, as in a folder on which nothing is mounted.
        """
        for name in self.source.streams(rows.STREAMS):
            if name not in self.identifiers:
                self.identifiers[name] = self.source.identifier(name)
        if not self.identifiers:
            with self._named():
                raise PipelineError(
                    "there is nothing to archive: the source has none of the known streams"
                )

    def is_same_folder(self, other: "JournalArchive") -> bool:
        """Return whether both journals are read from one folder."""
        sources = (self.source, other.source)
        folders = [source.folder for source in sources if isinstance(source, JournalSource)]
        return len(folders) == 2 and folders[0].samefile(folders[1])

    def open(self) -> None:
        """Open the streams that were found and are not open yet.

        Raises PipelineError if a stream is not the one that was archived.
        """
        with self._named():
            for name, identifier in self.identifiers.items():
                if name not in self._streams:
                    self._open(name, identifier)

    def archive_next(self) -> bool:
        """Archive a batch of each stream that has one; return whether there was any.

        Raises PipelineError if a stream is not the one that was archived, or if a batch fails.
        """
        found = False
        with self._named():
            for name in self._streams:
                found = self._batch(name) or found
        return found

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Have an error of the block name the journal, if there are several."""
        try:
            yield
        except PipelineError as error:
            if not self._several:
                raise
            raise PipelineError(f"{self.source}: {error}") from error

    def _open(self, name: str, identifier: str | None) -> None:
        """Begin with a stream that is there: find its position, and check that it is the same."""
        table = rows.STREAMS[name].table
        self._run.held()
        for each in (table, "quarantine"):
            delta.table(self._run.tables, each)
        if identifier is None and self._several:
            raise PipelineError(
                f"the stream {name} has no identifier, and so cannot be told from those of other"
                " journals: start its server with this release once"
            )
        checkpoint = checkpoints.opened(
            self._run.tables,
            name,
            self.source.identity(self._run.spark, name),
            new=self._run.new_source,
            identifier=identifier,
            several=self._several,
            held=self._run.held,
        )
        read = delta.table(self._run.tables, table).transaction_version(checkpoint.job) or 0
        self._check(checkpoint, read)
        self._streams[name], self._read[name] = checkpoint, read
        if read:  # the last run may have ended before it wrote the position
            self.source.done(name, read, checkpoint.source)

    def _check_all(self, checkpoint: StreamCheckpoint, read: int) -> None:
        """Raise PipelineError if what was staged must not be committed."""
        self._run.held()
        self._check(checkpoint, read)

    def _check(self, checkpoint: StreamCheckpoint, read: int) -> None:
        """Raise PipelineError unless the stream is the one that was archived up to `read`.

        An older copy of the stream has the same identifier. It is recognised by a last number that
        is smaller, or, if segments were written to the copy meanwhile, by the mark.
        """
        name = checkpoint.stream
        checkpoint.check(self.source.identity(self._run.spark, name))
        last = self.source.last(name, read)
        if last is not None and last < read:
            older = f"its last segment is {last}, and {read} segments of it were archived"
        elif not self._is_known(checkpoint, read):
            older = f"its segment {read} is not the one that was archived"
        else:
            return
        raise PipelineError(
            f"the stream {name} is an older copy: {older}. To go on with it from its beginning,"
            f" give --new-source. {checkpoints.SECOND_TIME}"
        )

    def _is_known(self, checkpoint: StreamCheckpoint, read: int) -> bool:
        """Return whether the segment that was archived last is the same, or cannot be compared.

        It cannot be if it was deleted, or if a run ended before it noted the mark.
        """
        noted = checkpoint.noted(self._run.tables)
        if noted is None or noted[0] != read:
            return True
        try:
            return self.source.segments(checkpoint.stream).mark(read) == noted[1]
        except FileNotFoundError:
            return True

    def _batch(self, name: str) -> bool:
        """Archive one batch of a stream; return whether there was one."""
        checkpoint, read = self._streams[name], self._read[name]
        # The number in `quarantine` is greater only if a run ended in the middle of a batch.
        aside = delta.table(self._run.tables, "quarantine").transaction_version(checkpoint.job) or 0
        end = aside if aside > read else None
        segments = self.source.segments(name)
        planned = plan(segments, read, self.source.batch_bytes, end)
        if planned is None:
            return False
        after = {rows.STREAMS[name].table: read, "quarantine": aside}
        try:
            self._archive(checkpoint, planned, read, after)
        except Exception as error:
            gone = not all(segments.exists(number) for number in planned.numbers)
            if gone and not isinstance(error, PipelineError):
                return True  # a segment was deleted meanwhile: the next plan has it as missing
            raise PipelineError(f"archiving {name} failed: {reason_of(error)}") from error
        self._read[name] = planned.end
        return True

    def _archive(
        self,
        checkpoint: StreamCheckpoint,
        planned: SegmentPlan,
        read: int,
        after: Mapping[str, int],
    ) -> None:
        """Carry out a plan, in the order that the module describes, and report it."""
        began = time.monotonic()
        stream = rows.STREAMS[checkpoint.stream]
        self._name(checkpoint, planned)
        batch = TableBatch(
            checkpoint.job,
            planned.end,
            lambda: self._check_all(checkpoint, read),
            source=checkpoint.number,
            after=after,
        )
        segments = self.source.segments(stream.name)
        written = Written(0)
        if planned.numbers:
            shared = self._several or checkpoints.sources(self._run.tables, stream.name) > 1
            with segments.paths(planned.numbers) as paths:
                raw = segment_lines(self._run.spark, paths)
                written = archive_batch(raw, batch, stream, self._run.tables, shared=shared)
        else:  # all its segments are missing, but its number must be in the table
            delta.commit_nothing(self._run.tables, stream.table, batch)
        if planned.numbers and planned.numbers[-1] == planned.end:
            self._run.held()
            with contextlib.suppress(FileNotFoundError):
                checkpoint.note(self._run.tables, planned.end, segments.mark(planned.end))
        self.source.done(stream.name, planned.end, checkpoint.source)
        seconds = time.monotonic() - began
        self._run.done(
            Archived(
                stream.name,
                planned.end,
                written.rows,
                written.bad,
                seconds,
                planned.missing,
                written.lag_s(),
            )
        )

    def _name(self, checkpoint: StreamCheckpoint, planned: SegmentPlan) -> None:
        """Name the segments that are missing in `quarantine`, each of them once."""
        of = f" of {self.source}" if self._several else ""
        segments = self.source.segments(checkpoint.stream)
        for hole in planned.missing:
            job, named = f"{checkpoint.job}-missing", 0
            if planned.repeated:
                job += f"-{hole.first}"
            else:
                quarantine = delta.table(self._run.tables, "quarantine")
                named = quarantine.transaction_version(job) or 0
            rest = Missing(max(hole.first, named + 1), hole.last)
            if rest.first > rest.last:
                continue
            member = ""
            with contextlib.suppress(FileNotFoundError):
                member = segments.member(rest.last + 1)
            row = {
                "stream": checkpoint.stream,
                "reason": f"{rest}{of}: deleted before it was archived",
                "src_kind": "journal",
                "src_partition": rest.first,
                "src_pos": rest.last,
                "batch_id": planned.end,
                "node": member or None,
                "ts": datetime.now(UTC),
            }
            self._run.held()
            delta.append_rows(self._run.tables, "quarantine", job, rest.last, [row])
