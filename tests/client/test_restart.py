"""A server process that is killed under its clients and started again."""

import socket
from pathlib import Path
from typing import Any

import pytest
import trio

from mdserver.client import Client, MessageType, Notification, ReconnectSettings
from tests.live import live_server

QUICK = ReconnectSettings(quick_max_retries=1000, quick_initial_delay_s=0.05)


async def next_status(client: Client, wanted: Notification) -> None:
    with trio.fail_after(20):
        async for notice in client.statuses:
            if notice.status is wanted:
                return


async def take(subscription: Any) -> Any:
    with trio.fail_after(20):
        return await anext(subscription)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["binary", "json"])
async def test_a_killed_server_is_found_again(tmp_path: Path, encoding: Any) -> None:
    listen = [f"--set=Listen=127.0.0.1:{free_port()}", "--set=Entitlement=None"]
    with live_server(tmp_path, *listen) as server:
        url = server.url
        async with Client([url], encoding=encoding, reconnect=QUICK) as client:
            subscription = client.subscribe("/a/*")
            await subscription.confirmed()
            for number in range(3):
                await client.publish("/a/b", str(number))
                assert (await take(subscription)).content == str(number)
            await next_status(client, Notification.SERVER_UP)
            server.process.kill()
            server.process.wait()
            await next_status(client, Notification.SERVER_DOWN)
            waiting = await client.submit("/a/b", "while it was away")
            with live_server(tmp_path, *listen):
                await next_status(client, Notification.SERVER_UP)
                with trio.fail_after(20):
                    result = await waiting.outcome()
                assert result.seq == 1, "a server without a journal begins anew"
                message = await take(subscription)
                assert (message.content, message.type) == ("while it was away", MessageType.UPDATE)
                with trio.fail_after(20):
                    assert (await client.publish("/a/b", "after")).seq == 2
                client.disconnect()


@pytest.mark.slow
async def test_a_later_run_recovers_from_where_an_earlier_one_was(tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        async with Client([server.url]) as publisher:
            async with Client([server.url]) as earlier:
                subscription = earlier.subscribe("/a/*")
                await subscription.confirmed()
                await publisher.publish("/a/b", "0")
                assert (await take(subscription)).content == "0"
                seen = earlier.position("/a/b")
                assert earlier.position("/a/c") is None
            assert seen is not None
            for number in (1, 2):
                await publisher.publish("/a/b", str(number))
            async with Client([server.url], positions={"/a/b": seen}) as later:
                subscription = later.subscribe("/a/*")
                messages = [await take(subscription), await take(subscription)]
    assert [(one.content, one.type) for one in messages] == [
        ("1", MessageType.RECOVERED),
        ("2", MessageType.RECOVERED),
    ]
