"""Audit logs: what clients did and with what result, as rotating files of JSON lines.

There is a class for each stream and an object for each line. Every column is in every line, with
`null` if it does not apply to an event. `v` is the version of a stream's columns. A column may be
added without a new version; none is renamed, removed or given another meaning. docs/operations.md
repeats the columns as tables.

Files are bounded, so a client that causes many lines could have those of others rotated away. That
is what the shares are for: a session, and all sessions of an address together, have a number of
lines in each period, beyond which lines are left out and counted.
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
"""The number of lines that a stream takes from a session in AUDIT_LINES_S."""
_ADDRESS_LINES_MAX = {
    "access": limits.AUDIT_ADDRESS_LINES_MAX,
    "presence": limits.AUDIT_ADDRESS_LINES_MAX,
    "message": limits.AUDIT_ADDRESS_MESSAGE_LINES_MAX,
}
"""The number of lines that a stream takes from all sessions of an address in AUDIT_LINES_S."""
_FREE_TEXT = {"access": ("client", "user", "reason"), "message": ("closure", "reason")}
"""The columns that `fast_line` cuts. Subjects and publishers are not cut, because readers of the
journal compare them, and because they have bounds of their own."""


class AuditRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The columns with which every line begins. `ts` is in microseconds since the Unix epoch."""

    v: int
    ts: int
    node: str
    event: str


class AccessRow(AuditRow, frozen=True, kw_only=True):
    """The access log.

    Its events are connect, subscribe, subscribe-with-history, subscribe-with-recovery, unsubscribe,
    disconnect, and refusals with the suffix -denied.
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
    """The presence log: a session began (join) or ceased (leave) to be subscribed to a subject."""

    session: str | None = None
    address: str | None = None
    transport: str | None = None
    client: str | None = None
    user: str | None = None
    external_token: str | None = None
    subject: str | None = None


class PublishRow(AuditRow, frozen=True, kw_only=True):
    """The message log, a line for each publication, without its content.

    Its events are publish, publish-denied and publish-failed.
    """

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
    """The cache log: what left the cache, and how much (expire, evict, drop-subject)."""

    subject: str | None = None
    messages: int | None = None
    bytes: int | None = None
    reason: str | None = None


class StatsRow(AuditRow, frozen=True, kw_only=True):
    """The stats log, every `Stats.LogInterval`: gauges, and counts since the server started."""

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

    Making one opens them, and raises OSError. A line never waits for the disk: when the queue is
    full, lines are dropped, and a line with the event `lines-lost` says how many.
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
        self._sessions: dict[tuple[str, object], LineShare] = {}
        self._addresses: dict[tuple[str, object], LineShare] = {}

    @property
    def trouble(self) -> str | None:
        """What is wrong with one of the files, None if nothing is."""
        return next(filter(None, (writer.trouble for writer in self._writers.values())), None)

    def take(self, log: Log) -> None:
        """Write a `Log` output of the core, if it is for one of the open streams."""
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
        """Return whether the session and the address of a line have room for it in their shares.

        If they have, lines that say how many were left out before are written first.
        """
        now, session = log.values.get("time"), log.values.get("session")
        address = log.values.get("address") or log.address
        assert isinstance(now, int)
        own = self._share(self._sessions, (log.stream, session), now)
        # A session that was seen to begin has to be seen to end, so `disconnect` always has room in
        # the share of the session. It comes once, so the share is exceeded by one line.
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
        self, shares: dict[tuple[str, object], "LineShare"], key: tuple[str, object], now: int
    ) -> "LineShare":
        share = shares.pop(key, None) or LineShare()
        shares[key] = share  # Moved to the end: the one that was used longest ago is first.
        if len(shares) > limits.AUDIT_SESSIONS_MAX:
            del shares[next(iter(shares))]
        if now - share.since >= limits.AUDIT_LINES_S * limits.NS_PER_S:
            share.since, share.lines = now, 0
        return share

    def _tell(self, writer: LineWriter, share: "LineShare", whose: dict[str, str | None]) -> None:
        """Count a line, and write how many were left out before it."""
        share.lines += 1
        if share.left_out:
            writer.write(self._counted("lines-left-out", share.left_out, **whose))
            share.left_out = 0

    def close(self) -> None:
        """Write what is queued, and end the threads."""
        for writer in self._writers.values():
            writer.close()

    def _lost(self, count: int) -> bytes:
        return self._counted("lines-lost", count)

    def _counted(self, event: str, count: int, **whose: object) -> bytes:
        """Return a line that stands for lines that were lost or left out."""
        head = {"v": ROW_VERSION, "ts": self._last_ts, "node": self._node, "event": event}
        return msgspec.json.encode({**head, **whose, "count": count}) + b"\n"


class LineShare:
    """The lines of a session or an address in the present period, and those left out since."""

    __slots__ = ("left_out", "lines", "since")

    def __init__(self) -> None:
        self.since = 0
        self.lines = 0
        self.left_out = 0


def bounded(value: object) -> object:
    """Return a value, cut if it is long text: a few long lines would rotate all others away."""
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
    """Return `line(row(log, node))` without the line end, in half the time, without checks."""
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
    """Return a row as a line of a file."""
    return msgspec.json.encode(columns) + b"\n"
