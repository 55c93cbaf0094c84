"""The fault proxy alters nothing: not one byte is lost, changed or out of place before a cut."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from simulation.chaos.proxy import Proxy, Route

SIZE = 300_000


async def echo(stream: trio.SocketStream) -> None:
    """Send everything back."""
    try:
        async with stream:
            while data := await stream.receive_some():
                await stream.send_all(data)
    except trio.BrokenResourceError:
        pass


@asynccontextmanager
async def through_a_proxy(
    identify: object = None,
) -> AsyncIterator[tuple[trio.SocketStream, Proxy]]:
    """A connection to an echoing server through a proxy."""
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(partial(trio.serve_listeners, echo, [listener]))
        proxy = Proxy(listener.socket.getsockname()[:2], identify=identify)  # type: ignore[arg-type]
        await nursery.start(proxy.run)
        with trio.fail_after(60):
            async with await trio.open_tcp_stream(*proxy.address) as stream:
                yield stream, proxy
        nursery.cancel_scope.cancel()


async def receive(stream: trio.SocketStream, size: int) -> bytes:
    received = b""
    while len(received) < size:
        data = await stream.receive_some(size - len(received))
        assert data, f"the end after {len(received)} of {size} bytes"
        received += data
    return received


async def restless(route: Route, rng: random.Random) -> None:
    """Delays and holds that change all the time."""
    while True:
        weather = rng.choice((route.forth, route.back))
        weather.set(delay_s=rng.choice((0.0, 0.001, 0.01)), held=rng.random() < 0.4)
        await trio.sleep(rng.random() / 200)


async def test_bytes_come_through_any_weather_unaltered() -> None:
    rng = random.Random(1)
    sent = rng.randbytes(SIZE)
    async with through_a_proxy() as (stream, proxy), trio.open_nursery() as nursery:
        nursery.start_soon(restless, proxy.route(), rng)
        nursery.start_soon(stream.send_all, sent)
        assert await receive(stream, SIZE) == sent
        assert proxy.route().forth.passed == proxy.route().back.passed == SIZE
        nursery.cancel_scope.cancel()


async def test_the_end_of_a_stream_is_passed_on() -> None:
    async with through_a_proxy() as (stream, _):
        await stream.send_all(b"last words")
        await stream.send_eof()
        assert await receive(stream, 10) == b"last words"
        assert await stream.receive_some() == b""


async def test_what_is_held_waits_and_comes_when_it_is_let_go() -> None:
    async with through_a_proxy() as (stream, proxy):
        await stream.send_all(b"a")
        assert await receive(stream, 1) == b"a"
        proxy.route().back.set(held=True)
        await stream.send_all(b"b")
        with trio.move_on_after(0.2) as silence:
            await stream.receive_some()
        assert silence.cancelled_caught
        assert proxy.route().forth.passed == 2
        proxy.route().back.set(held=False)
        assert await receive(stream, 1) == b"b"


async def test_a_delay_is_at_least_as_long_as_asked_for() -> None:
    async with through_a_proxy() as (stream, proxy):
        proxy.route().forth.set(delay_s=0.1)
        proxy.route().back.set(delay_s=0.1)
        began = trio.current_time()
        await stream.send_all(b"a")
        assert await receive(stream, 1) == b"a"
        assert trio.current_time() - began >= 0.2


async def test_a_cut_falls_on_its_byte_and_is_a_reset() -> None:
    async with through_a_proxy() as (stream, proxy):
        await stream.send_all(b"x" * 10)
        assert await receive(stream, 10) == b"x" * 10
        proxy.route().back.set(delay_s=0.2)
        await stream.send_all(b"0123456789")
        assert proxy.route().cut(7) == 1
        received = b""
        with pytest.raises(trio.BrokenResourceError):
            received += await receive(stream, 10)
        # A reset may overtake what was sent before it, but nothing beyond the cut was sent.
        assert b"0123456".startswith(received)
        assert proxy.route().forth.passed + proxy.route().back.passed == 20 + 7
        assert not proxy.route().connections


async def test_callers_are_told_apart_by_their_first_bytes() -> None:
    def name(first: bytes) -> str | None:
        return first.partition(b"\n")[0].decode() if b"\n" in first else None

    async with through_a_proxy(name) as (stream, proxy):
        proxy.route("mary").back.set(held=True)
        await stream.send_all(b"pe")
        await stream.send_all(b"ter\nhello")
        assert await receive(stream, 11) == b"peter\nhello"
        assert list(proxy.routes) == ["mary", "peter"]
        async with await trio.open_tcp_stream(*proxy.address) as mary:
            await mary.send_all(b"mary\n")
            with trio.move_on_after(0.2) as silence:
                await mary.receive_some()
            assert silence.cancelled_caught
            proxy.route("mary").back.set(held=False)
            assert await receive(mary, 5) == b"mary\n"


async def test_a_door_that_reads_nothing_stops_the_sender_until_it_reads_again() -> None:
    sent = 0

    async def pour(stream: trio.SocketStream) -> None:
        nonlocal sent
        while True:
            await stream.send_all(b"x" * 1000)
            sent += 1000

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(partial(trio.serve_listeners, pour, [listener]))
        proxy = Proxy(listener.socket.getsockname()[:2], narrow=True)
        await nursery.start(proxy.run)
        with trio.fail_after(60):
            async with await trio.open_tcp_stream(*proxy.address) as stream:
                await receive(stream, SIZE)
                proxy.route().back.set(unread=True)
                before = -1
                while before != sent:  # until nothing more is taken
                    before = sent
                    await trio.sleep(0.2)
                passed = proxy.route().back.passed
                proxy.route().back.set(unread=False)
                await receive(stream, sent + SIZE - passed)
        assert sent > passed
        nursery.cancel_scope.cancel()
