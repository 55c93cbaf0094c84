"""The client for asyncio with what asyncio has; what it shares is in test_ways.py."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from mdserver.client.aio import Client
from tests.live import live_server

pytestmark = pytest.mark.slow


def test_timeouts_of_asyncio_lose_nothing(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        async with asyncio.timeout(60), Client([url]) as client:
            subscription = client.subscribe("/a/b")
            await subscription.confirmed()
            for _ in range(20):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(subscription), 0.01)
            await asyncio.gather(*(client.publish("/a/b", str(number)) for number in range(5)))
            got = [(await anext(subscription)).content for _ in range(5)]
            assert got == ["0", "1", "2", "3", "4"]

    with live_server(tmp_path) as server:
        asyncio.run(main(server.url))


def test_a_forgotten_await_is_told(tmp_path: Path) -> None:
    program = """
import asyncio
from mdserver.client.aio import Client

async def main():
    async with Client(["127.0.0.1:1"]) as client:
        client.publish("/a/b", "x")

asyncio.run(main())
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert "coroutine 'Client.publish' was never awaited" in ran.stderr
