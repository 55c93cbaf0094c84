"""Real server processes on a disk that fails: nothing that was acknowledged is lost."""

import contextlib
import http.client
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from mdserver.client import Client, Notification, PublishError, ReconnectSettings
from tests.cluster.live_cluster import LiveCluster
from tests.disk.conftest import FailingDisk
from tests.disk.servers import FULL, killed, published, texts_of
from tests.journal.test_journal_process import (
    commit_settings,
    free_port,
    options,
    ready,
    rows,
    wait_until,
)
from tests.live import STOP_TIMEOUT_S, lines_about, live_server, post


async def refusal(client: Client, content: str) -> PublishError | None:
    try:
        await client.publish("/a/b", content)
    except PublishError as error:
        return error
    return None


@pytest.mark.parametrize("fsync", ["commit", "none"])
@pytest.mark.parametrize("stream", ["*", "log", "messages"])
async def test_a_publication_that_finds_the_disk_full_is_certainly_not_taken(
    tmp_path: Path, disk: FailingDisk, fsync: str, stream: str
) -> None:
    arguments = options(tmp_path, 0, JournalFsync=fsync, JournalSegmentTime="1h")
    taken = ["before"]
    with live_server(tmp_path, *arguments, environment=disk.environment) as server:
        async with Client([server.url]) as client:
            await client.publish("/a/b", "before")
            disk.fails(f"write ENOSPC -1 */journal/{stream}/*")
            refused = None
            for number in range(20):
                # Rows of what is committed come after it: without room for them it is taken still.
                refused = await refusal(client, f"{number}")
                if refused is not None:
                    break
                taken.append(f"{number}")
            assert refused is not None
            assert refused.result.certain
            assert "No space left on device" in str(refused)
            assert ready(server)[0] == 503
            assert texts_of(server) == taken
            with pytest.raises(PublishError, match="No space left on device"):
                await client.publish("/a/b", "refused at once")
            disk.works()
            wait_until(lambda: ready(server)[0] == 200, "a server that is ready")
            await client.publish("/a/b", "after")
        assert texts_of(server) == [*taken, "after"]
        killed(server)
    with live_server(tmp_path, *arguments) as server:
        assert texts_of(server) == [*taken, "after"]
        wait_until(lambda: len(rows(tmp_path)) == len(taken) + 1, "the rows")
    assert [row["content"] for row in rows(tmp_path)] == [*taken, "after"]


@pytest.mark.parametrize("fsync", ["commit", "none"])
def test_a_restart_on_a_full_disk_serves_what_is_on_it(
    tmp_path: Path, disk: FailingDisk, fsync: str
) -> None:
    """Reading needs no free byte: what was acknowledged is there before anybody may connect."""
    arguments = options(tmp_path, 0, JournalFsync=fsync)
    with live_server(tmp_path, *arguments) as server:
        for number in range(3):
            published(server, f"{number}")
        killed(server)
    disk.fails(FULL)
    with live_server(tmp_path, *arguments, environment=disk.environment) as server:
        assert texts_of(server) == ["0", "1", "2"]
        assert ready(server)[0] == 503
        assert post(server.url, "/a/b", content="refused")["status"] == "FAILED"
        disk.works()
        wait_until(lambda: ready(server)[0] == 200, "a server that is ready")
        published(server, "3")
        killed(server)
    with live_server(tmp_path, *arguments) as server:
        assert texts_of(server) == ["0", "1", "2", "3"]
        wait_until(lambda: len(rows(tmp_path)) == 4, "the rows")
    assert [row["content"] for row in rows(tmp_path)] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    "rules",
    [
        ["fsync EIO 1 */journal/log/seg-*"],
        ["fsync EIO 1 */journal/messages"],
        ["write ENOSPC 1 */journal/log/*", "truncate EIO 1 */journal/log/*"],
    ],
    ids=["segment", "folder", "line that was refused"],
)
def test_what_may_not_be_on_the_disk_is_not_acknowledged_and_ends_the_server(
    tmp_path: Path, disk: FailingDisk, rules: list[str]
) -> None:
    """A second call would succeed, and say nothing: nobody is told that all is synced."""
    arguments = options(tmp_path, 0, JournalSegmentTime="100ms")
    with live_server(tmp_path, *arguments, environment=disk.environment) as server:
        published(server, "before")
        disk.fails(*rules)
        acked = []
        with contextlib.suppress(OSError, http.client.HTTPException):
            while post(server.url, "/a/b", content=f"{len(acked)}")["status"] == "OK":
                acked.append(f"{len(acked)}")
        assert server.process.wait(STOP_TIMEOUT_S) == 1
        (told,) = [line for line in server.log.read_text().splitlines() if "broken" in line]
        assert told.startswith("mdserver: The journal is broken: ")
    if "folder" not in rules[0] and "messages" not in rules[0]:
        assert acked == []
    with live_server(tmp_path, *arguments) as server:
        assert texts_of(server)[: 1 + len(acked)] == ["before", *acked]
        published(server, "after")


async def test_no_client_is_told_a_history_id_that_a_crash_takes_away(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """A new server on a disk that stands still: it serves once its first write is on it."""
    port = free_port()
    arguments = options(tmp_path, port)
    at_once = ReconnectSettings(quick_initial_delay_s=0.05, quick_max_retries=400)
    disk.fails("fsync waits -1 */journal/log/seg-*")
    async with (
        Client([f"127.0.0.1:{port}"], reconnect=at_once) as client,
        client.subscribe("/a/b") as subscription,
    ):
        with live_server(tmp_path, *arguments, environment=disk.environment) as server:
            status, reason = ready(server)
            assert status == 503
            assert "the history id of this server is not on its disk yet" in reason
            with pytest.raises(trio.TooSlowError), trio.fail_after(1):
                await client.connected()
            disk.works()
            with trio.fail_after(10):
                await subscription.confirmed()
            killed(server)
        with live_server(tmp_path, *arguments) as server, trio.fail_after(20):
            published(server, "after")
            assert (await anext(subscription)).content == "after"
    assert Notification.DATA_RESYNC not in [notice.status for notice in client.statuses.rest()]


def test_a_segment_whose_name_may_not_be_on_the_disk_takes_no_line(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """All that is synced into a file is lost with its name; so that is synced first."""
    arguments = options(tmp_path, 0)
    with live_server(tmp_path, *arguments) as server:
        published(server, "before")
    disk.fails("fsync EIO 1 */journal/log")
    command = [sys.executable, "-m", "mdserver.cli.main", "run", *arguments]
    done = subprocess.run(
        command, env=disk.environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert "mdserver ready" not in done.stdout
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("mdserver: ")]
    assert "journal/log: " in told
    assert "Input/output error" in told
    with live_server(tmp_path, *arguments) as server:
        assert texts_of(server) == ["before"]


def test_a_seed_whose_vote_file_cannot_be_written_waits_and_votes_then(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """An election on full disks: nobody promises, nobody ends, and one line says why."""
    settings = commit_settings(tmp_path)
    environment = disk.environment
    with LiveCluster(tmp_path, 3, settings=settings, environment=environment) as cluster:
        cluster.wait(lambda: cluster.produce(0, "/a/b", "before"), 20, "the first publication")
        disk.fails("write ENOSPC -1 */votes-*")
        cluster.kill(0)
        cannot = "vote file cannot be written"
        cluster.wait(lambda: cannot in cluster.log(1) + cluster.log(2), 20, "an election")
        waiting = [index for index in (1, 2) if cannot in cluster.log(index)]
        assert all(cluster.processes[index].poll() is None for index in (1, 2))
        disk.works()
        for index in waiting:
            cluster.wait(
                lambda n=index: "vote file written again" in cluster.log(n), 20, "a written file"
            )
            told = lines_about(tmp_path / f"member-{index}.log", cannot)
            assert len(told) == 1
            assert told[0]["reason"] == "No space left on device"
        for index in (1, 2):
            cluster.wait_ready(index, 60)
            assert [text for _, _, text in cluster.consume(index, "/a/b")] == ["before"]
        cluster.wait(lambda: cluster.produce(1, "/a/b", "after"), 20, "a publication")
