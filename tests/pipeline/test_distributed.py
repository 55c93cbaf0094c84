"""The jobs by `spark-submit` on a master and two workers, from Kafka: as embedded, row by row."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable

from mdserver.core.message import Publication
from mdserver.journal import segments
from mdserver.journal.rows import ROW_VERSION, MessageRow, ReceiptRow
from mdserver.pipeline import jobs
from tests.live_kafka import LiveKafka
from tests.live_spark import LiveSpark, live_spark

from .conftest import message_lines, run_archive, write_lines

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]

SUBJECTS = [f"/vehicles{n % 3}/car{n}/speed" for n in range(12)]
MESSAGES = 3000
OWN_COLUMNS = ["src_kind", "src_partition", "src_pos", "ts_broker", "batch_id"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSpark]:
    with live_spark(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Messages, a line that cannot be used, and receipts for them of which some are wrong."""
    folder = tmp_path_factory.mktemp("distributed") / "journal"
    publications = [Publication(SUBJECTS[n % 12], b"%d" % n) for n in range(MESSAGES)]
    lines = message_lines(publications)
    write_lines(folder / "messages", [*lines, b"{no row"])
    messages = [msgspec.json.decode(line, type=MessageRow) for line in lines]
    receipts = [receipt(subject, messages, wrong=n % 4) for n, subject in enumerate(SUBJECTS)]
    write_lines(folder / "receipts", [msgspec.json.encode(row) for row in receipts])
    return folder


def receipt(subject: str, messages: list[MessageRow], wrong: int) -> ReceiptRow:
    """All of a subject; `wrong` 0: whole, 1: one lost, 2: one altered, 3: one twice."""
    got = [row for row in messages if row.subject == subject]
    if wrong == 1:
        del got[7]
    return ReceiptRow(
        v=ROW_VERSION, session=f"of {subject}", subscriber="ann", history="h1", subject=subject,
        epoch=1, seq_lo=got[0].seq, seq_hi=got[-1].seq, n=len(got),
        crc_sum=sum(row.crc for row in got) + (wrong == 2),
        crc_at=sum(row.crc * (row.seq - got[0].seq) for row in got),
        dups=int(wrong == 3), reordered=0, conflated=0, via="n1",
        opened_ts=got[0].ts_server, closed_ts=got[-1].ts_server,
    )  # fmt: skip


def sorted_rows(tables: Path, name: str, without: list[str]) -> list[dict[str, Any]]:
    table = DeltaTable(tables / name).to_pyarrow_table().drop_columns(without)
    return sorted(table.to_pylist(), key=str)


def test_archive_and_audit(
    spark: Any, kafka: LiveKafka, connector: list[Path], cluster: LiveSpark, journal: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    embedded, tables = tmp_path / "embedded", tmp_path / "distributed"
    run_archive(spark, journal, embedded)
    assert not jobs.run_audit(spark, embedded, None).whole

    topics = []
    for stream in ("messages", "receipts"):
        topics.append(f"vehicles.{stream}")
        kafka.create(topics[-1], partitions=4)
        kafka.produce(topics[-1], keyed(journal / stream))
    where = ("--tables", str(tables))
    source = ("--kafka", kafka.servers, "--topics", ",".join(topics))
    run = cluster.submit(connector, "archive", *source, *where, "--once")
    assert run.returncode == 0, run.stderr
    run = cluster.submit([], "audit", *where, "--report", str(tmp_path / "audit.html"))
    assert run.returncode == 1, run.stderr
    assert "12 receipts: 9 not whole" in run.stdout
    assert [count > 0 for count in cluster.executors()] == [True, True]

    assert len(sorted_rows(tables, "messages", [])) == MESSAGES
    for name in ("messages", "quarantine"):
        own = [column for column in OWN_COLUMNS if column != "ts_broker" or name == "messages"]
        assert sorted_rows(tables, name, own) == sorted_rows(embedded, name, own)
    assert sorted_rows(tables, "receipts", ["batch_id"]) == sorted_rows(
        embedded, "receipts", ["batch_id"]
    )
    verdicts = sorted_rows(tables, "audit_verdicts", [])
    assert verdicts == sorted_rows(embedded, "audit_verdicts", [])
    assert [row["verdict"] for row in verdicts].count("exact") == 3


def keyed(stream: Path) -> Iterator[tuple[str, bytes]]:
    """The lines of a stream with their subject as the key; one that has none goes under no name."""
    for line in segments.lines(stream):
        try:
            yield msgspec.json.decode(line)["subject"], line
        except msgspec.DecodeError:
            yield "", line
