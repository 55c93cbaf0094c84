"""A destination of `ship`, what it tells of a segment, and the place that members share.

In a place each segment is an object. Its name is the stream, the stream's identifier and the
segment's number (`mdserver.pipeline.common.shipped`), so each line has one place, whoever sends it.
Objects are made on the condition that there is none of that name. One that is there is compared
with the segment. If they differ, the journal is an older copy, whose server gave the number again.
So it is if the store has a greater number than the journal gave, or than that of a segment that it
lacks, as the objects of an older copy's numbers may have been deleted there. Segments are sent in
the order of their numbers, so a number that is missing in the store, although a later one is there,
was missing in the journal.
"""

from pathlib import Path
from typing import Protocol

from attrs import frozen

from mdserver.journal.segments import Identified
from mdserver.pipeline.common import shipped
from mdserver.pipeline.common.numbered import Missing
from mdserver.pipeline.common.object_store import ObjectStore
from mdserver.pipeline.common.requirements import PipelineError

READER = "ship"


@frozen
class Shipped:
    """The report of one segment.

    `new` is false if it was there already, from a run that ended before it noted that. `lag_s` is
    how old the segment's last line was. `missing` are segments just before it that were deleted
    before they were sent.
    """

    stream: str
    segment: int
    lines: int
    size_bytes: int
    new: bool
    seconds: float
    lag_s: float
    missing: Missing | None = None


@frozen
class SealedSegment:
    """A segment as it was read from a journal."""

    path: Path
    stream: str
    identifier: str
    number: int
    content: bytes
    missing: Missing | None = None
    """The segments just before it that were deleted before they were sent."""


class Destination(Protocol):
    """Takes segments, each once however often it is given. All methods raise PipelineError."""

    @property
    def reader(self) -> str:
        """The name under which the job has its position in a journal."""

    def check(self) -> None:
        """Raise PipelineError if segments cannot be sent there."""

    def takes(self, stream: str) -> bool:
        """Return whether segments of this stream are sent there."""

    def begin(self, folder: Path, known: Identified) -> None:
        """Compare a stream with what was sent of it, once in a run.

        Raises OlderCopyError if it is an older copy of the stream that was sent.
        """

    def send(self, segment: SealedSegment) -> bool:
        """Send a segment; return False if it was there already. Raises OlderCopyError."""


class OlderCopyError(PipelineError):
    """The destination has other segments of a stream than its journal."""


def older_copy(what: str) -> OlderCopyError:
    """Return the error for a stream that is an older copy of the one that was sent."""
    return OlderCopyError(
        f"{what}: the journal is an older copy, whose server gave the number again. Ship it to"
        " another place, and archive that as well"
    )


@frozen
class SharedPlace:
    """A folder or an object store that all members share."""

    store: ObjectStore
    reader: str = READER

    def check(self) -> None:
        """Raise PipelineError if the place is not there, or refuses to be listed."""
        self.store.check()

    def takes(self, stream: str) -> bool:  # noqa: ARG002
        """Return true: a place takes all streams."""
        return True

    def begin(self, folder: Path, known: Identified) -> None:
        """Raise OlderCopyError if the place has a greater number than the journal gave."""
        self._check_last(folder, known.identifier, known.number)

    def send(self, segment: SealedSegment) -> bool:
        """Make the object of a segment; return False if it was there."""
        name = shipped.name_of(segment.stream, segment.identifier, segment.number)
        # Before the object is made: only an older copy has a number to send that comes before
        # others in the place, and is not there.
        try:
            self._check_last(segment.path.parent, segment.identifier, segment.number)
        except OlderCopyError:
            if not self._has(name, segment):
                raise
        new = self.store.create(name, segment.content)
        if not new and not self._has(name, segment):
            raise PipelineError(
                f"{self.store.uri}/{name} was deleted while it was compared: start the job again"
            )
        return new

    def _check_last(self, folder: Path, identifier: str, number: int) -> None:
        """Raise OlderCopyError if the place has a segment of this stream behind this number."""
        there = shipped.ShippedStream(self.store, folder.name, identifier)
        last = there.last(number + 1)
        if last is not None:
            raise older_copy(f"{there} has segment {last}, which comes after {number} of {folder}")

    def _has(self, name: str, segment: SealedSegment) -> bool:
        """Return whether an object is there. Raises OlderCopyError if it is another segment."""
        try:
            same = self.store.content(name) == segment.content
        except FileNotFoundError:
            return False
        if not same:
            raise older_copy(f"{self.store.uri}/{name} is not the segment {segment.path}")
        return True
