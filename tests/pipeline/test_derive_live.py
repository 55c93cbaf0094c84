"""The vehicles example as its users run it: a server with a journal, the command, and kills."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from deltalake import DeltaTable

from mdserver.client import Client, Message, Subscription
from mdserver.pipeline.common.figures import META_SUBJECT
from mdserver.pipeline.common.places import RemoteTables, Tables
from tests.live import LiveServer, live_server
from tests.live_spark import CLUSTER_QUICK, live_spark

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]

PATIENCE_S = 300
RULES = """\
rules:
  - name: speeding
    kind: threshold
    from: /vehicles/*/speed
    to: /notifications/{1}
    above: 0
    message: "{value}"
  - {name: silent, kind: stale, seconds: 2, from: /vehicles/*/speed, to: "/silent/{1}"}
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    (tmp_path / "rules.yaml").write_text(RULES)
    journal = ("--set", "Journal=on", "--set", f"JournalFolder={tmp_path / 'journal'}")
    everybody = ("--set", "Listen=127.0.0.1:0", "--set", "Entitlement=None")
    with live_server(tmp_path, *everybody, *journal) as running:
        yield running


@contextmanager
def deriving(folder: Path, server: LiveServer, tables: Tables) -> Iterator[subprocess.Popen[bytes]]:
    """The command; its output goes to a file."""
    arguments = ["--rules", "rules.yaml", "--journal", "journal", "--tables", str(tables)]
    if isinstance(tables, RemoteTables):
        arguments += ["--checkpoints", "remembered"]
    command = [sys.executable, "-m", "mdserver.cli.main", "pipeline", "derive", *arguments]
    with (folder / "derive.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--server", server.url], cwd=folder, stdout=log, stderr=log
        )
    with process:
        try:
            yield process
        finally:
            process.kill()


async def publish(client: Client, published: list[str]) -> None:
    """Speeds of three cars, in turns, as long as they are wanted."""
    number = 0
    while True:
        number += 1
        published.append(str(number))  # to stop waiting for its result takes nothing back
        await client.publish(f"/vehicles/car{number % 3}/speed", str(number))
        await trio.sleep(0.01)


async def take(subscription: Subscription, count: int) -> list[Message]:
    with trio.fail_after(PATIENCE_S):
        return [await anext(subscription) for _ in range(count)]


COUNTED = """\
  - name: counted
    kind: window
    function: count
    seconds: 1
    from: /vehicles/*/speed
    to: /counted/{1}
"""


@pytest.mark.soak
async def test_on_a_cluster_each_notification_comes_once_whoever_is_killed(
    server: LiveServer, tmp_path: Path
) -> None:
    """First an executor, then the driver; each message is in one window as well."""
    with (tmp_path / "rules.yaml").open("a") as file:
        file.write(COUNTED)
    published: list[str] = []
    got: list[Message] = []
    counted = 0
    files = ("--rules", str(tmp_path / "rules.yaml"), "--journal", str(tmp_path / "journal"))
    where = ("--tables", str(tmp_path / "tables"), "--server", server.url)
    job = ("derive", "--engine", "distributed", "--shards", "4", *files, *where)
    log = tmp_path / "derive.log"
    (tmp_path / "cluster").mkdir()
    async with Client([server.url]) as client, trio.open_nursery() as nursery:
        notifications = client.subscribe("/notifications/*")
        windows = client.subscribe("/counted/*")
        await windows.confirmed()
        publishing = trio.CancelScope()

        async def publish_for_now() -> None:
            with publishing:
                await publish(client, published)

        with live_spark(tmp_path / "cluster", CLUSTER_QUICK) as cluster:
            nursery.start_soon(publish_for_now)
            with cluster.driver(log, *job):
                got += await take(notifications, 300)
                assert cluster.kill_executor(0)
                got += await take(notifications, 600)
            with cluster.driver(log, *job):
                got += await take(notifications, 600)
                assert cluster.kill_executor(1)
                got += await take(notifications, 300)
                publishing.cancel()
                got += await take(notifications, len(published) - len(got))
                with trio.fail_after(PATIENCE_S):
                    while counted < len(published):
                        counted += int((await anext(windows)).content)
        notifications.end()
        windows.end()
        assert [message async for message in notifications] == []
        assert [message async for message in windows] == []
    assert counted == len(published)
    for car in range(3):
        subject = f"/notifications/car{car}"
        assert [m.content for m in got if m.subject == subject] == published[(car - 1) % 3 :: 3]


@pytest.mark.parametrize("where", ["folder", pytest.param("s3", marks=pytest.mark.soak)])
async def test_each_notification_comes_once_whenever_the_job_is_killed(
    server: LiveServer, tmp_path: Path, request: pytest.FixtureRequest, where: str
) -> None:
    tables: Tables = tmp_path / "tables"
    if where == "s3":
        tables = request.getfixturevalue("remote")
    published: list[str] = []
    got: list[Message] = []
    progress_subject = META_SUBJECT.format(job="derive")
    async with Client([server.url]) as client, trio.open_nursery() as nursery:
        notifications = client.subscribe("/notifications/*")
        progress = client.subscribe(progress_subject)
        silence = client.subscribe("/silent/*")
        await silence.confirmed()
        publishing = trio.CancelScope()

        async def publish_for_now() -> None:
            with publishing:
                await publish(client, published)

        await client.publish("/vehicles/car0/speed", "fast")
        nursery.start_soon(publish_for_now)
        for _ in range(2):
            with deriving(tmp_path, server, tables) as process:
                got += await take(notifications, 150)
                os.kill(process.pid, signal.SIGKILL)
        with deriving(tmp_path, server, tables) as process:
            got += await take(notifications, 150)
            publishing.cancel()
            got += await take(notifications, len(published) - len(got))
            assert {message.subject for message in await take(silence, 3)} == {
                f"/silent/car{car}" for car in range(3)
            }
            [told] = await take(progress, 1)
            process.send_signal(signal.SIGINT)
            assert await trio.to_thread.run_sync(process.wait) == 130
        notifications.end()
        progress.end()
        silence.end()
        assert [message async for message in notifications] == []
    for car in range(3):
        subject = f"/notifications/car{car}"
        assert [m.content for m in got if m.subject == subject] == published[(car - 1) % 3 :: 3]
    assert '"derived":' in str(told.content)
    log = (tmp_path / "derive.log").read_text()
    assert "Traceback" not in log, log
    aside = DeltaTable(tables / "quarantine").to_pyarrow_table()["reason"].to_pylist()
    assert aside == ["rule speeding: content is no number: 'fast'"]
