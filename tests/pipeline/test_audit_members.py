"""The receipts, statistics and events of several members, archived and audited together."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable

from mdserver.core.message import Entry, Publication
from mdserver.journal.audit import AccessRow, PublishRow
from mdserver.journal.rows import ROW_VERSION, ReceiptRow, StatRow, checked, message_row
from mdserver.pipeline.archive import job as archive_job
from mdserver.pipeline.audit.job import run_audit
from mdserver.pipeline.common.sources import JournalSource
from mdserver.pipeline.rollup import job as rollup_job
from tests.receipts import receipt_row

from .conftest import write_lines

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]

MEMBERS = ("a", "b", "c")
START_US = 1_764_000_000_000_000
MS = 1_000
LAST = {"/s/b": 20, "/s/c": 5}
SAMPLES = 10


def messages(node: str) -> list[bytes]:
    """Every member journals every message; the content is its number."""
    rows = []
    for subject, last in LAST.items():
        for seq in range(1, last + 1):
            at_ns = (START_US + seq * MS) * 1_000
            publication = Publication(subject, b"%d" % seq, time=at_ns)
            rows.append(message_row(Entry(1, seq, publication), 0, "h", node, at_ns))
    return [checked(msgspec.json.encode(row)) for row in rows]


def receipts(node: str) -> list[ReceiptRow]:
    """The session of a member got all of /s/b, but for one message on member b."""
    ranges = [range(1, 10), range(11, 21)] if node == "b" else [range(1, 21)]
    return [
        receipt_row(
            "/s/b",
            got,
            session=f"s-{node}",
            subscriber=f"s-{node}",
            owner=f"s-{node}",
            verified=True,
            history="h",
            via=node,
            opened_ts=START_US,
            closed_ts=START_US + 60_000_000,
        )
        for got in ranges
    ]


def access(node: str) -> list[AccessRow]:
    """The session of member c subscribed to /s/c too, of which it has no receipt."""
    subjects = ["/s/b", "/s/c"] if node == "c" else ["/s/b"]
    head: dict[str, Any] = {
        "v": ROW_VERSION,
        "ts": START_US - 60_000_000,
        "node": node,
        "event": "subscribe",
    }
    return [AccessRow(**head, session=f"s-{node}", subject=subject) for subject in subjects]


def published(node: str) -> list[PublishRow]:
    """Member a acknowledged all of /s/b, and c a message that no journal has."""
    seqs = {"a": range(1, 21), "b": range(0), "c": range(21, 22)}[node]
    head: dict[str, Any] = {"v": ROW_VERSION, "ts": START_US + MS, "node": node, "event": "publish"}
    return [
        PublishRow(
            **head,
            session="p",
            subject="/s/b",
            publisher="p",
            number=seq,
            epoch=1,
            seq=seq,
            history="h",
            qos="GUARANTEED",
        )
        for seq in seqs
    ]


def stats(node: str) -> list[StatRow]:
    return [
        StatRow(v=ROW_VERSION, ts=START_US + n * 1_000_000, node=node, indicator="i", value=n)
        for n in range(SAMPLES)
    ]


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(folder / name).to_pyarrow_table().to_pylist()
    return found


def test_what_each_member_saw_is_judged_together(spark: Any, tmp_path: Path) -> None:
    for node in MEMBERS:
        write_lines(tmp_path / node / "messages", messages(node))
        for stream, made in [
            ("receipts", receipts(node)),
            ("stats", stats(node)),
            ("access", access(node)),
            ("publish", published(node)),
        ]:
            write_lines(tmp_path / node / stream, [msgspec.json.encode(row) for row in made])
    folder = tmp_path / "tables"
    for _ in range(2):  # the second time there is nothing new
        sources = [JournalSource(tmp_path / node) for node in MEMBERS]
        archive_job.run_archive(spark, sources, folder, lambda _: None, once=True)
    assert len(rows(folder, "messages")) == sum(LAST.values())
    assert sorted(row["via"] for row in rows(folder, "receipts")) == ["a", "b", "b", "c"]
    assert sorted(row["node"] for row in rows(folder, "events_access")) == ["a", "b", "c", "c"]
    assert not (folder / "quarantine").exists() or rows(folder, "quarantine") == []

    found = run_audit(spark, folder, None)
    faults = [
        (row["kind"], row["session"], row["subject"], row["seq_lo"])
        for row in rows(folder, "audit_findings")
        if row["kind"] != "unjudged"
    ]
    assert sorted(faults, key=str) == [
        ("acknowledged_not_archived", None, "/s/b", 21),
        ("gap", "s-b", "/s/b", 10),
        ("nothing_received", "s-c", "/s/c", 1),
    ]
    assert (found.receipts, found.bad, found.gaps, found.silent, found.unarchived) == (
        4,
        0,
        1,
        1,
        1,
    )

    rollup_job.run_rollup(spark, folder)
    hours = {row["node"]: (row["n"], row["max"]) for row in rows(folder, "stats_hour")}
    assert hours == dict.fromkeys(MEMBERS, (SAMPLES, SAMPLES - 1))
