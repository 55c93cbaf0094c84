"""Where the tasks of a client run under asyncio, and what becomes of one that fails."""

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest

from mdserver.client import Client, Notification, NotOpenError, Subscription
from tests.live import live_server

NOWHERE = ["127.0.0.1:1"]
PATIENCE_S = 60


def test_one_task_enters_and_another_leaves(tmp_path: Path) -> None:
    """As fixtures, notebooks and some frameworks do."""

    async def main(url: str) -> None:
        client = Client([url])
        await asyncio.create_task(client.__aenter__())
        assert (await client.publish("/a/b", "x")).seq == 1
        await asyncio.create_task(client.__aexit__(None, None, None))
        with pytest.raises(NotOpenError, match="was left"):
            await client.publish("/a/b", "x")

    with live_server(tmp_path) as server:
        asyncio.run(asyncio.wait_for(main(server.url), 40))


def test_cancelling_a_task_leaves_its_client(tmp_path: Path) -> None:
    async def use(url: str, connected: asyncio.Event) -> None:
        async with Client([url]) as client:
            await client.connected()
            connected.set()
            await anext(client.subscribe("/never/published"))

    async def main(url: str) -> None:
        connected = asyncio.Event()
        task = asyncio.create_task(use(url, connected))
        await connected.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not [one for one in asyncio.all_tasks() if one.get_name() == "mdserver client"]

    with live_server(tmp_path) as server:
        asyncio.run(asyncio.wait_for(main(server.url), 40))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_cancelled_drain_leaves_the_client(backend: Any) -> None:
    """The result of the publication is still missing when the scope around the block ends."""

    async def main() -> None:
        before = {task.id for task in anyio.get_running_tasks()}
        client = Client(NOWHERE)
        with anyio.fail_after(PATIENCE_S):
            with anyio.CancelScope() as scope:
                async with client:
                    subscription = client.subscribe("/a/b")
                    await client.submit("/a/b", "x")
                    scope.cancel()
            assert scope.cancelled_caught
            assert {task.id for task in anyio.get_running_tasks()} == before
            await ended(client, subscription)

    anyio.run(main, backend=backend)


def test_cancelling_a_task_that_drains_leaves_its_client() -> None:
    client = Client(NOWHERE)
    subscription = client.subscribe("/a/b")

    async def use(draining: asyncio.Event) -> None:
        async with client:
            await client.submit("/a/b", "x")
            draining.set()

    async def main() -> None:
        draining = asyncio.Event()
        task = asyncio.create_task(use(draining))
        await draining.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await ended(client, subscription)

    asyncio.run(main())


async def ended(client: Client, subscription: Subscription) -> None:
    """All iterations of a client end, and it refuses what waits."""
    assert [message async for message in subscription] == []
    async for notice in client.statuses:
        assert notice.status is Notification.SERVER_DOWN
    with pytest.raises(NotOpenError, match="was left"):
        await client.connected()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_error_of_a_task_reaches_those_who_wait_and_the_block(backend: Any) -> None:
    class Broken(Client):
        def take(self, output: object) -> None:
            raise RuntimeError("a bug")

    async def main() -> None:
        with anyio.fail_after(40):
            async with Broken(NOWHERE) as client:
                await anext(client.subscribe("/a/b"))

    with pytest.raises(BaseException) as caught:  # noqa: PT011
        anyio.run(main, backend=backend)
    if backend == "asyncio":
        assert isinstance(caught.value, NotOpenError)
        assert "an error of its own" in str(caught.value)
    else:
        assert caught.group_contains(RuntimeError, match="a bug", depth=1)
