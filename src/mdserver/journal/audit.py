"""Audit logs: what clients did and what became of it, as rotating files of JSON lines.

One class a stream, one object a line, every column in every line: `null` where it says nothing
about an event. `v` is the version of a stream's columns. A column may be added without a new
version; none is renamed, removed or given another meaning. docs/operations.md repeats the columns
as tables.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from mdserver import limits
from mdserver.core.outputs import Log
from mdserver.core.session import session_name
from mdserver.journal.rotating import LineWriter, RotatingFile

ROW_VERSION = 1
NS_PER_US = 1_000
_LIMITED = ("access", "presence")


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

    session: str | None = None
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


class PresenceRow(AuditRow, frozen=True, kw_only=True):
    """join, leave: a session began or ended to be subscribed to a subject or pattern."""

    session: str | None = None
    address: str | None = None
    transport: str | None = None
    client: str | None = None
    user: str | None = None
    external_token: str | None = None
    subject: str | None = None


class PublishRow(AuditRow, frozen=True, kw_only=True):
    """publish, publish-denied, publish-failed: one line a publication, without its content."""

    session: str | None = None
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
    history: str | None = None


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
    "presence": PresenceRow,
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
        self._last_ts = 0
        self._shares: dict[tuple[str, object], Share] = {}

    @property
    def trouble(self) -> str | None:
        """What an operator should see to, of one file at a time; None while all is well."""
        return next(filter(None, (writer.trouble for writer in self._writers.values())), None)

    def take(self, log: Log) -> None:
        """Write what the core says, if it is about one of the streams."""
        writer = self._writers.get(log.stream)
        if writer is not None:
            if log.stream in _LIMITED:
                left_out = self._share(log).take(log)
                if left_out is None:
                    return
                if left_out:
                    writer.write(self._left_out(log, left_out))
            columns = row(log, self._node)
            self._last_ts = columns.ts
            writer.write(line(columns))

    def _share(self, log: Log) -> "Share":
        key = log.stream, log.values.get("session")
        share = self._shares.pop(key, None) or Share()
        self._shares[key] = share  # the last one is the one heard last
        if len(self._shares) > limits.AUDIT_SESSIONS_MAX:
            del self._shares[next(iter(self._shares))]
        return share

    def _left_out(self, log: Log, count: int) -> bytes:
        columns = {"v": ROW_VERSION, "ts": self._last_ts, "node": self._node}
        session = log.values["session"]
        assert isinstance(session, int)
        name = session_name(self._node, session)
        told = {"event": "lines-left-out", "session": name, "count": count}
        return msgspec.json.encode({**columns, **told}) + b"\n"

    def close(self) -> None:
        """Writes what is queued and ends the threads."""
        for writer in self._writers.values():
            writer.close()

    def _lost(self, count: int) -> bytes:
        columns = {"v": ROW_VERSION, "ts": self._last_ts, "node": self._node}
        return msgspec.json.encode({**columns, "event": "lines-lost", "count": count}) + b"\n"


class Share:
    """How many lines one session may have in a while: others' lines are not those to go."""

    __slots__ = ("_left_out", "_lines", "_since")

    def __init__(self) -> None:
        self._since = 0
        self._lines = 0
        self._left_out = 0

    def take(self, log: Log) -> int | None:
        """Return how many lines were left out before this one; None where this one is, too."""
        now = log.values["time"]
        assert isinstance(now, int)
        if now - self._since >= limits.AUDIT_LINES_S * limits.NS_PER_S:
            self._since, self._lines = now, 0
        self._lines += 1
        if self._lines > limits.AUDIT_LINES_MAX and log.name != "disconnect":
            self._left_out += 1
            return None
        left_out, self._left_out = self._left_out, 0
        return left_out


def bounded(value: object) -> object:
    """Cut text that a client chose: a few long lines would have all others rotated away."""
    most = limits.AUDIT_TEXT_CHARS_MAX
    return value[:most] + "..." if isinstance(value, str) and len(value) > most else value


def row(log: Log, node: str) -> AuditRow:
    """Return the line of a `Log` output of the member `node`.

    The value `time` (ns since the Unix epoch) becomes `ts`, the number of a session its name; the
    others are columns of its stream.
    """
    values: dict[str, object] = {name: bounded(value) for name, value in log.values.items()}
    session = values.get("session")
    if isinstance(session, int):
        values["session"] = session_name(node, session)
    time = values.pop("time")
    assert isinstance(time, int)
    head = {"v": ROW_VERSION, "ts": time // NS_PER_US, "node": node, "event": log.name}
    return msgspec.convert({**head, **values}, STREAMS[log.stream])


_EMPTY: dict[str, dict[str, object]] = {
    stream: dict.fromkeys(columns.__struct_fields__) for stream, columns in STREAMS.items()
}


def fast_line(log: Log, node: str) -> bytes:
    """The same as `line(row(log, node))` without the line end, for half the time: unchecked."""
    columns = _EMPTY[log.stream] | log.values
    columns["v"] = ROW_VERSION
    columns["ts"] = columns.pop("time") // NS_PER_US  # type: ignore[operator]  # always an integer
    columns["node"] = node
    columns["event"] = log.name
    session = columns.get("session")
    if isinstance(session, int):
        columns["session"] = session_name(node, session)
    return msgspec.json.encode(columns)


def line(columns: AuditRow) -> bytes:
    """A row as it stands in a file."""
    return msgspec.json.encode(columns) + b"\n"
