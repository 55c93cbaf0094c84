"""Writes the steps of the cluster protocol that a member takes (spec/README.md, "Traces").

Each step is a line of JSON. It is written, without a buffer, before the messages of the step leave
the process. So the file of a member that was killed has every step whose effect another member can
have seen. Lines carry the time since the machine's start, which its processes share; sorted by it,
the files of members on one machine are one run.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import msgspec
import structlog

from mdserver.core.outputs import Trace
from mdserver.errors import ConfigError, StartError
from mdserver.server.engine import ignore
from mdserver.server.member import Member

log = structlog.get_logger()


class TraceFile:
    """The trace file of one member."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self._broken = False

    def started(self, member: Member) -> None:
        """Write the vote record with which the member starts."""
        cluster, votes = member.cluster, member.votes
        self._write(
            "Start",
            {
                "node": cluster.me,
                "incarnation": votes.incarnation,
                "lost": False,
                "seed": member.votes_here,
                "restored": votes.recorded and votes.incarnation > 1,
                "promised": [vote.epoch for vote in votes.promised],
            },
        )

    def take(self, step: Trace) -> None:
        """Write a step. If that fails, log it once and go on."""
        self._write(step.name, step.values)

    def _write(self, name: str, values: Mapping[str, object]) -> None:
        line = msgspec.json.encode({"name": name, **values, "at": time.monotonic_ns()})
        try:
            self._file.write(line + b"\n")
        except OSError as error:
            if not self._broken:
                log.error("the trace has gaps", file=self._file.name, reason=error.strerror)
            self._broken = True


@contextmanager
def tracing(path: Path | None, member: Member | None) -> Iterator[Callable[[Trace], None]]:
    """Yield the route for steps of the protocol: they are appended to the file at `path`, if any.

    Raises ConfigError if this member has no votes, StartError if the file cannot be written.
    """
    if path is None:
        yield ignore
        return
    if member is None or member.file is None:
        raise ConfigError(
            "--trace writes how members vote: it needs ClusterMembers and "
            "ClusterDeliveryMode = Guaranteed"
        )
    try:
        file = path.open("ab", buffering=0)
    except OSError as error:
        raise StartError(f"Cannot write the trace {path}: {error.strerror}") from None
    with file:
        trace = TraceFile(file)
        trace.started(member)
        yield trace.take
