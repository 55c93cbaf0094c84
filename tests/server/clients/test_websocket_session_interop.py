"""Foreign clients, both on asyncio in a thread: `websockets` and `aiohttp`, in both encodings."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import pytest
import trio
import websockets.asyncio.client

from mdserver.codec.binary_form import BinaryClient
from mdserver.codec.json_form import JsonClient
from mdserver.core.commands import Publish, Subscribe
from mdserver.core.events import Connected, MessageEvent, Status
from mdserver.core.settings import BrokerSettings
from mdserver.limits import SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON
from mdserver.server.http.router import Router
from tests.server.serving import port_of, serving

CODECS: dict[str, Any] = {SUBPROTOCOL_JSON: JsonClient, SUBPROTOCOL_BINARY: BinaryClient}
CONTENT = "grüße " * 20_000  # more than one read, more than one segment


def commands(codec: Any) -> str | bytes:
    sent: bytes = codec.join(
        [
            codec.command(Subscribe(subjects=["/a/b"])),
            codec.command(Publish(subject="/a/b", content="small", closure="1")),
            codec.command(Publish(subject="/a/b", content=CONTENT, closure="2")),
        ]
    )
    return sent.decode() if codec.text else sent


def complete(events: list[Any]) -> bool:
    return sum(isinstance(event, MessageEvent | Status) for event in events) == 4


def check(events: list[Any]) -> None:
    assert isinstance(events[0], Connected)
    messages = [event for event in events if isinstance(event, MessageEvent)]
    assert [(m.content, m.epoch, m.seq) for m in messages] == [("small", 1, 1), (CONTENT, 1, 2)]
    assert [event.closure for event in events if isinstance(event, Status)] == ["1", "2"]


async def with_websockets(url: str, subprotocol: str) -> None:
    codec = CODECS[subprotocol]()
    events: list[Any] = []
    async with websockets.asyncio.client.connect(
        url, subprotocols=[websockets.Subprotocol(subprotocol)], ping_interval=0.01
    ) as client:
        await client.send(commands(codec))
        while not complete(events):
            received = await client.recv()
            events += codec.events(received.encode() if isinstance(received, str) else received)
        await (await client.ping(b"payload"))
    assert client.close_code == 1000
    check(events)


async def with_aiohttp(url: str, subprotocol: str) -> None:
    codec = CODECS[subprotocol]()
    events: list[Any] = []
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(url, protocols=[subprotocol], compress=15) as client:
            sent = commands(codec)
            await (client.send_str(sent) if isinstance(sent, str) else client.send_bytes(sent))
            while not complete(events):
                received = (await client.receive()).data
                events += codec.events(received.encode() if isinstance(received, str) else received)
        assert client.close_code == 1000
        http = url.replace("ws://", "http://").removesuffix("/ws")
        async with session.get(f"{http}/snapshot", params={"subject": "/a/b"}) as answer:
            assert await answer.text() == CONTENT
        async with session.post(
            f"{http}/rest/produce", params={"subject": "/c/d"}, data=chunks()
        ) as answer:
            assert (await answer.json())["status"] == "OK"
    check(events)


async def chunks() -> Any:
    """A body that aiohttp sends in chunks."""
    for part in (b"one ", b"two"):
        yield part


@pytest.mark.parametrize("client", [with_websockets, with_aiohttp])
@pytest.mark.parametrize("subprotocol", CODECS)
async def test_a_foreign_client(
    client: Callable[[str, str], Coroutine[Any, Any, None]], subprotocol: str
) -> None:
    broker = BrokerSettings(message_bytes_max=1024 * 1024)
    with trio.fail_after(20):
        async with serving(broker=broker, handler=Router()) as server:
            url = f"ws://127.0.0.1:{port_of(server)}/ws"
            await trio.to_thread.run_sync(asyncio.run, client(url, subprotocol))
