"""Segments in topics of Kafka: a record a line, all members in the same topics.

A record has the line as its value, and headers that name its place: the identifier of the stream,
the number of the segment, and that of the line, counted from 1. Its key is the subject, so that the
lines of a subject stay in their order; lines without a subject have the identifier as their key.

Lines are written in transactions, with a row that says how far they go: segment, lines, and the
checksum of those. A run that ended anywhere, also within a segment, goes on behind the row, and the
lines of a transaction that it did not finish are aborted: readers of what is committed never see
them. So each line is there once. The checksum shows whether a journal is an older copy of the one
that was sent.
"""

import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from attrs import field, frozen

from mdserver.journal import segments
from mdserver.journal.rows import NS_PER_US
from mdserver.journal.segments import Identified
from mdserver.limits import SHIP_TRANSACTION_BYTES, SHIP_TRANSACTION_LINES
from mdserver.pipeline.common import holes
from mdserver.pipeline.common.numbered import sealed
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.ship.destination import SealedSegment, older_copy

READER = "ship-kafka"
JOURNAL, SEGMENT, LINE = "md-journal", "md-segment", "md-line"
"""The headers of a record."""


class SentLines(msgspec.Struct, frozen=True):
    """How far a stream was sent: the first lines of a segment, and their checksum."""

    segment: int
    lines: int
    crc: int
    whole: bool
    """Whether those are all lines of the segment."""


@frozen
class LineRecord:
    """A line as a record."""

    key: bytes
    value: bytes
    headers: Sequence[tuple[str, bytes]]


class LineLedger(Protocol):
    """Transactions of one stream. Both methods raise an MdserverError."""

    def load(self) -> SentLines | None:
        """Shut out earlier processes that sent the stream, and return how far they came."""

    def commit(self, records: Sequence[LineRecord], reached: SentLines) -> None:
        """Write records, and how far the stream was sent with them, in one transaction."""


class _Keyed(msgspec.Struct):
    subject: str = ""


_keyed = msgspec.json.Decoder(_Keyed)


@frozen
class Topics:
    """The topics of a Kafka cluster, by stream.

    `ledger` makes the ledger of a stream, from its topic and its identifier.
    """

    names: Mapping[str, str]
    ledger: Callable[[str, str], LineLedger]
    reader: str = READER
    _begun: dict[str, LineLedger] = field(factory=dict, init=False)
    _reached: dict[str, SentLines | None] = field(factory=dict, init=False)

    def check(self) -> None:
        """Do nothing: the first transaction says whether the topics are there."""

    def takes(self, stream: str) -> bool:
        """Return whether there is a topic for this stream."""
        return stream in self.names

    def begin(self, folder: Path, known: Identified) -> None:
        """Find how far the stream was sent, and compare that with the journal."""
        ledger = self.ledger(self.names[folder.name], known.identifier)
        reached = ledger.load()
        if reached is not None:
            _check(folder, known, reached)
        elif (done := segments.positions(folder).get(self.reader, 0)) > 0:
            raise PipelineError(
                f"{folder} was sent up to segment {done}, of which the state topic knows nothing:"
                " give the servers and the --state-topic that it was sent with, or remove"
                f" {folder / self.reader}{segments.POSITION} to send all that is there (the topics"
                " get those lines a second time if only the state topic was lost)"
            )
        self._begun[known.identifier], self._reached[known.identifier] = ledger, reached

    def send(self, segment: SealedSegment) -> bool:
        """Send the lines of a segment that were not sent yet; return False if all were."""
        reached = self._reached[segment.identifier]
        number = segment.number
        if reached is not None and number < reached.segment:
            _check_before(segment, reached)
            return False
        begin = 0
        lines = _lines(segment.content)
        if reached is not None and number == reached.segment:
            _compare(lines, reached, segment.path)
            if reached.whole:
                return False
            begin = reached.lines
        ledger = self._begun[segment.identifier]
        for first, last in _parts(lines, begin):
            done = SentLines(number, last, _crc(lines[:last]), last == len(lines))
            records = [
                _record(segment, at + 1, line) for at, line in enumerate(lines[first:last], first)
            ]
            if first == 0:
                records = [*_hole(segment, reached, lines), *records]
            ledger.commit(records, done)
            self._reached[segment.identifier] = done
        return True


def _check(folder: Path, known: Identified, reached: SentLines) -> None:
    """Raise OlderCopyError if the journal is not the one of which so much was sent."""
    if reached.segment > known.number:
        raise older_copy(
            f"segment {reached.segment} was sent of {folder}, whose last one is {known.number}"
        )
    path = sealed(folder, reached.segment)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return  # deleted since it was sent, or not sealed yet: `send` finds out which
    _compare(_lines(content), reached, path)


def _check_before(segment: SealedSegment, reached: SentLines) -> None:
    """Raise OlderCopyError unless a segment comes before the one up to which the stream was sent.

    The oldest segments are deleted first. So if only the position was lost, the later one is there
    as well, and sealed, as only sealed ones are sent.
    """
    path = sealed(segment.path.parent, reached.segment)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        if not segment.path.exists():
            return  # both were deleted since this one was read
        raise older_copy(
            f"{segment.path} is there and {path.name} is not, up to which {segment.stream} was sent"
        ) from None
    _compare(_lines(content), reached, path)


def _compare(lines: Sequence[bytes], reached: SentLines, path: Path) -> None:
    """Raise OlderCopyError unless the segment begins with the lines that were sent of it."""
    there = len(lines) == reached.lines if reached.whole else len(lines) >= reached.lines
    if not there or _crc(lines[: reached.lines]) != reached.crc:
        raise older_copy(f"{path} has other lines than those that were sent of it")


def _lines(content: bytes) -> list[bytes]:
    return content.split(b"\n")[:-1]


def _parts(lines: Sequence[bytes], begin: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of lines that are a transaction each; one at least, for its row."""
    first, size = begin, 0
    for at in range(begin, len(lines)):
        full = at - first == SHIP_TRANSACTION_LINES
        if at > first and (full or size + len(lines[at]) > SHIP_TRANSACTION_BYTES):
            yield first, at
            first, size = at, 0
        size += len(lines[at])
    yield first, len(lines)


def _record(segment: SealedSegment, number: int, line: bytes) -> LineRecord:
    place = {JOURNAL: segment.identifier, SEGMENT: str(segment.number), LINE: str(number)}
    return LineRecord(
        _key(line) or segment.identifier.encode(),
        line,
        [(name, value.encode()) for name, value in place.items()],
    )


def _hole(
    segment: SealedSegment, reached: SentLines | None, lines: Sequence[bytes]
) -> list[LineRecord]:
    """Return the record of the segments that are missing before this one, none if none is.

    Those that were sent are not missing, though the position in the journal may not say so.
    """
    if segment.missing is None:
        return []
    sent = 0 if reached is None else reached.segment - (not reached.whole)
    first = max(segment.missing.first, sent + 1)
    if first > segment.missing.last:
        return []
    hole = holes.JournalHole(
        segment.identifier,
        first,
        segment.missing.last,
        holes.member_of(lines),
        time.time_ns() // NS_PER_US,
    )
    return [_record(segment, 0, holes.line_of(hole))]


def _key(line: bytes) -> bytes:
    """Return the subject of a line, empty if it has none or is damaged."""
    try:
        return _keyed.decode(line).subject.encode()
    except (msgspec.MsgspecError, ValueError):
        return b""


def _crc(lines: Sequence[bytes]) -> int:
    crc = 0
    for line in lines:
        crc = zlib.crc32(b"\n", zlib.crc32(line, crc))
    return crc
