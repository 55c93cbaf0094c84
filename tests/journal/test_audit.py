"""Audit lines have stable columns, and only the streams that are switched on are written."""

import json
import random
import re
from pathlib import Path

import msgspec
import pytest

from mdserver.cluster.node import Node
from mdserver.core.broker import Broker
from mdserver.core.commands import Connect, PositionAfter, Publish, Subscribe, Unsubscribe
from mdserver.core.inputs import Closed, Opened, Received, TimerDue
from mdserver.core.outputs import Log, Output, SetTimer
from mdserver.core.settings import BrokerSettings
from mdserver.journal.audit import (
    STREAMS,
    AccessRow,
    AuditLogs,
    CacheRow,
    PresenceRow,
    PublishRow,
    fast_line,
    line,
    row,
)
from mdserver.limits import (
    AUDIT_ADDRESS_LINES_MAX,
    AUDIT_ADDRESS_MESSAGE_LINES_MAX,
    AUDIT_LINES_MAX,
    AUDIT_LINES_S,
    NS_PER_S,
)

NOW = 1_700_000_000_123_456_789
HEAD = ["v", "ts", "node", "event"]

# Readers rely on these names: a change here is a change of `ROW_VERSION`, or an added column.
COLUMNS = {
    "access": "session address transport secure client user subject history conflation_ms epoch "
    "seq code reason",
    "presence": "session address transport client user external_token subject",
    "message": "session subject bytes retained qos closure publisher number epoch seq reason"
    " history",
    "cache": "subject messages bytes reason",
    "stats": "sessions subscriptions subjects cached_messages cache_bytes connections_total "
    "disconnections_total messages_in_total messages_out_total bytes_in_total bytes_out_total",
}


@pytest.mark.parametrize("stream", STREAMS)
def test_every_line_has_every_column_in_a_fixed_order(stream: str) -> None:
    written = msgspec.json.decode(line(row(Log(stream, "anything", {"time": NOW}), "n1")))
    assert list(written) == HEAD + COLUMNS[stream].split()
    assert [written[name] for name in HEAD] == [1, 1_700_000_000_123_456, "n1", "anything"]
    assert set(list(written.values())[len(HEAD) :]) == {None}


def test_values_of_an_output_are_columns() -> None:
    log = Log(
        "access",
        "subscribe-with-history",
        {"time": NOW, "session": 3, "subject": "/a/b", "history": 5},
    )
    written = msgspec.json.decode(line(row(log, "n1")))
    assert (written["session"], written["subject"], written["history"]) == ("n1-3", "/a/b", 5)


@pytest.mark.parametrize("values", [{"colour": "red"}, {"session": 3.5}])
def test_an_output_that_does_not_fit_its_stream_is_our_bug(values: dict[str, str]) -> None:
    with pytest.raises(msgspec.ValidationError):
        row(Log("access", "connect", {"time": NOW, **values}), "n1")


def test_only_the_streams_that_are_on_have_files(tmp_path: Path) -> None:
    logs = AuditLogs(tmp_path / "logs", "n1", ["access", "cache"], 1 << 20, 3)
    logs.take(Log("access", "connect", {"time": NOW, "session": 1, "address": "127.0.0.1"}))
    logs.take(Log("message", "publish", {"session": 1}))
    logs.take(Log("log", "something else", {"anything": 1}))
    logs.close()
    files = {path.name: path.read_bytes() for path in (tmp_path / "logs").iterdir()}
    assert sorted(files) == ["audit-access.log", "audit-cache.log"]
    assert files["audit-cache.log"] == b""
    assert msgspec.json.decode(files["audit-access.log"])["address"] == "127.0.0.1"


def test_a_folder_that_cannot_be_used_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        AuditLogs(tmp_path / "file", "n1", ["access"], 100, 1)


def test_what_the_broker_says_of_sessions_fits_the_columns() -> None:
    broker = Broker(BrokerSettings(audit_access=True, presence=True), "h1", random.Random(1))
    out: list[Output] = []
    broker.opened(Opened(1, "127.0.0.1"), NOW, out)
    after = PositionAfter("h1", 1, 1)
    for command in (
        Connect(client="test/1"),
        Subscribe(subjects=["/a/b", "/a/*"]),
        Subscribe(subjects=["/c/d"], history=2),
        Subscribe(subjects=["/e/f"], positions={"/e/f": after}),
        Unsubscribe(subjects=["/a/b"]),
    ):
        broker.received(1, [command], NOW, out)
    broker.closed(Closed(1, "gone"), NOW, out)
    logs = [output for output in out if isinstance(output, Log)]
    rows = [row(log, "n1") for log in logs if log.stream in STREAMS]
    assert [columns.event for columns in rows if isinstance(columns, AccessRow)] == [
        "connect",
        "subscribe",
        "subscribe",
        "subscribe-with-history",
        "subscribe-with-recovery",
        "unsubscribe",
        "disconnect",
    ]
    presence = [columns for columns in rows if isinstance(columns, PresenceRow)]
    assert [columns.event for columns in presence].count("join") == 4
    assert [columns.event for columns in presence].count("leave") == 4


def test_what_a_node_says_of_messages_and_the_cache_fits_the_columns() -> None:
    settings = BrokerSettings(
        audit_message=True, audit_cache=True, cached_messages_per_subject=1, message_bytes_max=4
    )
    node = Node(settings, random.Random(1))
    out = node.step(Opened(1, "127.0.0.1"), NOW)
    for number, content in enumerate(("one", "two", "three")):
        publish = Publish(subject="/a/b", content=content, closure="c")
        out += node.step(Received(1, [publish]), NOW + number)
    timers = [output.timer for output in out if isinstance(output, SetTimer)]
    for timer in timers:
        out += node.step(TimerDue(timer), NOW + 3600 * NS_PER_S)
    logs = [output for output in out if isinstance(output, Log)]
    rows = [row(log, "n1") for log in logs if log.stream in STREAMS]
    published = [columns for columns in rows if isinstance(columns, PublishRow)]
    assert [columns.event for columns in published] == ["publish", "publish", "publish-denied"]
    assert [(columns.seq, columns.bytes) for columns in published[:2]] == [(1, 3), (2, 3)]
    assert any(isinstance(columns, CacheRow) for columns in rows)


OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


@pytest.mark.parametrize("stream", STREAMS)
def test_the_documented_columns_are_those_of_the_stream(stream: str) -> None:
    text = OPERATIONS.read_text(encoding="utf-8")
    table = text.split(f"### audit-{stream}.log\n", 1)[1].split("\n##", 1)[0]
    documented = re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
    fields = list(STREAMS[stream].__struct_fields__)
    assert documented == [name for name in fields if name not in HEAD]


@pytest.mark.parametrize(
    ("stream", "column"),
    [
        ("access", "session"),
        ("presence", "session"),
        ("message", "epoch"),
        ("cache", "bytes"),
        ("stats", "sessions"),
    ],
)
def test_the_fast_line_is_the_same_line(stream: str, column: str) -> None:
    log = Log(stream, "anything", {"time": NOW, column: 3})
    assert fast_line(log, "n1") + b"\n" == line(row(log, "n1"))


def test_one_session_does_not_rotate_the_lines_of_others_away(tmp_path: Path) -> None:
    def said(name: str, session: int, at_s: int) -> Log:
        values = {"time": at_s * NS_PER_S, "session": session, "client": "x" * 16_000}
        return Log("access", name, values)

    logs = AuditLogs(tmp_path, "n", ["access"], 10_000_000, 2)
    for _ in range(3 * AUDIT_LINES_MAX):
        logs.take(said("subscribe", 1, 5))
    logs.take(said("subscribe", 2, 5))
    logs.take(said("disconnect", 1, 5))
    logs.close()
    lines = [json.loads(line) for line in (tmp_path / "audit-access.log").read_text().splitlines()]
    assert max(len(line.get("client") or "") for line in lines) < 600
    assert len(lines) == AUDIT_LINES_MAX + 3
    assert (lines[-3]["session"], lines[-1]["event"]) == ("n-2", "disconnect")
    assert lines[-2]["session"] == "n-1"
    assert (lines[-2]["event"], lines[-2]["count"]) == ("lines-left-out", 2 * AUDIT_LINES_MAX)


def test_an_address_does_not_get_more_lines_by_new_sessions(tmp_path: Path) -> None:
    def said(session: int, address: str, at_s: int) -> Log:
        values: dict[str, str | int | float | bool | None] = {
            "time": at_s * NS_PER_S,
            "session": session,
            "address": address,
        }
        return Log("access", "disconnect" if session % 2 else "connect", values)

    logs = AuditLogs(tmp_path, "n", ["access"], 10_000_000, 2)
    for number in range(2 * AUDIT_ADDRESS_LINES_MAX):
        logs.take(said(number, "198.51.100.1", 5))
    logs.take(said(-2, "198.51.100.2", 5))
    logs.take(said(-2, "198.51.100.1", 5 + AUDIT_LINES_S))
    logs.close()
    lines = [json.loads(line) for line in (tmp_path / "audit-access.log").read_text().splitlines()]
    assert len(lines) == AUDIT_ADDRESS_LINES_MAX + 3
    assert lines[-3]["address"] == "198.51.100.2"
    left_out = lines[-2]
    assert (left_out["event"], left_out["address"]) == ("lines-left-out", "198.51.100.1")
    assert left_out["count"] == AUDIT_ADDRESS_LINES_MAX


def test_new_sessions_get_an_address_no_more_lines_about_publications(tmp_path: Path) -> None:
    def said(session: int, address: str) -> Log:
        values: dict[str, str | int | float | bool | None] = {"time": 5, "session": session}
        return Log("message", "publish-denied", values, address)

    logs = AuditLogs(tmp_path, "n", ["message"], 100_000_000, 2)
    for number in range(AUDIT_ADDRESS_MESSAGE_LINES_MAX + 7):
        logs.take(said(number, "198.51.100.1"))
    logs.take(said(-1, "198.51.100.2"))
    logs.close()
    *lines, last = (tmp_path / "audit-message.log").read_text().splitlines()
    assert len(lines) == AUDIT_ADDRESS_MESSAGE_LINES_MAX
    assert json.loads(last)["session"] == "n--1"


def test_the_journal_cuts_free_text_but_not_what_readers_compare() -> None:
    values: dict[str, str | int | float | bool | None] = {
        "time": NOW,
        "subject": "/a/" + "b" * 1000,
        "reason": "x" * 16_000,
    }
    written = msgspec.json.decode(fast_line(Log("message", "publish-denied", values), "n1"))
    assert written["subject"] == values["subject"]
    assert len(written["reason"]) < 600
