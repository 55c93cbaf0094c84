"""Time-outs, limits and endings of one connection, over real sockets."""

import gc
import json
import socket
import struct
from contextlib import suppress

import pytest
import trio
import trio.testing

from mdserver import limits
from mdserver.core.settings import BrokerSettings
from mdserver.limits import NS_PER_MS
from mdserver.server.clients.connection import Connection
from mdserver.server.clients.websocket_session import WebSocketSession
from mdserver.server.settings import ServerSettings
from tests.server.raw import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    close_payload,
    connected,
    frame,
    upgraded,
)
from tests.server.serving import port_of, serving

PATIENCE_S = 60
QUICK = ServerSettings(
    handshake_timeout=100 * NS_PER_MS,
    keepalive=100 * NS_PER_MS,
    close_timeout=200 * NS_PER_MS,
)


async def test_a_silent_client_is_pinged_and_then_closed_with_4004() -> None:
    async with serving(QUICK) as server, upgraded(port_of(server)) as client:
        assert await client.frame() == (PING, b"")
        assert await client.closed_with() == limits.CLOSE_KEEPALIVE_MISSED


async def test_a_client_that_answers_pings_stays() -> None:
    async with serving(QUICK) as server, upgraded(port_of(server)) as client:
        for _ in range(4):
            assert await client.frame() == (PING, b"")
            await client.send(frame(PONG))
        await client.send(frame(CLOSE, close_payload(1000)))
        assert await client.closed_with() == 1000


def kept() -> int:
    """Count what this process holds of connections and sessions, be it garbage or not."""
    parts = (Connection, WebSocketSession)
    # Not `isinstance`, which asks objects of others for their class and so may run code of theirs.
    return sum(type(each) in parts for each in gc.get_objects())


async def test_nothing_of_a_connection_that_ended_waits_for_the_garbage_collector() -> None:
    """A server looks at old objects seldom, so what waits for that would seem to be a leak."""
    gc.collect()
    gc.disable()
    try:
        before = kept()
        async with serving() as server:
            async with upgraded(port_of(server)) as client:  # it goes without a word
                await client.send(frame(TEXT, b'{"op":"subscribe","subjects":["/a"]}'))
                assert kept() >= before + 2
            async with upgraded(port_of(server)) as client:
                await client.send(frame(CLOSE, close_payload(1000)))
                assert await client.closed_with() == 1000
            with trio.fail_after(PATIENCE_S):
                while kept() > before:  # noqa: ASYNC110 - there is no event for it
                    await trio.sleep(0.01)
    finally:
        gc.enable()


async def test_nothing_sent_at_all_ends_without_an_answer() -> None:
    async with serving(QUICK) as server, connected(port_of(server)) as client:
        assert await client.rest() == b""


@pytest.mark.parametrize(
    "start",
    [
        b"GET /ws HT",
        b"POST /rest/produce HTTP/1.1\r\nHost: [::]\r\nContent-Length: 100\r\n\r\nabc",
    ],
)
async def test_a_request_that_does_not_end_is_answered_with_408(start: bytes) -> None:
    async with serving(QUICK) as server, connected(port_of(server)) as client:
        await client.send(start)
        assert (await client.rest()).startswith(b"HTTP/1.1 408 ")


async def test_what_is_no_json_closes_with_4100_and_a_reason() -> None:
    async with serving() as server, upgraded(port_of(server)) as client:
        await client.send(frame(TEXT, b"hello"))
        opcode, payload = await client.frame()
        assert opcode == CLOSE
        assert struct.unpack("!H", payload[:2])[0] == limits.CLOSE_PROTOCOL_ERROR
        assert b"JSON" in payload


async def test_commands_before_what_is_no_json_are_carried_out() -> None:
    async with serving() as server, upgraded(port_of(server)) as client:
        await client.send(frame(TEXT, b'{"op":"ping","t":1}') + frame(TEXT, b"hello"))
        opcode, payload = await client.frame()
        assert (opcode, [event["op"] for event in json.loads(payload)]) == (
            TEXT,
            ["connected", "pong"],
        )
        assert await client.closed_with() == limits.CLOSE_PROTOCOL_ERROR


async def test_a_binary_message_on_the_json_subprotocol() -> None:
    async with serving() as server, upgraded(port_of(server)) as client:
        await client.send(frame(BINARY, b'{"op":"ping"}'))
        assert await client.closed_with() == limits.CLOSE_PROTOCOL_ERROR


async def test_a_message_beyond_the_limit_closes_with_1009() -> None:
    settings = ServerSettings(websocket_bytes_max=1000)
    async with serving(settings) as server, upgraded(port_of(server)) as client:
        await client.send(frame(TEXT, b"[", length=1001))
        assert await client.closed_with() == limits.CLOSE_TOO_BIG


async def test_the_origin_has_to_be_allowed() -> None:
    settings = ServerSettings(allowed_origins=frozenset({"https://good.example"}))
    async with serving(settings) as server:
        async with upgraded(port_of(server), "Origin: https://good.example"):
            pass
        async with connected(port_of(server)) as client:
            await client.send(
                b"GET /ws HTTP/1.1\r\nHost: [::]\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Key: AAECAwQFBgcICQoLDA0ODw==\r\nSec-WebSocket-Version: 13\r\n"
                b"Origin: https://bad.example\r\n\r\n"
            )
            assert (await client.rest()).startswith(b"HTTP/1.1 403 ")


async def test_bytes_that_come_with_the_upgrade_are_read() -> None:
    async with serving() as server, connected(port_of(server)) as client:
        await client.send(
            b"GET /ws HTTP/1.1\r\nHost: [::]\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: AAECAwQFBgcICQoLDA0ODw==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            + frame(TEXT, b'{"op":"ping","t":7}')
        )
        await client.until(b"\r\n\r\n")
        _, payload = await client.frame()
        assert json.loads(payload)[1] == {"op": "pong", "t": 7}


async def test_requests_one_after_the_other_on_one_connection() -> None:
    request = b"GET /missing HTTP/1.1\r\nHost: [::]\r\n\r\n"
    async with serving() as server, connected(port_of(server)) as client:
        await client.send(request * 3)
        for _ in range(3):
            assert (await client.until(b"nothing here\n")).startswith(b"HTTP/1.1 404 ")
        await client.send(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert (await client.rest()).startswith(b"HTTP/1.1 404 ")


async def test_a_body_that_waits_for_100_continue() -> None:
    async with serving() as server, connected(port_of(server)) as client:
        await client.send(
            b"POST /x HTTP/1.1\r\nHost: [::]\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
        )
        assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"abc")
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 404 ")


async def test_a_handler_that_fails_is_answered_with_500_and_nobody_else_notices() -> None:
    async def broken(request: object, exchange: object) -> object:
        raise RuntimeError("a bug")

    async with (
        serving(handler=broken) as server,
        upgraded(port_of(server)) as other,
        connected(port_of(server)) as client,
    ):
        await client.send(b"GET /x HTTP/1.1\r\nHost: [::]\r\n\r\n")
        assert (await client.rest()).startswith(b"HTTP/1.1 500 ")
        await other.send(frame(TEXT, b'{"op":"ping","t":1}'))
        assert b"pong" in (await other.frame())[1]


async def test_cancelling_the_server_leaves_no_socket() -> None:
    async with serving() as server, upgraded(port_of(server)) as client:
        await client.send(frame(TEXT, b'{"op":"ping","t":1}'))
        await client.frame()
        assert len(server.sessions.sinks) == 1
    assert server.sessions.sinks == {}
    assert server.sessions.outboxes == {}
    assert server.connections == 0


async def test_a_keep_alive_interval_that_the_client_asks_for() -> None:
    """`connect` may ask for an interval; what `connected` says is what the server does."""
    broker = BrokerSettings()
    async with serving(broker=broker) as server, upgraded(port_of(server)) as client:
        await client.send(frame(TEXT, b'{"op":"connect","keepalive_ms":1000}'))
        _, payload = await client.frame()
        interval = json.loads(payload)["keepalive_ms"]
        with trio.fail_after(2 * interval / 1000):
            assert await client.frame() == (PING, b"")


async def test_every_task_that_waits_to_send_ends_with_the_connection() -> None:
    here, there = socket.socketpair()
    ended = trio.Event()
    with there:
        here.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                here.send(bytes(64 * 1024))
        async with serving(ServerSettings()) as server:
            connection = Connection(here, "127.0.0.1", server.context)

            async def second() -> None:
                try:
                    await trio.lowlevel.wait_writable(here)
                finally:
                    ended.set()

            async def first() -> None:
                connection.drain_with(second)

            connection.drain_with(first)
            await trio.testing.wait_all_tasks_blocked()
            connection.close()
            with trio.fail_after(60):
                await ended.wait()
