"""Clients that mean harm: no crash, no leak, and nobody else notices."""

import gc
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from attrs import evolve

from mdserver.config import FanoutEngine
from mdserver.limits import KB, MB, NS_PER_MS
from mdserver.server.http.router import Router
from mdserver.server.server import Server
from mdserver.server.settings import ServerSettings
from tests.server.layers import Layer
from tests.server.raw import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    TEXT,
    RawClient,
    connected,
    frame,
    upgraded,
)
from tests.server.serving import port_of, serving

SETTINGS = ServerSettings(
    handshake_timeout=300 * NS_PER_MS,
    close_timeout=200 * NS_PER_MS,
    outbox_bytes_max=64 * KB,
)
# For clients that are slow only because the machine is busy, such as in a handshake of TLS.
PATIENT = evolve(SETTINGS, handshake_timeout=5000 * NS_PER_MS)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@asynccontextmanager
async def unharmed(
    settings: ServerSettings = SETTINGS, timeout: float = 20
) -> AsyncIterator[Server]:
    """A server with a well-behaved client beside whatever the block does.

    That client gets an answer all the time, and at least one after the block; afterwards tasks
    and descriptors are as before.
    """
    async with serving(settings, handler=Router()) as server:
        gc.collect()
        tasks, files = trio.lowlevel.current_statistics().tasks_living, descriptors()
        async with (
            upgraded(port_of(server), timeout=timeout) as good,
            trio.open_nursery() as nursery,
        ):
            answers: list[int] = []
            nursery.start_soon(stay_served, good, answers)
            yield server
            before = len(answers)
            with trio.fail_after(timeout):
                while len(answers) <= before:
                    await trio.testing.wait_all_tasks_blocked(0.001)
            nursery.cancel_scope.cancel()
        with trio.fail_after(5):
            while server.connections:
                await trio.testing.wait_all_tasks_blocked(0.01)
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        gc.collect()
        assert descriptors() == files
        assert server.sessions.sinks == {}
        assert server.sessions.outboxes == {}


async def stay_served(client: RawClient, answers: list[int]) -> None:
    """Ask now and then, with a pause so that it is no flood itself."""
    number = 0
    while True:
        number += 1
        await client.send(frame(TEXT, b'{"op":"ping","t":%d}' % number))
        with trio.fail_after(3):
            _, payload = await client.frame()
            assert b'"t":%d' % number in payload
        answers.append(number)
        await trio.sleep(0.005)


async def test_slow_heads() -> None:
    async with unharmed() as server, trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(slowly, port_of(server), b"GET /ws HTTP/1.1\r\nHost: [::]\r\nX: ")


async def test_slow_bodies() -> None:
    head = b"POST /rest/produce?subject=/a/b HTTP/1.1\r\nHost: [::]\r\nContent-Length: 5000\r\n\r\n"
    async with unharmed() as server, trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(slowly, port_of(server), head)


async def slowly(port: int, start: bytes) -> None:
    """One byte now and then, until the server has had enough."""
    async with connected(port) as client:
        await client.send(start)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip, client)
            answer = await client.rest()
            nursery.cancel_scope.cancel()
    assert answer.startswith(b"HTTP/1.1 408 ")


async def drip(client: RawClient) -> None:
    """Send a byte in each of a slow client's pauses."""
    try:
        while True:
            await client.send(b"a")
            await trio.sleep(0.05)
    except trio.BrokenResourceError:
        pass


SMUGGLING = {
    "both lengths": b"POST /rest/produce HTTP/1.1\r\nHost: [::]\r\nContent-Length: 3\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: [::]\r\nContent-Length: 3\r\n"
    b"Content-Length: 4\r\n\r\nabc",
    "the same length twice": b"POST / HTTP/1.1\r\nHost: [::]\r\nContent-Length: 3\r\n"
    b"Content-Length: 3\r\n\r\nabc",
    "a list of lengths": b"POST / HTTP/1.1\r\nHost: [::]\r\nContent-Length: 3, 3\r\n\r\nabc",
    "a negative length": b"POST / HTTP/1.1\r\nHost: [::]\r\nContent-Length: -1\r\n\r\n",
    "a length with a plus": b"POST / HTTP/1.1\r\nHost: [::]\r\nContent-Length: +3\r\n\r\nabc",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a bare LF": b"GET / HTTP/1.1\nHost: [::]\n\n",
    "one bare LF": b"GET / HTTP/1.1\r\nHost: [::]\nX: y\r\n\r\n",
    "a bare CR": b"GET / HTTP/1.1\r\nHost: [::]\r\nX: a\rb\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\nHost: [::]\r\nX: a\r\n b\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: [::]\r\nHost: y\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "a blank before the colon": b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    "chunked twice": b"POST / HTTP/1.1\r\nHost: [::]\r\nTransfer-Encoding: chunked\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked in disguise": b"POST / HTTP/1.1\r\nHost: [::]\r\nTransfer-Encoding: xchunked\r\n\r\n",
    "a chunk size with a sign": b"POST / HTTP/1.1\r\nHost: [::]\r\nTransfer-Encoding: chunked\r\n"
    b"\r\n+3\r\nabc\r\n0\r\n\r\n",
    "a chunk size beyond 64 bits": b"POST / HTTP/1.1\r\nHost: [::]\r\nTransfer-Encoding: chunked"
    b"\r\n\r\nfffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "a chunk longer than it says": b"POST / HTTP/1.1\r\nHost: [::]\r\nTransfer-Encoding: chunked"
    b"\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
    "a NUL in a header": b"GET / HTTP/1.1\r\nHost: [::]\r\nX: a\0b\r\n\r\n",
}


@pytest.mark.parametrize("name", SMUGGLING)
async def test_forms_that_hide_a_second_request(name: str) -> None:
    """Refused, and nothing after it on the connection is read as a request."""
    async with serving(SETTINGS, handler=Router()) as server, connected(port_of(server)) as client:
        await client.send(SMUGGLING[name] + b"GET /health/live HTTP/1.1\r\nHost: [::]\r\n\r\n")
        answer = await client.rest()
    assert answer.split(b" ")[1] in (b"400", b"408", b"413", b"501")
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_heads_and_bodies_beyond_their_limits() -> None:
    async with unharmed() as server:
        async with connected(port_of(server)) as client:
            await client.send(b"GET / HTTP/1.1\r\nHost: [::]\r\nX: " + b"a" * 20 * KB)
            assert (await client.rest()).startswith(b"HTTP/1.1 431 ")
        async with connected(port_of(server)) as client:
            await client.send(
                b"POST /rest/produce HTTP/1.1\r\nHost: [::]\r\nContent-Length: 99999999999\r\n\r\n"
            )
            assert (await client.rest()).startswith(b"HTTP/1.1 413 ")
        async with connected(port_of(server)) as client:
            await client.send(
                b"POST /rest/produce HTTP/1.1\r\nHost: [::]\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            piece = b"10000\r\n" + bytes(0x10000) + b"\r\n"
            try:
                for _ in range(20):
                    await client.send(piece)
            except trio.BrokenResourceError:
                pass  # it need not read what it has refused
            assert (await client.rest()).startswith(b"HTTP/1.1 413 ")


async def test_a_flood_of_pings_from_a_client_that_does_not_read() -> None:
    flood = frame(PING, bytes(125)) * 1000
    async with unharmed() as server, upgraded(port_of(server)) as client:
        with trio.move_on_after(1):
            for _ in range(50):
                await client.send(flood)
        waiting = [
            len(outbox.unsent) + len(outbox.control) for outbox in server.sessions.outboxes.values()
        ]
        assert max(waiting) <= 2 * 127  # the last two pongs, whatever the number of pings


async def test_a_flood_of_tiny_fragments() -> None:
    async with unharmed() as server, upgraded(port_of(server)) as client:
        await client.send(frame(TEXT, b" ", fin=False))
        for _ in range(20):
            await client.send(frame(CONTINUATION, b" ", fin=False) * 1000)
        await client.send(frame(CONTINUATION, b'{"op":"ping","t":1}'))
        assert b"pong" in (await client.frame())[1]


async def test_frames_cut_off_by_the_end_of_the_stream() -> None:
    whole = frame(TEXT, b'{"op":"ping"}')
    async with unharmed() as server:
        for end in range(len(whole)):
            async with upgraded(port_of(server)) as client:
                await client.send(whole[:end])


async def test_resets_in_the_middle_of_everything() -> None:
    """An RST instead of a FIN, at each stage of a connection."""
    stages = [b"", b"GET /ws HT", frame(TEXT, b'{"op":"subscribe","subjects":["/a/b"]}')[:9]]
    async with unharmed() as server:
        for stage in stages:
            for _ in range(10):
                stream = await trio.open_tcp_stream("127.0.0.1", port_of(server))
                await stream.send_all(stage)
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                stream.socket.close()


async def test_a_reset_while_much_waits_ends_both_tasks(
    fanout_engine: FanoutEngine, layer: Layer
) -> None:
    settings = layer.settings(
        evolve(PATIENT, fanout_engine=fanout_engine, outbox_bytes_max=64 * MB)
    )
    publication = b'{"op":"publish","subject":"/a/b","content":"%s"}' % (b"x" * 8000)
    async with unharmed(settings) as server, upgraded(port_of(server)) as publisher:
        for _ in range(3):
            async with upgraded(layer.port(server), tls=layer.context) as slow:
                slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * KB)
                await slow.send(frame(TEXT, b'{"op":"subscribe","subjects":["/a/b"]}'))
                await slow.frame()
                while not any(outbox.unsent for outbox in server.sessions.outboxes.values()):
                    await publisher.send(frame(TEXT, publication))
                slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                slow.socket.close()


async def test_a_client_that_stops_reading_is_disconnected_and_others_are_not(
    fanout_engine: FanoutEngine,
    layer: Layer,
) -> None:
    publication = b'{"op":"publish","subject":"/a/b","content":"%s"}' % (b"x" * 8000)
    settings = layer.settings(evolve(PATIENT, fanout_engine=fanout_engine))
    async with unharmed(settings) as server:
        port, tls = layer.port(server), layer.context
        async with (
            upgraded(port, tls=tls) as slow,
            upgraded(port, tls=tls) as reader,
            upgraded(port, tls=tls) as publisher,
        ):
            slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * KB)
            for client in (slow, reader):
                await client.send(frame(TEXT, b'{"op":"subscribe","subjects":["/a/b"]}'))
            await reader.frame()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(count_messages, reader, 300)
                for _ in range(300):
                    await publisher.send(frame(TEXT, publication))
            assert len(server.sessions.outboxes) == 3  # reader, publisher and the good one
            with pytest.raises(AssertionError, match="the server ended"):
                await count_messages(slow, 300)


async def count_messages(client: RawClient, count: int) -> None:
    seen = 0
    while seen < count:
        _, payload = await client.frame()
        seen += payload.count(b'"op":"message"')


@pytest.mark.slow
async def test_ten_thousand_random_streams() -> None:
    rng = random.Random(20261121)
    async with unharmed(PATIENT, 120) as server:
        limit = trio.CapacityLimiter(50)
        async with trio.open_nursery() as nursery:
            for _ in range(10_000):
                await limit.acquire_on_behalf_of(token := object())
                nursery.start_soon(random_stream, port_of(server), rng.randbytes(4), limit, token)


async def random_stream(port: int, seed: bytes, limit: trio.CapacityLimiter, token: object) -> None:
    rng = random.Random(seed)
    try:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            if rng.random() < 0.7:
                await RawClient(stream).send(UPGRADES[rng.randrange(len(UPGRADES))])
            for _ in range(rng.randrange(1, 4)):
                await stream.send_all(garbage(rng))
    except trio.BrokenResourceError:
        pass  # the server may end it at any time
    finally:
        limit.release_on_behalf_of(token)


UPGRADES = [
    b"GET /ws HTTP/1.1\r\nHost: [::]\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAECAwQFBgcICQoLDA0ODw==\r\nSec-WebSocket-Version: 13\r\n" + line + b"\r\n"
    for line in (b"", b"Sec-WebSocket-Protocol: mdserver.v1\r\n")
]


def garbage(rng: random.Random) -> bytes:
    """Random bytes, sometimes inside a good frame, sometimes a good command with a few changed."""
    kind = rng.randrange(4)
    if kind == 0:
        return rng.randbytes(rng.randrange(300))
    if kind == 1:
        return frame(rng.choice((TEXT, BINARY, CLOSE)), rng.randbytes(rng.randrange(120)))
    text = bytearray(b'{"op":"publish","subject":"/a/b","content":"x","fields":{"a":"b"}}')
    for _ in range(rng.randrange(3)):
        text[rng.randrange(len(text))] = rng.randrange(256)
    good = bytearray(frame(TEXT, bytes(text)))
    if kind == 3:
        good[rng.randrange(len(good))] = rng.randrange(256)
    return bytes(good)
