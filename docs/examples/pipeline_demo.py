"""A server with a journal, real stock prices, and all that the pipeline makes of them.

    make pipeline-demo        (python docs/examples/pipeline_demo.py [FOLDER])

While prices are published for half a minute, `archive` fills tables and `derive` publishes alerts
and averages back into the server. A subscriber keeps receipts of what it got. Then the statistics
are rolled up, the receipts are audited, and three questions are put in SQL. Needs the extra
`pipeline` and Java 17. What it made stays in the folder that it names in the end.
"""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import stocks
import trio
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table
from vega_datasets import local_data

from mdserver.client import Client
from mdserver.pipeline.archive import job as archive_job
from mdserver.pipeline.audit import job as audit_job
from mdserver.pipeline.common import session, tables
from mdserver.pipeline.common.sources import JournalSource
from mdserver.pipeline.rollup import job as rollup_job

HERE = Path(__file__).parent
FOLDER = Path(*(sys.argv[1:] or (HERE.parents[1], "build", "pipeline-demo")))
JOURNAL, TABLES, REPORT = FOLDER / "journal", FOLDER / "tables", FOLDER / "audit.html"
MDSERVER = [sys.executable, "-m", "mdserver.cli.main"]
MESSAGES_PER_S = 20
JOB_START_TIMEOUT_S = 300
STOP_TIMEOUT_S = 60
ALERTS_SHOWN = 3
QUESTIONS = {
    "Which stock moved most?": """
        select key as symbol, count(*) as prices,
               min(double(string(content))) as lowest,
               max(double(string(content))) as highest,
               round(max_by(double(string(content)), seq)
                   / min_by(double(string(content)), seq), 1) as last_to_first
        from messages where root = 'stocks' group by key order by last_to_first desc""",
    "How long does a publication take until it is committed?": """
        select root, count(*) as messages,
               int(percentile(unix_micros(ts_server) - unix_micros(ts_pub), 0.5)) as p50_us,
               int(percentile(unix_micros(ts_server) - unix_micros(ts_pub), 0.99)) as p99_us
        from messages group by root order by root""",
    "Did everybody get everything?": """
        select subscriber, verdict, count(*) as ranges, sum(n) as messages
        from audit_verdicts group by subscriber, verdict order by subscriber, verdict""",
}
console = Console(highlight=False)


def main() -> None:
    """Runs the demo; raises where a part of it failed."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    settings = {
        "Listen": "127.0.0.1:0",
        "Entitlement": "None",
        "Journal": "on",
        "JournalFolder": JOURNAL,
        "JournalSegmentTime": "1s",
    }
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with running("run", *words) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[-1]
        console.print(f"[bold]A server with a journal[/] at {url}")
        source = ("--journal", str(JOURNAL), "--tables", str(TABLES))
        rules = ("--rules", str(HERE / "stocks.yaml"))
        with (
            running("pipeline", "archive", *source),
            running("pipeline", "derive", *rules, *source, "--server", url),
        ):
            console.print("[bold]archive and derive[/] are starting: two JVMs")
            trio.run(play, url)
    aftermath()


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command of mdserver that works in the background, until the end of the block."""
    log = (FOLDER / f"{arguments[1] if arguments[0] == 'pipeline' else 'server'}.log").open("w")
    with (
        log,
        subprocess.Popen(
            [*MDSERVER, *arguments],
            stdout=subprocess.PIPE if arguments[0] == "run" else log,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT if arguments[0] == "pipeline" else signal.SIGTERM)
            try:
                process.wait(STOP_TIMEOUT_S)
            finally:
                process.kill()


async def play(url: str) -> None:
    """Publish the prices, with a subscriber that keeps receipts, until alerts have come back."""
    prices = stocks.publications(Path(local_data.stocks.filepath))
    async with Client([url], receipts=True) as subscriber, Client([url]) as publisher:
        received = subscriber.subscribe("/stocks/*")
        derived = publisher.subscribe("/alerts/*", "/means/*", history=1000)
        await subscriber.settled()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish, publisher, prices)
            for _ in prices:
                await anext(received)
            await subscriber.reported()
            console.print(f"{len(prices)} prices were published and received.")
        alerts = 0
        with trio.fail_after(JOB_START_TIMEOUT_S):
            async for message in derived:
                if not message.subject.startswith("/alerts/"):
                    continue
                alerts += 1
                console.print(f"  derived: {message.subject}  {message.content}")
                if alerts == ALERTS_SHOWN:
                    break


async def publish(client: Client, prices: list[dict[str, object]]) -> None:
    """One price after the other, so many a second."""
    for number, price in enumerate(prices, start=1):
        await client.publish(price["subject"], price["content"], fields=price["fields"])
        if number % (5 * MESSAGES_PER_S) == 0:
            console.print(f"  published {number} of {len(prices)}, archived {archived()}")
        await trio.sleep(1 / MESSAGES_PER_S)


def archived() -> int:
    """How many messages the archive has by now."""
    if not DeltaTable.is_deltatable(str(TABLES / "messages")):
        return 0
    return DeltaTable(TABLES / "messages").to_pyarrow_dataset().count_rows()


def aftermath() -> None:
    """Archive the rest, roll up, audit, and ask."""
    console.print("[bold]The rest is archived, statistics are rolled up, receipts are audited[/]")
    spark = session.start("demo")
    try:
        archive_job.run_archive(spark, JournalSource(JOURNAL), TABLES, lambda _: None, once=True)
        console.print(
            f"  rolled up: {json.dumps(attrs.asdict(rollup_job.run_rollup(spark, TABLES)))}"
        )
        found = audit_job.run_audit(spark, TABLES, REPORT)
        console.print(
            f"  audited: {found.receipts} receipts, {found.bad} not whole, {found.gaps} gaps"
        )
        for name in ("messages", "receipts", "audit_verdicts"):
            tables.frame(spark, TABLES, name).createOrReplaceTempView(name)
        for question, sql in QUESTIONS.items():
            console.print(f"[bold]{question}[/]")
            answer = spark.sql(sql).toArrow()
            shown = Table()
            for column in answer.column_names:
                shown.add_column(column)
            for row in answer.to_pylist():
                shown.add_row(*map(str, row.values()))
            console.print(shown)
    finally:
        spark.stop()
    console.print(f"The report: {REPORT}\nThe tables: {TABLES}", soft_wrap=True)


if __name__ == "__main__":
    main()
