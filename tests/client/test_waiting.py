"""What keeps a task from waiting for a client: the wrong thread, process or event loop."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from mdserver.client import Client, NotOpenError
from mdserver.client.waiting import Signal

NOWHERE = ["127.0.0.1:1"]


def refusal(function: Callable[[], Any]) -> str:
    """What a call is refused with."""
    try:
        function()
    except NotOpenError as error:
        return str(error)
    return "taken"


def published(client: Client) -> str:
    """What a publication of another event loop is refused with."""

    async def main() -> None:
        await client.publish("/a/b", "x", timeout_s=1)

    return refusal(lambda: asyncio.run(main()))


async def test_another_thread() -> None:
    async with Client(NOWHERE) as client:
        told = []
        thread = threading.Thread(target=lambda: told.append(published(client)))
        thread.start()
        thread.join()
        assert "belongs to the thread in which it was entered" in told[0]
        assert "mdserver.client.sync" in told[0]


def test_another_event_loop() -> None:
    client = Client(NOWHERE)

    async def enter() -> None:
        await client.__aenter__()
        client.disconnect()
        await anyio.wait_all_tasks_blocked()

    asyncio.run(enter())
    assert "belongs to the event loop in which it was entered" in published(client)


FORKED = """
import os, trio
from mdserver.client import Client, NotOpenError

async def main():
    async with Client(["127.0.0.1:1"]) as client:
        child = os.fork()
        if not child:
            try:
                client.connect()
            except NotOpenError as error:
                print(error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)

trio.run(main)
"""


def test_a_forked_process() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=True
    )
    assert "forked since the client was entered" in ran.stdout


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_a_signal_wakes_all_that_wait_now_and_nobody_later(backend: Any) -> None:
    async def main() -> None:
        signal, woken = Signal(), []

        async def wait(name: str) -> None:
            await signal.wait()
            woken.append(name)

        signal.wake()
        async with anyio.create_task_group() as group:
            group.start_soon(wait, "a")
            group.start_soon(wait, "b")
            await anyio.wait_all_tasks_blocked()
            assert woken == []
            signal.wake()
        assert sorted(woken) == ["a", "b"]
        with anyio.move_on_after(0.01) as late:
            await signal.wait()
        assert late.cancelled_caught

    anyio.run(main, backend=backend)
