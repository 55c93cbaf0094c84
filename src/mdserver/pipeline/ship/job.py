"""The job `ship`: sealed segments of a member's journal, sent to where all members' are archived.

What is done with a segment, in this order:

1. the destination has it, and keeps it over a power cut (`destination`, `topics`);
2. the position of the job is written into the journal, so that the server may delete the segment.

A run that ended between the two finds the segment there, and goes on with 2. If a stream is
refused, for example because the journal is an older copy, the job ends with a line, after the other
streams were sent.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from mdserver.errors import MdserverError
from mdserver.journal import segments
from mdserver.limits import NS_PER_S
from mdserver.pipeline.common import shipped
from mdserver.pipeline.common.numbered import Missing, sealed, walk
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.ship.destination import Destination, SealedSegment, Shipped

POLL_S = 1.0
Report = Callable[[Shipped], None]


def run_ship(
    journal: Path, to: Destination, tell: Report, *, once: bool, poll_s: float = POLL_S
) -> None:
    """Send what is sealed, for ever, or with `once` until there is no more.

    `tell` gets the report of each segment; `poll_s` is the pause when nothing was found. Raises
    MdserverError if the journal has none of the streams or cannot be written to, if the destination
    is not there or refuses, or if it has other lines of a stream. What is wrong with one stream
    does not keep the others from being sent.
    """
    with _alone(journal, to.reader):
        to.check()
        attend(journal, to)
        begun: set[str] = set()
        while True:
            sent = 0
            refused: list[MdserverError] = []
            for name in streams(journal, to):
                try:
                    for report in _sent(journal, name, to, begun):
                        tell(report)
                        sent += 1
                except MdserverError as error:
                    refused.append(error)
            if refused:
                raise _together(refused)
            if once and not sent:
                return
            if not sent:
                time.sleep(poll_s)


def _together(refused: Sequence[MdserverError]) -> MdserverError:
    """Return the one error, or one that says in a line what all of them say."""
    if len(refused) == 1:
        return refused[0]
    return PipelineError("; ".join(map(str, refused)))


def streams(journal: Path, to: Destination) -> list[str]:
    """Return the streams of a journal that are sent. Raises PipelineError if there is none."""
    taken = [name for name in shipped.STREAMS if to.takes(name)]
    found = [name for name in taken if (journal / name).is_dir()]
    if not found:
        raise PipelineError(
            f"{journal} has none of the streams {', '.join(taken)} of a journal: is it mounted?"
        )
    return found


def attend(journal: Path, to: Destination) -> None:
    """Have segments kept until they are sent. Raises PipelineError if that cannot be written."""
    for name in streams(journal, to):
        try:
            segments.attend(journal / name, to.reader)
        except OSError as error:
            raise PipelineError(
                f"{journal / name} cannot be written to ({error.strerror}), so the server would"
                " not know what was sent: run this as the user of the server"
            ) from error


@contextlib.contextmanager
def _alone(journal: Path, reader: str) -> Iterator[None]:
    """Keep a second process from sending this journal, until the end of the block."""
    try:
        lock = segments.locked(journal / f"{reader}.lock")
    except BlockingIOError:
        raise PipelineError(f"another process ships {journal} already") from None
    except OSError as error:
        raise PipelineError(f"{journal} cannot be written to: {error.strerror}") from error
    try:
        yield
    finally:
        os.close(lock)


def _sent(journal: Path, name: str, to: Destination, begun: set[str]) -> Iterator[Shipped]:
    """Send the sealed segments of a stream that are behind its position, and yield the reports.

    `begun` has the streams that were compared with the destination in this run.
    """
    folder = journal / name
    hole: Missing | None = None
    try:
        known = segments.identified(folder)
        if known is None:
            _check_begun(folder)
            return
        if known.identifier not in begun:
            to.begin(folder, known)
            begun.add(known.identifier)
        positions = segments.positions(folder)
        if to.reader not in positions:  # a stream that began after this run
            segments.attend(folder, to.reader)
        done = positions.get(to.reader, 0)
        for found in walk(folder, done + 1):
            if isinstance(found, Missing):
                hole = found
                continue
            report = _send(folder, known.identifier, found, to, hole)
            if report is None:
                break
            segments.set_position(folder, to.reader, found, known.identifier)
            yield report
            hole = None
    except OSError as error:
        raise PipelineError(f"{folder}: {error.strerror or error}") from error


def _check_begun(folder: Path) -> None:
    """Raise PipelineError if a stream without an identifier is not just being made."""
    if segments.numbers(folder):
        raise PipelineError(
            f"the stream {folder} has no identifier, and so cannot be told from those of other"
            " journals: start its server with this release once"
        )


def _send(
    folder: Path, identifier: str, number: int, to: Destination, hole: Missing | None
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
    new = to.send(SealedSegment(path, folder.name, identifier, number, content, hole))
    lag_s = max(0.0, (time.time_ns() - modified) / NS_PER_S)
    seconds = time.monotonic() - began
    lines = content.count(b"\n")
    return Shipped(folder.name, number, lines, len(content), new, seconds, lag_s, hole)
