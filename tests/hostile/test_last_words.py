"""What the server says last reaches the client, and the server then ends the connection itself."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from attrs import evolve

from mdserver.limits import KB
from mdserver.server.settings import ServerSettings
from tests.server.raw import CLOSE, PING, TEXT, RawClient, close_payload, connected, frame, upgraded
from tests.server.serving import port_of, serving

LIMITED = evolve(ServerSettings(), connections_max=1)
REQUEST = (
    b"POST /rest/produce?subject=/a/b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 60000\r\n\r\n"
)
ENOUGH_S = 5.0  # ten times what the server lingers


@asynccontextmanager
async def refused() -> AsyncIterator[RawClient]:
    """A connection beyond the limit of connections."""
    async with (
        serving(LIMITED) as server,
        connected(port_of(server)),
        connected(port_of(server)) as client,
    ):
        yield client


async def test_503_reaches_a_client_that_has_sent_its_request() -> None:
    async with refused() as client:
        await client.send(REQUEST + b"x" * 60_000)
        answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"\r\nretry-after: 5\r\n" in answer.lower()


async def test_503_reaches_a_client_that_goes_on_sending() -> None:
    async with refused() as client:
        answer = await client.until(b"\r\n\r\n")
        await client.send(REQUEST)
        await client.send(b"x" * 60_000)
        assert answer.startswith(b"HTTP/1.1 503 ")
        await client.rest()


async def test_refused_clients_that_stay_are_closed_and_do_not_add_up() -> None:
    async with serving(LIMITED) as server, connected(port_of(server)):
        streams = [await trio.open_tcp_stream("127.0.0.1", port_of(server)) for _ in range(150)]
        with trio.fail_after(ENOUGH_S):
            for stream in streams:
                client = RawClient(stream)
                await client.rest()
                await stream.aclose()
        assert server.connections == 1


VIOLATIONS = {
    "a reserved bit": (frame(TEXT, b"x", reserved=4), 1002),
    "an unknown opcode": (frame(5, b"x"), 1002),
    "no mask": (frame(TEXT, b"x", mask=None), 1002),
    "a long ping": (frame(PING, b"x" * 126), 1002),
    "bytes that are no text": (frame(TEXT, b"\xff"), 1007),
    "a long message": (frame(TEXT, length=10**9), 1009),
    "a close frame": (frame(CLOSE, close_payload(1000)), 1000),
}


@pytest.mark.parametrize(("sent", "code"), VIOLATIONS.values(), ids=VIOLATIONS)
@pytest.mark.parametrize("more", [b"", b"y" * 20_000], ids=["silent", "sending on"])
async def test_the_server_ends_the_connection_after_its_close_frame(
    sent: bytes, code: int, more: bytes
) -> None:
    """The client neither closes nor shuts down: it waits for the server to do so."""
    async with serving() as server, upgraded(port_of(server)) as client:
        await client.send(sent + more)
        opcode, payload = await client.frame()
        assert (opcode, int.from_bytes(payload[:2], "big")) == (CLOSE, code)
        with trio.fail_after(ENOUGH_S):
            # Reading to the end raises nothing: it is a FIN and not a reset.
            assert await client.stream.receive_some(1) == b""
        await gone(server)


async def test_a_client_that_does_not_read_is_closed_after_a_violation() -> None:
    async with (
        serving(evolve(ServerSettings(), close_timeout=300_000_000)) as server,
        upgraded(port_of(server)) as client,
    ):
        client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KB)
        pings = frame(TEXT, b"[" + b",".join([b'{"op":"ping"}'] * 10_000) + b"]")
        await client.send(pings)
        await client.send(frame(TEXT, b"x", reserved=4))
        await gone(server)


async def gone(server: object) -> None:
    """Wait until the server has no connection any more."""
    with trio.fail_after(ENOUGH_S):
        while server.connections:  # type: ignore[attr-defined]
            await trio.testing.wait_all_tasks_blocked(0.01)


async def test_answers_have_a_reason_phrase_and_a_date() -> None:
    async with serving() as server, connected(port_of(server)) as client:
        await client.send(b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        head = await client.until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 404 Not Found\r\n")
        assert b" GMT\r\n" in head.lower().partition(b"date: ")[2].upper()
        await client.send(b"nonsense\r\n\r\n")
        head = await client.until(b"\r\n\r\n")
        assert b"HTTP/1.1 400 Bad Request\r\n" in head
        assert b"date: " in head.lower()
