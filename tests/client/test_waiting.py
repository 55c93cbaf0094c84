"""What keeps a task from waiting for a client: the wrong thread, process or event loop."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import anyio
import pytest

from mdserver.client import Client, NotOpenError, Subscription
from mdserver.client.waiting import Signal

NOWHERE = ["127.0.0.1:1"]
PATIENCE_S = 60


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


CALLS: list[Callable[[Client, Subscription], Any]] = [
    lambda client, _: client.connect(),
    lambda client, _: client.disconnect(),
    lambda client, _: client.pause(),
    lambda client, _: client.resume(),
    lambda client, _: client.unsubscribe(["/a/b"]),
    lambda client, _: client.set_entitlement_token("t"),
    lambda _, subscription: subscription.end(),
]


@pytest.mark.parametrize("call", CALLS)
async def test_a_change_in_another_thread(call: Callable[[Client, Subscription], Any]) -> None:
    client = Client(NOWHERE)
    subscription = client.subscribe("/a/b")
    told: list[str] = []
    async with client:
        use = partial(call, client, subscription)
        thread = threading.Thread(target=lambda: told.append(refusal(use)))
        thread.start()
        thread.join()
        assert client.get_subjects() == ["/a/b"]
    assert "belongs to the thread in which it was entered" in told[0]


def test_waits_in_another_event_loop() -> None:
    """Each is refused, also if a task of the right loop began to wait for the same before."""
    client = Client(NOWHERE)
    subscription = client.subscribe("/a/b")
    waits: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        subscription.__anext__,
        subscription.batch,
        subscription.confirmed,
        client.settled,
        client.connected,
    ]

    async def enter() -> list[asyncio.Task[Any]]:
        await client.__aenter__()
        waits.append((await client.submit("/a/b", "x")).outcome)
        begun = [asyncio.create_task(wait()) for wait in waits]
        await anyio.wait_all_tasks_blocked()
        return begun

    async def leave(begun: list[asyncio.Task[Any]]) -> None:
        await client.__aexit__(KeyError, KeyError(), None)  # an error, so that it does not drain
        await asyncio.wait(begun, timeout=PATIENCE_S)
        assert [task.done() for task in begun] == [True] * 6
        await asyncio.gather(*begun, return_exceptions=True)

    async def elsewhere(wait: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        with anyio.fail_after(PATIENCE_S):
            await wait()

    with asyncio.Runner() as first:
        begun = first.run(enter())
        for wait in waits:
            told = refusal(partial(asyncio.run, elsewhere(wait)))
            assert "belongs to the event loop in which it was entered" in told
        first.run(leave(begun))


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
