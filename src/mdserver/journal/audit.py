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
_LINES_MAX = {
    "access": limits.AUDIT_LINES_MAX,
    "presence": limits.AUDIT_LINES_MAX,
    "message": limits.AUDIT_MESSAGE_LINES_MAX,
}
"""How many lines of one session a stream takes in AUDIT_LINES_S."""
_ADDRESS_LINES_MAX = {
    "access": limits.AUDIT_ADDRESS_LINES_MAX,
    "presence": limits.AUDIT_ADDRESS_LINES_MAX,
    "message": limits.AUDIT_ADDRESS_MESSAGE_LINES_MAX,
}
"""The same of one address."""
_FREE_TEXT = {"access": ("client", "user", "reason"), "message": ("closure", "reason")}
"""Columns of the journal that may be cut; subjects and publishers have bounds of their own, and
whoever reads the journal compares them."""


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
        self,
        folder: Path,
        node: str,
        streams: Iterable[str],
        bytes_max: int,
        files_max: int,
        age_max_s: float | None = None,
    ) -> None:
        self._node = node
        files = {
            stream: RotatingFile(
                folder / f"audit-{stream}.log", bytes_max, files_max, age_max_s=age_max_s
            )
            for stream in streams
        }
        for file in files.values():
            file.open()
        self._writers = {stream: LineWriter(file, self._lost) for stream, file in files.items()}
        self._last_ts = 0
        self._sessions: dict[tuple[str, object], Share] = {}
        self._addresses: dict[tuple[str, object], Share] = {}

    @property
    def trouble(self) -> str | None:
        """What an operator should see to, of one file at a time; None while all is well."""
        return next(filter(None, (writer.trouble for writer in self._writers.values())), None)

    def take(self, log: Log) -> None:
        """Write what the core says, if it is about one of the streams."""
        writer = self._writers.get(log.stream)
        if writer is None:
            return
        most = _LINES_MAX.get(log.stream)
        if most is not None and not self._has_room(log, most, writer):
            return
        columns = row(log, self._node)
        self._last_ts = columns.ts
        writer.write(line(columns))

    def _has_room(self, log: Log, most: int, writer: LineWriter) -> bool:
        """Take a line from the shares of its session and its address; tell what they lost."""
        now, session = log.values.get("time"), log.values.get("session")
        address = log.values.get("address") or log.address
        assert isinstance(now, int)
        own = self._share(self._sessions, (log.stream, session), now)
        if own.lines >= most and log.name != "disconnect":
            own.left_out += 1
            return False
        if isinstance(address, str):
            common = self._share(self._addresses, (log.stream, address), now)
            if common.lines >= _ADDRESS_LINES_MAX[log.stream]:
                common.left_out += 1
                return False
            self._tell(writer, common, {"address": address})
        name = session_name(self._node, session) if isinstance(session, int) else None
        self._tell(writer, own, {"session": name})
        return True

    def _share(
        self, shares: dict[tuple[str, object], "Share"], key: tuple[str, object], now: int
    ) -> "Share":
        share = shares.pop(key, None) or Share()
        shares[key] = share  # the last one is the one heard last
        if len(shares) > limits.AUDIT_SESSIONS_MAX:
            del shares[next(iter(shares))]
        if now - share.since >= limits.AUDIT_LINES_S * limits.NS_PER_S:
            share.since, share.lines = now, 0
        return share

    def _tell(self, writer: LineWriter, share: "Share", whose: dict[str, str | None]) -> None:
        """Count a line, and say how many were left out before it."""
        share.lines += 1
        if share.left_out:
            writer.write(self._counted("lines-left-out", share.left_out, **whose))
            share.left_out = 0

    def close(self) -> None:
        """Writes what is queued and ends the threads."""
        for writer in self._writers.values():
            writer.close()

    def _lost(self, count: int) -> bytes:
        return self._counted("lines-lost", count)

    def _counted(self, event: str, count: int, **whose: object) -> bytes:
        """Return the line that stands for lines that are not there."""
        head = {"v": ROW_VERSION, "ts": self._last_ts, "node": self._node, "event": event}
        return msgspec.json.encode({**head, **whose, "count": count}) + b"\n"


class Share:
    """How many lines a session or an address has had in a while: those of others are not to go."""

    __slots__ = ("left_out", "lines", "since")

    def __init__(self) -> None:
        self.since = 0
        self.lines = 0
        self.left_out = 0


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
    for name in _FREE_TEXT.get(log.stream, ()):
        text = columns[name]
        if isinstance(text, str) and len(text) > limits.AUDIT_TEXT_CHARS_MAX:
            columns[name] = bounded(text)
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
