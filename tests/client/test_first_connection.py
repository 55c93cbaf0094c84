"""The wait for the first connection: what ends it, and what begins it again."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mdserver.client.client import Client
from mdserver.client.errors import ConnectError, StoppedError


def test_it_fails_once_and_begins_again_with_each_connect() -> None:
    """Nobody listens at port 1, so nothing is ever reached; the clock of Trio jumps."""

    async def main() -> list[str]:
        said: list[str] = []
        async with Client(["127.0.0.1:1"], connect_timeout_s=7) as client:
            for _ in range(2):
                began = trio.current_time()
                try:
                    await client.connected()
                except ConnectError as error:
                    said.append(f"{trio.current_time() - began:.0f} {str(error).partition(':')[0]}")
                try:
                    await client.connected()  # it has failed already
                except ConnectError:
                    said.append("at once")
                client.connect()
            client.disconnect()
        return said

    expected = ["7 no server was reached in 7 s", "at once"]
    assert trio.run(main, clock=MockClock(autojump_threshold=0.05)) == 2 * expected


@pytest.fixture
def silent() -> Iterator[str]:
    """A port that takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


async def test_a_later_subscription_fails_with_the_same_error(silent: str) -> None:
    async with Client([silent], connect_timeout_s=0.2) as client:
        with pytest.raises(ConnectError) as first:
            await client.connected()
        later = client.subscribe("/a/b")
        with trio.fail_after(5):
            for waits in (later.__anext__, later.confirmed, later.caught_up):
                with pytest.raises(ConnectError) as again:
                    await waits()
                assert again.value is first.value
    assert str(first.value) == "no server was reached in 0.2 s: nothing answered yet"


async def test_it_gets_messages_once_a_server_is_reached(scripted: Any) -> None:
    nowhere = ["127.0.0.1:1"]
    async with Client(nowhere, connect_timeout_s=0.2, encoding="json") as client:
        with pytest.raises(ConnectError):
            await client.connected()
        later = client.subscribe("/a/b")
        with pytest.raises(ConnectError):
            await anext(later)
        client.set_servers([scripted.address])
        client.connect()
        peer = await scripted.accept()
        await peer.greet()
        await peer.message("/a/b", 1)
        with trio.fail_after(5):
            assert (await anext(later)).content == "1"
        peer.done.set()


async def test_a_subscription_after_a_stop_fails_with_its_reason(scripted: Any) -> None:
    async with Client([scripted.address], encoding="json") as client:
        peer = await scripted.accept()
        await peer.hear("connect")
        peer.done.set()
        await peer.close(4101, "no")
        with trio.fail_after(5), pytest.raises(StoppedError):
            await client.connected()
        with trio.fail_after(5), pytest.raises(StoppedError):
            await anext(client.subscribe("/a/b"))
