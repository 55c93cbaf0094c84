"""Audit logs: what clients did and what became of it, as rotating files of JSON lines.

One class a stream, one object a line, every column in every line: `null` where it says nothing
about an event. `v` is the version of a stream's columns. A column may be added without a new
version; none is renamed, removed or given another meaning. docs/operations.md repeats the columns
as tables.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from mdserver.core.outputs import Log
from mdserver.journal.rotating import LineWriter, RotatingFile

ROW_VERSION = 1
NS_PER_US = 1_000


class AuditRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every line begins with. `ts` in microseconds since the Unix epoch, UTC."""

    v: int
    ts: int
    node: str
    event: str


class AccessRow(AuditRow, frozen=True, kw_only=True):
    """connect, subscribe, subscribe-with-history, subscribe-with-recovery, unsubscribe, disconnect,
    and the refusals of each with the suffix -denied.
    """

    session: int | None = None
    address: str | None = None
    transport: str | None = None
    secure: bool | None = None
    client: str | None = None
    user: str | None = None
    subject: str | None = None
    history: int | None = None
    conflation_ms: int | None = None
    epoch: int | None = None
    seq: int | None = None
    code: int | None = None
    reason: str | None = None


class PublishRow(AuditRow, frozen=True, kw_only=True):
    """publish, publish-denied, publish-failed: one line a publication, without its content."""

    session: int | None = None
    subject: str | None = None
    bytes: int | None = None
    retained: bool | None = None
    qos: str | None = None
    closure: str | None = None
    publisher: str | None = None
    number: int | None = None
    epoch: int | None = None
    seq: int | None = None
    reason: str | None = None


class CacheRow(AuditRow, frozen=True, kw_only=True):
    """expire, evict, drop-subject: what left the cache, and how much."""

    subject: str | None = None
    messages: int | None = None
    bytes: int | None = None
    reason: str | None = None


class StatsRow(AuditRow, frozen=True, kw_only=True):
    """stats, every `Stats.LogInterval`: gauges, and counts since the start of the server."""

    sessions: int | None = None
    subscriptions: int | None = None
    subjects: int | None = None
    cached_messages: int | None = None
    cache_bytes: int | None = None
    connections_total: int | None = None
    disconnections_total: int | None = None
    messages_in_total: int | None = None
    messages_out_total: int | None = None
    bytes_in_total: int | None = None
    bytes_out_total: int | None = None


STREAMS: dict[str, type[AuditRow]] = {
    "access": AccessRow,
    "message": PublishRow,
    "cache": CacheRow,
    "stats": StatsRow,
}


class AuditLogs:
    """The files of the streams that are switched on: `audit-access.log` and so on in a folder.

    Opening them raises `OSError`. A line never waits for the disk: at the bound of what may be
    queued lines are left out, and a line with the event `lines-lost` says so.
    """

    def __init__(
        self, folder: Path, node: str, streams: Iterable[str], bytes_max: int, files_max: int
    ) -> None:
        self._node = node
        files = {
            stream: RotatingFile(folder / f"audit-{stream}.log", bytes_max, files_max)
            for stream in streams
        }
        for file in files.values():
            file.open()
        self._writers = {stream: LineWriter(file, self._lost) for stream, file in files.items()}
        self._now = 0

    def take(self, log: Log, now: int) -> None:
        """Writes what the core says about one of the streams, at `now` (ns)."""
        writer = self._writers.get(log.stream)
        if writer is not None:
            self._now = now
            writer.write(line(row(log, self._node, now)))

    def close(self) -> None:
        """Writes what is queued and ends the threads."""
        for writer in self._writers.values():
            writer.close()

    def _lost(self, count: int) -> bytes:
        lost = {"count": count}
        columns = {"v": ROW_VERSION, "ts": self._now // NS_PER_US, "node": self._node}
        return msgspec.json.encode({**columns, "event": "lines-lost", **lost}) + b"\n"


def row(log: Log, node: str, now: int) -> AuditRow:
    """The line of a `Log` output; the values of the output are columns of its stream."""
    columns = STREAMS[log.stream]
    values: dict[str, object] = dict(log.values)
    return msgspec.convert(
        {"v": ROW_VERSION, "ts": now // NS_PER_US, "node": node, "event": log.name, **values},
        columns,
    )


def line(columns: AuditRow) -> bytes:
    """A row as it stands in a file."""
    return msgspec.json.encode(columns) + b"\n"
