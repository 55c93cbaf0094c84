"""Commands and events over a real WebSocket, through a client that is not ours."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio_websocket

from mdserver.codec.binary_form import BinaryClient
from mdserver.codec.json_form import JsonClient
from mdserver.core.commands import Ping, Publish, Subscribe
from mdserver.core.events import Connected, MessageEvent, Pong, Status, StatusName
from mdserver.limits import SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON
from tests.server.serving import port_of, serving

CODECS = {SUBPROTOCOL_JSON: JsonClient, SUBPROTOCOL_BINARY: BinaryClient}


class Peer:
    """A client with the codec of its subprotocol."""

    def __init__(self, websocket: trio_websocket.WebSocketConnection, codec: Any) -> None:
        self.websocket = websocket
        self.codec = codec
        self.waiting: list[Any] = []

    async def send(self, *commands: Any) -> None:
        payload = self.codec.join([self.codec.command(command) for command in commands])
        await self.websocket.send_message(payload.decode() if self.codec.text else payload)

    async def next(self) -> Any:
        while not self.waiting:
            message = await self.websocket.get_message()
            self.waiting += self.codec.events(
                message.encode() if isinstance(message, str) else message
            )
        return self.waiting.pop(0)

    async def until(self, kind: type) -> Any:
        while not isinstance(event := await self.next(), kind):
            pass
        return event


@asynccontextmanager
async def peer(port: int, subprotocol: str = SUBPROTOCOL_JSON) -> AsyncIterator[Peer]:
    with trio.fail_after(10):
        async with trio_websocket.open_websocket_url(
            f"ws://127.0.0.1:{port}/ws", subprotocols=[subprotocol]
        ) as websocket:
            assert websocket.subprotocol == subprotocol
            yield Peer(websocket, CODECS[subprotocol]())


@pytest.mark.parametrize("subprotocol", CODECS)
async def test_publish_reaches_a_subscriber_and_is_confirmed(subprotocol: str) -> None:
    async with serving() as server, peer(port_of(server), subprotocol) as client:
        await client.send(Subscribe(subjects=["/a/b"]), Ping())
        assert isinstance(await client.next(), Connected)
        await client.until(Pong)
        await client.send(Publish(subject="/a/b", content="one", closure="c1"))
        events = [await client.next(), await client.next()]
        message = next(event for event in events if isinstance(event, MessageEvent))
        status = next(event for event in events if isinstance(event, Status))
        assert (message.subject, message.content, message.seq) == ("/a/b", "one", 1)
        assert (status.status, status.closure, status.seq) == (StatusName.PUBLISH_OK, "c1", 1)


async def test_json_without_a_subprotocol_at_the_root_path() -> None:
    async with serving() as server:
        with trio.fail_after(10):
            async with trio_websocket.open_websocket_url(
                f"ws://127.0.0.1:{port_of(server)}/"
            ) as websocket:
                await websocket.send_message('{"op": "ping", "t": [1]}')
                text = await websocket.get_message()
                events = json.loads(text)
                assert [event["op"] for event in events] == ["connected", "pong"]
                assert events[1]["t"] == [1]


async def test_what_is_delivered_is_counted_from_the_start_on() -> None:
    async with serving() as server, peer(port_of(server)) as client:
        await client.send(Subscribe(subjects=["/a/b"]))
        rounds = 30
        for _ in range(rounds):
            await client.send(*(Publish(subject="/a/b", content="x") for _ in range(100)))
        await client.send(Ping())
        await client.until(Pong)
        assert server.sessions.deliveries == rounds * 100
