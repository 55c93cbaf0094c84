"""A subscriber to whom very much is due at once gets all of it; a real server."""

from pathlib import Path
from typing import Any

import pytest
import trio

from mdserver.client import Client
from mdserver.limits import CLIENT_PAYLOAD_BYTES_MAX
from tests.live import live_server

pytestmark = pytest.mark.slow

CONTENT = "x" * 30_000
COUNT = 600


@pytest.mark.parametrize("transport", ["websocket", "http"])
@pytest.mark.parametrize("encoding", ["json", "binary"])
async def test_a_history_of_more_bytes_than_a_client_takes_in_one_message(
    tmp_path: Path, encoding: Any, transport: Any
) -> None:
    assert COUNT * len(CONTENT) > CLIENT_PAYLOAD_BYTES_MAX
    with live_server(tmp_path) as server, trio.fail_after(120):
        async with Client([server.url]) as publisher:
            for number in range(COUNT):
                await publisher.submit("/large/one", f"{number:06}{CONTENT}")
            await publisher.settled()
        async with Client([server.url], encoding=encoding, transport=transport) as client:
            numbers: list[int] = []
            async for message in client.subscribe_with_history(["/large/one"], COUNT):
                assert isinstance(message.content, str)
                numbers.append(int(message.content[:6]))
                if len(numbers) == COUNT:
                    break
        assert numbers == list(range(COUNT))
