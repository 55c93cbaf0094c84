"""The steps of the cluster protocol that a member takes, as JSON lines (spec/README.md, "Traces").

A line is with the kernel before what the step says leaves this process, so the files of members
that were killed hold every step that another one can have seen the effect of. Lines carry the time
since the machine's start, which its processes share: sorted by it, the files of members on one
machine are one run.
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
    """One member's file; steps are appended to it."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self._broken = False

    def started(self, member: Member) -> None:
        """Write down with which vote record the member starts."""
        cluster, votes = member.cluster, member.votes
        self._write(
            "Start",
            {
                "node": cluster.me,
                "incarnation": votes.incarnation,
                "lost": False,
                "seed": cluster.me in cluster.seeds,
                "restored": votes.recorded and votes.incarnation > 1,
                "promised": [vote.epoch for vote in votes.promised],
            },
        )

    def take(self, step: Trace) -> None:
        """Write a step down; says so once where that is not possible any more."""
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
    """Yield the route for steps of the protocol: they are appended to a file, if one is named.

    Raises ConfigError if nobody votes, StartError if it cannot be written.
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
