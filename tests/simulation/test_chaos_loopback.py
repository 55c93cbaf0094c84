"""The network of proxies: who calls is told by the greeting, and blocks have a direction."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio

from mdserver.codec.frames import frame
from mdserver.codec.peer import MESSAGE, Greeting, Handshake, Side, Terms
from simulation.chaos.loopback import Loopback, caller
from simulation.chaos.wire import text


def greeting(member: str) -> bytes:
    """What a dialing member says first."""
    said = Greeting(member, b"n" * 32)
    terms = Terms(4, [member], "Guaranteed")
    return Handshake(Side.DIALER, said, terms, "secret").begin()


def test_a_caller_is_known_by_its_greeting_however_it_is_cut() -> None:
    said = greeting("127.0.0.1:7")
    assert [caller(said[:size]) for size in range(len(said))] == [None] * len(said)
    assert caller(said) == caller(said + frame(MESSAGE, b"more")) == "127.0.0.1:7"
    assert caller(b"GET / HTTP/1.1\r\n" * 9) == "a stranger"


async def echo(stream: trio.SocketStream) -> None:
    async with stream:
        while data := await stream.receive_some():
            await stream.send_all(data)


@asynccontextmanager
async def a_link() -> AsyncIterator[tuple[Loopback, trio.SocketStream, int]]:
    """Member 0 calls member 1, which echoes; and how many bytes came back already."""
    wire = Loopback(2)
    async with trio.open_nursery() as nursery:
        await nursery.start(wire.run)
        host, port = wire.bind(1)
        serve = partial(trio.serve_tcp, echo, port, host=host)
        await nursery.start(serve)
        said = greeting(text(wire.peer(0)))
        with trio.fail_after(30):
            async with await trio.open_tcp_stream(*wire.peer(1)) as stream:
                await stream.send_all(said)
                await receive(stream, len(said))
                yield wire, stream, len(said)
        nursery.cancel_scope.cancel()


async def receive(stream: trio.SocketStream, size: int) -> None:
    while size:
        data = await stream.receive_some(size)
        assert data
        size -= len(data)


async def silent(stream: trio.SocketStream) -> bool:
    """Whether nothing comes for a while."""
    with trio.move_on_after(0.2) as silence:
        await stream.receive_some()
    return silence.cancelled_caught


async def test_a_blocked_pair_is_blocked_in_its_direction_alone() -> None:
    async with a_link() as (wire, stream, passed):
        (route,) = [route for proxy in wire.proxies for route in proxy.routes.values()]
        for pair, reached in (((0, 1), 0), ((1, 0), 1)):
            before = route.forth.passed
            await wire.block([pair])
            await stream.send_all(b"x")
            assert await silent(stream)
            assert route.forth.passed - before == reached
            await wire.block([])
            await receive(stream, 1)
        assert route.back.passed == passed + 2


async def test_a_cut_breaks_the_links_of_its_member() -> None:
    async with a_link() as (wire, stream, _):
        await wire.cut(0, 2)
        await stream.send_all(b"x" * 100)
        received = b""
        try:
            while data := await stream.receive_some():
                received += data
        except trio.BrokenResourceError:
            pass
        assert len(received) < 100
