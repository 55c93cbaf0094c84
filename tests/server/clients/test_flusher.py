"""Batching by time and by size: what arrives within the period travels in one operation."""

import json

import trio
import trio.testing
import trio_websocket

from mdserver.core.commands import Connect, Publish
from mdserver.core.inputs import Opened, Received
from mdserver.limits import NS_PER_MS, NS_PER_S
from mdserver.server.server import Server
from mdserver.server.settings import ServerSettings
from tests.server.serving import port_of, serving

PUBLISHER = 1_000_000


async def subscribed(client: trio_websocket.WebSocketConnection) -> None:
    """Subscribes, and returns when the server has said so."""
    await client.send_message('[{"op":"subscribe","subjects":["/a/b"]},{"op":"ping","t":1}]')
    while '"pong"' not in await client.get_message():
        pass


def publish(server: Server, content: str) -> None:
    """One publication in a step of its own, by a session without a connection."""
    server.engine.dispatch(Received(PUBLISHER, [Publish(subject="/a/b", content=content)]))


async def batches(server: Server, contents: list[str]) -> list[list[str]]:
    """The contents of each WebSocket message in which these publications arrive."""
    found: list[list[str]] = []
    with trio.fail_after(10):
        async with trio_websocket.open_websocket_url(
            f"ws://127.0.0.1:{port_of(server)}/ws"
        ) as client:
            await subscribed(client)
            server.engine.dispatch(Opened(PUBLISHER, "127.0.0.1"))
            server.engine.dispatch(Received(PUBLISHER, [Connect()]))
            for content in contents:
                publish(server, content)
                await trio.testing.wait_all_tasks_blocked()
            while sum(map(len, found)) < len(contents):
                events = json.loads(await client.get_message())
                events = events if isinstance(events, list) else [events]
                found.append([event["content"] for event in events])
    return found


async def test_without_batching_a_message_goes_at_once() -> None:
    async with serving(ServerSettings()) as server:
        assert await batches(server, ["1", "2", "3"]) == [["1"], ["2"], ["3"]]


async def test_what_comes_within_the_time_goes_in_one_operation() -> None:
    async with serving(ServerSettings(batching=300 * NS_PER_MS)) as server:
        assert await batches(server, ["1", "2", "3"]) == [["1", "2", "3"]]


async def test_enough_bytes_end_the_time_early() -> None:
    settings = ServerSettings(batching=NS_PER_S, batching_bytes=800)
    async with serving(settings) as server:
        found = await batches(server, ["x" * 300] * 4)
        assert [len(batch) for batch in found] == [3, 1]
