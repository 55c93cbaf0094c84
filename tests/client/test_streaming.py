"""The HTTP transport: streams in any pieces, and servers that do something else."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

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
from tests.server.serving import port_of, serving

PATIENCE_S = 60
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


Meddle = Callable[[bytes], bytes | None]


class AnswerMeddler:
    """A proxy that changes the answers to commands; streams pass as they are.

    `meddle` returns what the client gets for the bytes that the server sent to it. With None it
    gets nothing any more, and its connection stays open.
    """

    def __init__(self, port: int, meddle: Meddle) -> None:
        self.port = port
        self._meddle = meddle
        self.posts = 0
        self.streams = 0

    async def relay(self, client: trio.SocketStream) -> None:
        """Relay one connection until a side ends it."""
        server = await trio.open_tcp_stream("127.0.0.1", self.port)
        async with client, server, trio.open_nursery() as nursery:
            first = await client.receive_some()
            opens = first.startswith(b"POST /stream HTTP/1.1\r\n")
            self.posts += not opens
            self.streams += opens
            await server.send_all(first)
            nursery.start_soon(self._forward, client, server, bytes, nursery.cancel_scope)
            meddle = bytes if opens else self._meddle
            nursery.start_soon(self._forward, server, client, meddle, nursery.cancel_scope)

    async def _forward(
        self,
        source: trio.SocketStream,
        target: trio.SocketStream,
        change: Meddle,
        ends: trio.CancelScope,
    ) -> None:
        with suppress(trio.BrokenResourceError):
            async for part in source:
                changed = change(bytes(part))
                if changed is None:
                    await trio.sleep_forever()
                await target.send_all(changed)
        ends.cancel()


@asynccontextmanager
async def behind(meddle: Meddle) -> AsyncIterator[tuple[str, AnswerMeddler]]:
    """A server behind such a proxy, with signs of life ten times a second."""
    settings = ServerSettings(keepalive=NS_PER_S // 10)
    broker = BrokerSettings(policy=Policy.NONE, keepalive=NS_PER_S // 10)
    async with (
        serving(settings, broker, handler=Router()) as server,
        trio.open_nursery() as nursery,
    ):
        proxy = AnswerMeddler(port_of(server), meddle)
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, proxy.relay, listeners)
        yield f"127.0.0.1:{listeners[0].socket.getsockname()[1]}", proxy
        nursery.cancel_scope.cancel()


async def test_a_proxy_that_closes_after_each_answer() -> None:
    """Nobody reuses a connection after an answer that says that it is the last one."""

    def closing(answer: bytes) -> bytes:
        return answer.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)

    with trio.fail_after(PATIENCE_S):
        async with (
            behind(closing) as (address, proxy),
            Client([address], transport="http") as client,
        ):
            for number in range(1, 6):
                assert (await client.publish("/a/b", "x")).seq == number
            assert proxy.posts >= 5
            assert (await anext(client.statuses)).status is Notification.SERVER_UP
            with trio.move_on_after(0) as nothing:
                await anext(client.statuses)
            assert nothing.cancelled_caught, "the connection was lost"


@pytest.mark.slow
async def test_a_proxy_that_answers_no_commands_while_events_come() -> None:
    """The client connects again and publishes again, which is taken once."""
    first = trio.Event()

    def swallow(answer: bytes) -> bytes | None:
        return None if first.is_set() and proxy.streams == 1 else answer

    async def feed(client: Client) -> None:
        while True:
            await client.publish("/c/d", "x")
            await trio.sleep(0.1)

    with trio.fail_after(PATIENCE_S):
        async with (
            behind(swallow) as (address, proxy),
            Client([f"127.0.0.1:{proxy.port}"]) as other,
            Client([address], transport="http", reconnect=QUICK) as client,
            trio.open_nursery() as nursery,
        ):
            await client.subscribe("/c/d").confirmed()
            nursery.start_soon(feed, other)
            assert (await client.publish("/a/b", "1")).seq == 1
            first.set()
            assert (await client.publish("/a/b", "2")).seq == 2
            assert (await client.publish("/a/b", "3")).seq == 3
            assert proxy.streams == 2
            told = [await anext(client.statuses) for _ in range(2)]
            assert told[1].status is Notification.SERVER_DOWN
            assert "did not answer commands in 10 s" in str(told[1].info)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("host", ["\u00e4..example", "\u00e4" * 64 + ".example"])
@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_a_host_name_that_cannot_be_one(host: str, transport: Any) -> None:
    async with Client([f"{host}:1"], transport=transport, reconnect=QUICK) as client:
        assert "the host name is invalid: " in await first_notice(client)


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
