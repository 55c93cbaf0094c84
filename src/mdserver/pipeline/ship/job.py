"""The job `ship`: sealed segments of a member's journal, sent to a folder or an object store.

An object is a segment: its name is the stream, the stream's identifier and the segment's number
(`mdserver.pipeline.common.shipped`), so each line has one place, whoever sends it and how often.
Objects are made on the condition that there is none of that name. What is done with a segment, in
this order:

1. the object is made, and survives a power cut;
2. the position `ship` is written into the journal, so that the server may delete the segment.

A run that ended between the two finds the object, compares it with the segment, and goes on with 2.
If they differ, the journal is an older copy, whose server gave the number again: the job ends with
a line. Segments are sent in the order of their numbers, so a number that is missing in the store,
although a later one is there, was missing in the journal.
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
        while True:
            sent = sum(_send_stream(journal, name, store, tell) for name in streams(journal))
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


def _send_stream(journal: Path, name: str, store: ObjectStore, tell: Report) -> int:
    """Send the sealed segments of a stream that are behind its position; return how many."""
    folder = journal / name
    sent = 0
    hole: Missing | None = None
    try:
        known = segments.identified(folder)
        if known is None:
            _check_begun(folder)
            return 0
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
            tell(report)
            sent += 1
            hole = None
    except OSError as error:
        raise PipelineError(f"{folder}: {error.strerror}") from error
    return sent


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
    new = store.create(name, content)
    if not new:
        _compare(store, name, content, path)
    lag_s = max(0.0, (time.time_ns() - modified) / NS_PER_S)
    seconds = time.monotonic() - began
    lines = content.count(b"\n")
    return Shipped(folder.name, number, lines, len(content), new, seconds, lag_s, hole)


def _compare(store: ObjectStore, name: str, content: bytes, path: Path) -> None:
    """Raise PipelineError if an object is not what the segment is."""
    try:
        same = store.content(name) == content
    except FileNotFoundError:
        raise PipelineError(
            f"{store.uri}/{name} was deleted while it was compared: start the job again"
        ) from None
    if not same:
        raise PipelineError(
            f"{store.uri}/{name} is not the segment {path}: the journal is an older copy, whose"
            " server gave the number again. Ship it to another place, and archive that as well"
        )
