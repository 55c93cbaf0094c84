"""The HTTP transport: streams in any pieces, and servers that do something else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio

from mdserver.client import Client, Notification, ReconnectSettings
from mdserver.client.errors import TransportError
from mdserver.client.streaming import Frames, Lines
from mdserver.codec.frames import frame
from mdserver.core.entitlement import Policy
from mdserver.core.settings import BrokerSettings
from mdserver.limits import CLIENT_PAYLOAD_BYTES_MAX, NS_PER_S
from mdserver.server.http.router import Router
from mdserver.server.settings import ServerSettings
from tests.server.serving import serving

QUICK = ReconnectSettings(quick_initial_delay_s=0.01, time_interval_s=0.01)


def test_lines_in_any_pieces() -> None:
    stream = b'{"a":1}\n\n{"b":"2"}\n{"c":3}\n'
    for cut in range(len(stream) + 1):
        lines = Lines()
        payloads = [lines.feed(stream[:cut]), lines.feed(stream[cut:])]
        values = [
            value for payload in payloads if payload for value in msgspec.json.decode(payload)
        ]
        assert values == [{"a": 1}, {"b": "2"}, {"c": 3}]


def test_frames_in_any_pieces() -> None:
    stream = frame(1, b"x" * 200) + frame(0x90, b"") + frame(2, b"yz")
    for cut in range(len(stream) + 1):
        frames = Frames()
        assert frames.feed(stream[:cut]) + frames.feed(stream[cut:]) == stream


def test_what_never_ends_is_too_long() -> None:
    lines = Lines()
    with pytest.raises(TransportError, match="too long"):
        lines.feed(b"x" * (CLIENT_PAYLOAD_BYTES_MAX + 1))
    with pytest.raises(TransportError, match="allowed"):
        Frames().feed(b"\x01\xff\xff\xff\x7f")


async def first_notice(client: Client) -> str:
    with trio.fail_after(10):
        notice = await anext(client.statuses)
    assert notice.status is Notification.SERVER_DOWN
    return str(notice.info)


async def test_a_server_without_streams() -> None:
    async with serving() as server, Client(server.urls, transport="http") as client:
        assert (await first_notice(client)).endswith("the server answered HTTP 404: nothing here")


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """A server that gives each connection the same answer, and ends it."""

    async def give(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(answer)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, give, listeners)
        yield f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"220 mail.example.com ESMTP\r\n\r\n", "no HTTP: "),
        (b"", "the connection was lost"),
        (STREAM + b"0\r\n\r\n", "the stream ended without `closed`"),
        (STREAM, "the connection was lost"),
        (STREAM + b"9\r\nnonsense\n\r\n", "the server broke the protocol"),
    ],
)
async def test_servers_that_speak_something_else(answer: bytes, told: str) -> None:
    async with (
        answering(answer) as address,
        Client([address], transport="http", encoding="json") as client,
    ):
        assert told in await first_notice(client)


@pytest.mark.parametrize("encoding", ["binary", "json"])
async def test_signs_of_life_are_no_events(encoding: str) -> None:
    settings = ServerSettings(keepalive=NS_PER_S // 10)
    broker = BrokerSettings(policy=Policy.NONE, keepalive=NS_PER_S // 10)
    async with (
        serving(settings, broker, handler=Router()) as server,
        Client(server.urls, transport="http", encoding=encoding) as client,  # type: ignore[arg-type]
        client.subscribe("/a/b") as subscription,
    ):
        await subscription.confirmed()
        sent = {server.sessions.traffic.sent}
        with trio.fail_after(30):
            while len(sent) < 4:  # nothing is published: what is sent are three signs of life
                await trio.sleep(0.02)
                sent.add(server.sessions.traffic.sent)
        with trio.fail_after(30):
            await client.publish("/a/b", "still there")
            assert (await anext(subscription)).content == "still there"
            assert (await anext(client.statuses)).status is Notification.SERVER_UP
        with trio.move_on_after(0) as nothing:
            await anext(client.statuses)
        assert nothing.cancelled_caught, "the connection was lost"


async def test_websocket_where_http_was() -> None:
    async with (
        serving(broker=BrokerSettings(policy=Policy.NONE), handler=Router()) as server,
        Client(server.urls, transport="http", reconnect=QUICK) as client,
        client.subscribe("/a/b") as subscription,
    ):
        await subscription.confirmed()
        client.set_transport("websocket")
        client.disconnect()
        client.connect()
        with trio.fail_after(10):
            await client.publish("/a/b", "by another way")
            assert (await anext(subscription)).content == "by another way"
