"""The job `ship`: sealed segments of a member's journal, sent to a folder or an object store.

An object is a segment: its name is the stream, the stream's identifier and the segment's number
(`mdserver.pipeline.common.shipped`), so each line has one place, whoever sends it and how often.
Objects are made on the condition that there is none of that name. What is done with a segment, in
this order:

1. the object is made, and survives a power cut;
2. the position `ship` is written into the journal, so that the server may delete the segment.

A run that ended between the two finds the object, compares it with the segment, and goes on with 2.
If they differ, the journal is an older copy, whose server gave the number again: the job ends with
a line, after the other streams were sent. So it does if the store has a greater number than the
journal gave, or than that of a segment that it lacks, as the objects of an older copy's numbers may
have been deleted there. Segments are sent in the order of their numbers, so a number that is
missing in the store, although a later one is there, was missing in the journal.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from attrs import frozen

from mdserver.journal import segments
from mdserver.limits import NS_PER_S
from mdserver.pipeline.common import shipped
from mdserver.pipeline.common.numbered import Missing, sealed, walk
from mdserver.pipeline.common.object_store import ObjectStore
from mdserver.pipeline.common.requirements import PipelineError

READER = "ship"
"""The name under which the job has its position in a journal."""
POLL_S = 1.0


@frozen
class Shipped:
    """The report of one segment.

    `new` is false if the store had it already, from a run that ended before it noted that. `lag_s`
    is how old the segment's last line was. `missing` are segments just before it that were deleted
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


Report = Callable[[Shipped], None]


class OlderCopyError(PipelineError):
    """The place has other segments of a stream than its journal."""


def run_ship(
    journal: Path, store: ObjectStore, tell: Report, *, once: bool, poll_s: float = POLL_S
) -> None:
    """Send what is sealed, for ever, or with `once` until there is no more.

    `tell` gets the report of each segment; `poll_s` is the pause when nothing was found. Raises
    PipelineError if the journal has none of the streams or cannot be written to, if the store
    is not there or refuses, or if it has other lines under the name of a segment.
    """
    with _alone(journal):
        store.check()
        attend(journal)
        checked: set[str] = set()
        while True:
            sent = 0
            refused: OlderCopyError | None = None
            for name in streams(journal):
                try:
                    for report in _sent(journal, name, store, checked):
                        tell(report)
                        sent += 1
                except OlderCopyError as error:
                    refused = refused or error
            if refused is not None:
                raise refused
            if once and not sent:
                return
            if not sent:
                time.sleep(poll_s)


def streams(journal: Path) -> list[str]:
    """Return the streams of a journal that are sent. Raises PipelineError if there is none."""
    found = [name for name in shipped.STREAMS if (journal / name).is_dir()]
    if not found:
        raise PipelineError(f"{journal} has none of the streams of a journal: is it mounted?")
    return found


def attend(journal: Path) -> None:
    """Have segments kept until they are sent. Raises PipelineError if that cannot be written."""
    for name in streams(journal):
        try:
            segments.attend(journal / name, READER)
        except OSError as error:
            raise PipelineError(
                f"{journal / name} cannot be written to ({error.strerror}), so the server would"
                " not know what was sent: run this as the user of the server"
            ) from error


@contextlib.contextmanager
def _alone(journal: Path) -> Iterator[None]:
    """Keep a second process from sending this journal, until the end of the block."""
    try:
        lock = segments.locked(journal / f"{READER}.lock")
    except BlockingIOError:
        raise PipelineError(f"another process ships {journal} already") from None
    except OSError as error:
        raise PipelineError(f"{journal} cannot be written to: {error.strerror}") from error
    try:
        yield
    finally:
        os.close(lock)


def _sent(journal: Path, name: str, store: ObjectStore, checked: set[str]) -> Iterator[Shipped]:
    """Send the sealed segments of a stream that are behind its position, and yield the reports.

    `checked` has the streams that were compared with the place in this run.
    """
    folder = journal / name
    hole: Missing | None = None
    try:
        known = segments.identified(folder)
        if known is None:
            _check_begun(folder)
            return
        if known.identifier not in checked:
            _check_last(store, folder, known.identifier, known.number)
            checked.add(known.identifier)
        positions = segments.positions(folder)
        if READER not in positions:  # a stream that began after this run
            segments.attend(folder, READER)
        done = positions.get(READER, 0)
        for found in walk(folder, done + 1):
            if isinstance(found, Missing):
                hole = found
                continue
            report = _send(folder, known.identifier, found, store, hole)
            if report is None:
                break
            segments.set_position(folder, READER, found, known.identifier)
            yield report
            hole = None
    except OSError as error:
        raise PipelineError(f"{folder}: {error.strerror}") from error


def _check_begun(folder: Path) -> None:
    """Raise PipelineError if a stream without an identifier is not just being made."""
    if segments.numbers(folder):
        raise PipelineError(
            f"the stream {folder} has no identifier, and so cannot be told from those of other"
            " journals: start its server with this release once"
        )


def _send(
    folder: Path, identifier: str, number: int, store: ObjectStore, hole: Missing | None
) -> Shipped | None:
    """Send a segment; return None if it is not sealed, was deleted, or is of another stream."""
    began = time.monotonic()
    path = sealed(folder, number)
    try:
        content = path.read_bytes()
        modified = path.stat().st_mtime_ns
    except FileNotFoundError:
        return None
    now = segments.identified(folder)
    if now is None or now.identifier != identifier:
        return None  # the stream was replaced meanwhile
    name = shipped.name_of(folder.name, identifier, number)
    # Before the object is made: only an older copy has a number to send that comes before others
    # in the place, and is not there.
    try:
        _check_last(store, folder, identifier, number)
    except OlderCopyError:
        if not _is_there(store, name, content, path):
            raise
    new = store.create(name, content)
    if not new and not _is_there(store, name, content, path):
        raise PipelineError(
            f"{store.uri}/{name} was deleted while it was compared: start the job again"
        )
    lag_s = max(0.0, (time.time_ns() - modified) / NS_PER_S)
    seconds = time.monotonic() - began
    lines = content.count(b"\n")
    return Shipped(folder.name, number, lines, len(content), new, seconds, lag_s, hole)


def _check_last(store: ObjectStore, folder: Path, identifier: str, number: int) -> None:
    """Raise OlderCopyError if the place has a segment of this stream behind this number."""
    there = shipped.ShippedStream(store, folder.name, identifier)
    last = there.last(number + 1)
    if last is not None:
        raise _older_copy(f"{there} has segment {last}, which comes after {number} of {folder}")


def _is_there(store: ObjectStore, name: str, content: bytes, path: Path) -> bool:
    """Return whether an object is there. Raises OlderCopyError if it is not what the segment is."""
    try:
        same = store.content(name) == content
    except FileNotFoundError:
        return False
    if not same:
        raise _older_copy(f"{store.uri}/{name} is not the segment {path}")
    return True


def _older_copy(what: str) -> OlderCopyError:
    return OlderCopyError(
        f"{what}: the journal is an older copy, whose server gave the number again. Ship it to"
        " another place, and archive that as well"
    )
