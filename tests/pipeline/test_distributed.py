"""The jobs by `spark-submit` on a master and two workers, from Kafka: as embedded, row by row."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from deltalake import DeltaTable

from mdserver.client import Client
from mdserver.core.message import Publication
from mdserver.journal import segments
from mdserver.journal.rows import ROW_VERSION, MessageRow, ReceiptRow
from mdserver.pipeline.archive import job as archive_job
from mdserver.pipeline.audit import job as audit_job
from mdserver.pipeline.common.sources import JournalSource
from mdserver.pipeline.rollup import job as rollup_job
from tests.live import live_server
from tests.live_kafka import LiveKafka
from tests.live_spark import CLUSTER_QUICK, JOB_TIMEOUT_S, LiveSpark, live_spark

from .conftest import message_lines, run_archive, write_lines
from .test_remote_jobs import stored, write_journal, write_stats

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]

SUBJECTS = [f"/vehicles{n % 3}/car{n}/speed" for n in range(12)]
MESSAGES = 3000
OWN_COLUMNS = ["src_kind", "src_partition", "src_pos", "ts_broker", "batch_id"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSpark]:
    with live_spark(tmp_path_factory.mktemp("cluster"), CLUSTER_QUICK) as running:
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
        v=ROW_VERSION,
        session=f"of {subject}",
        subscriber="ann",
        history="h1",
        subject=subject,
        epoch=1,
        seq_lo=got[0].seq,
        seq_hi=got[-1].seq,
        n=len(got),
        crc_sum=sum(row.crc for row in got) + (wrong == 2),
        crc_at=sum(row.crc * (row.seq - got[0].seq) for row in got),
        dups=int(wrong == 3),
        reordered=0,
        conflated=0,
        via="n1",
        opened_ts=got[0].ts_server,
        closed_ts=got[-1].ts_server,
    )


def sorted_rows(tables: Path, name: str, without: list[str]) -> list[dict[str, Any]]:
    table = DeltaTable(tables / name).to_pyarrow_table().drop_columns(without)
    return sorted(table.to_pylist(), key=str)


@pytest.mark.soak
def test_archive_and_audit(
    spark: Any,
    kafka: LiveKafka,
    connector: list[Path],
    cluster: LiveSpark,
    journal: Path,
    tmp_path: Path,
) -> None:
    embedded, tables = tmp_path / "embedded", tmp_path / "distributed"
    run_archive(spark, journal, embedded)
    assert not audit_job.run_audit(spark, embedded, None).whole

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
        other = "ts" if name == "messages" else "ts_broker"
        own = [column for column in [*OWN_COLUMNS, "ts"] if column != other]
        assert sorted_rows(tables, name, own) == sorted_rows(embedded, name, own)
    assert sorted_rows(tables, "receipts", ["batch_id"]) == sorted_rows(
        embedded, "receipts", ["batch_id"]
    )
    verdicts = sorted_rows(tables, "audit_verdicts", [])
    assert verdicts == sorted_rows(embedded, "audit_verdicts", [])
    assert [row["verdict"] for row in verdicts].count("exact") == 3


@pytest.mark.soak
def test_jobs_on_journals(spark: Any, cluster: LiveSpark, tmp_path: Path) -> None:
    """Those of two members: the rows of each table are those of the jobs embedded."""
    journals = [tmp_path / member for member in ("m1", "m2")]
    for number, journal in enumerate(journals):
        write_journal(journal)
        write_stats(journal, 300 * (number + 1))
    here = tmp_path / "embedded"
    sources = [JournalSource(journal) for journal in journals]
    archive_job.run_archive(spark, sources, here, lambda _: None, once=True)
    rollup_job.run_rollup(spark, here)

    there = tmp_path / "submitted"
    where = ("--tables", str(there))
    given = [word for journal in journals for word in ("--journal", str(journal))]
    jobs = {
        ("archive", *given, "--once"): "messages batch 1: 20 rows",
        ("rollup", "--keep-days", "0"): "1200 new samples",
        ("maintain",): "messages: ",
    }
    for job, said in jobs.items():
        run = cluster.submit([], *job, *where)
        assert run.returncode == 0, run.stderr
        assert said in run.stdout
        assert "Traceback" not in run.stderr
    names = sorted(path.name for path in here.iterdir() if (path / "_delta_log").exists())
    assert {"messages", "receipts", "stats_month"} <= set(names)
    for name in names:
        assert stored(there, name) == stored(here, name), name


RULES = """\
rules:
  - name: each
    kind: threshold
    from: /vehicles0/*/speed
    above: -1
    message: "{value}"
    to: /derived/{1}
  - name: mean
    kind: window
    function: avg
    seconds: 1
    from: /*/*/speed
    to: /derived/mean/{0}/{1}
"""


async def test_derive(
    spark: Any,
    kafka: LiveKafka,
    connector: list[Path],
    cluster: LiveSpark,
    journal: Path,
    tmp_path: Path,
) -> None:
    """Two engines, with two partitions of Kafka and with one journal, publish the same."""
    kafka.create("distributed.messages", partitions=2)
    kafka.produce("distributed.messages", keyed(journal / "messages"))
    (tmp_path / "rules.yaml").write_text(RULES)
    job = ("derive", "--once", "--rules", str(tmp_path / "rules.yaml"))

    def embedded(url: str) -> subprocess.CompletedProcess[str]:
        source = ("--journal", str(journal), "--tables", str(tmp_path / "embedded"))
        command = [sys.executable, "-m", "mdserver.cli.main", "pipeline", *job, *source]
        return subprocess.run(
            [*command, "--server", url],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=JOB_TIMEOUT_S,
            check=False,
        )

    def distributed(url: str) -> subprocess.CompletedProcess[str]:
        source = ("--kafka", kafka.servers, "--topics", "distributed.messages")
        where = ("--tables", str(tmp_path / "distributed"), "--engine", "distributed")
        return cluster.submit(connector, *job, *source, *where, "--server", url)

    expected = await derived(tmp_path, embedded)
    assert await derived(tmp_path, distributed) == expected
    assert expected["/derived/car0"] == [str(n) for n in range(0, MESSAGES, 12)]
    assert len(expected["/derived/mean/vehicles1/car4"]) >= 2


async def derived(
    folder: Path, job: Callable[[str], subprocess.CompletedProcess[str]]
) -> dict[str, list[str | bytes]]:
    """What a job publishes to a server of its own, by subject and in order."""
    found: dict[str, list[str | bytes]] = {}
    with live_server(folder) as server:
        async with Client([server.url]) as client:
            messages = client.subscribe("/derived/**")
            await messages.confirmed()
            run = await trio.to_thread.run_sync(job, server.url)
            assert run.returncode == 0, run.stderr
            await client.publish("/derived/end", "")
            async for message in messages:
                if message.subject == "/derived/end":
                    break
                found.setdefault(message.subject, []).append(message.content)
    return found


def keyed(stream: Path) -> Iterator[tuple[str, bytes]]:
    """The lines of a stream with their subject as the key; one that has none goes under no name."""
    for line in segments.lines(stream):
        try:
            yield msgspec.json.decode(line)["subject"], line
        except msgspec.DecodeError:
            yield "", line
