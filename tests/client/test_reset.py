"""What a subscriber is told when a server comes back without its memory; real processes."""

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from mdserver.client import Client, Notice, Notification, ReconnectSettings
from tests.live import LiveServer, live_server, post

AT_ONCE = ReconnectSettings(quick_initial_delay_s=0.05, quick_max_retries=200)


def same_port(server: LiveServer) -> tuple[str, ...]:
    return ("--set", f"Listen=127.0.0.1:{server.port}", "--set", "Entitlement=None")


def kill(server: LiveServer) -> None:
    server.process.kill()
    server.process.wait()


async def resyncs(client: Client, count: int) -> list[Notice]:
    told: list[Notice] = []
    async for notice in client.statuses:
        if notice.status is Notification.DATA_RESYNC:
            told.append(notice)
        if len(told) == count:
            break
    return told


@pytest.mark.slow
async def test_a_reset_is_told_for_each_subject(tmp_path: Path) -> None:
    with live_server(tmp_path) as server, trio.fail_after(30):
        async with (
            Client([server.url], reconnect=AT_ONCE) as client,
            client.subscribe("/a/b", "/w/*") as subscription,
        ):
            for subject in ("/a/b", "/w/1", "/w/2"):
                await client.publish(subject, "before")
                await anext(subscription)
            kill(server)
            with live_server(tmp_path, *same_port(server)):
                told = await resyncs(client, 3)
                assert sorted(str(notice.subject) for notice in told) == ["/a/b", "/w/1", "/w/2"]
                assert {notice.missing for notice in told} == {None}
                assert all("numbers messages anew" in str(notice.info) for notice in told)
                await client.publish("/w/1", "after")
                assert (await anext(subscription)).content == "after"


def test_sub_tells_it_on_stderr(tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        command = [sys.executable, "-m", "mdserver.cli.main", "sub", "/a/b", "--count", "2"]
        with subprocess.Popen(
            [*command, "--server", server.url],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as sub:
            assert sub.stdout is not None
            assert sub.stderr is not None
            post(server.url, "/a/b", content="before")
            assert "before" in sub.stdout.readline()
            kill(server)
            with live_server(tmp_path, *same_port(server)):
                while "DATA_RESYNC" not in (line := sub.stderr.readline()):
                    assert line, "it ended without a word"
                assert "/a/b" in line
                post(server.url, "/a/b", content="after")
                assert "after" in sub.stdout.readline()
            assert sub.wait(20) == 0
