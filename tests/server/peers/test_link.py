"""A link's writing over real sockets: nothing is lost, doubled or reordered, and all of it ends."""

import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from mdserver.codec.peer import Side
from mdserver.server.peers.link import WRITES_PER_TURN, Link, receive, send_all
from mdserver.server.peers.mutual import MutualIdentity
from mdserver.server.sockets import WRITE_BYTES
from mdserver.server.tls import KeyStore
from tests.server.certificates import Authority

FRAMES = [bytes([number % 251]) * (1 + number * 37 % 3000) for number in range(2000)]
PAUSE_EVERY = 50


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    pair = socket.socketpair()
    for end in pair:
        end.setblocking(False)
    yield pair
    for end in pair:
        end.close()


async def encrypted(
    ends: tuple[socket.socket, socket.socket], folder: Path
) -> tuple[socket.socket, socket.socket]:
    authority = Authority(folder / "authority.pem")
    identity = MutualIdentity(KeyStore(authority.issue(folder / "member.pem")), authority.file)
    shaken: dict[Side, socket.socket] = {}

    async def shake(side: Side, end: socket.socket) -> None:
        shaken[side] = await identity.encrypt(end, side)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(shake, Side.DIALER, ends[0])
        nursery.start_soon(shake, Side.LISTENER, ends[1])
    return shaken[Side.DIALER], shaken[Side.LISTENER]


async def read_all(sock: socket.socket, size: int) -> bytes:
    buffer = bytearray(1 << 16)
    received = b""
    with trio.fail_after(60):
        while len(received) < size:
            received += await receive(sock, buffer)
    return received


@pytest.mark.parametrize("tls", [False, True])
async def test_a_reader_that_lags_gets_every_byte_in_order(
    ends: tuple[socket.socket, socket.socket], tmp_path: Path, *, tls: bool
) -> None:
    near, far = await encrypted(ends, tmp_path) if tls else ends
    link = Link("b:1", near)
    total = sum(len(frame) for frame in FRAMES)
    with near, far:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.drain)
            for at in range(0, len(FRAMES), PAUSE_EVERY):
                wanted = [link.put(frame) for frame in FRAMES[at : at + PAUSE_EVERY]]
                assert not any(wanted[1:])  # one flush is enough for them all
                link.flush()
                await trio.lowlevel.checkpoint()
            received = await read_all(far, total)
            nursery.cancel_scope.cancel()
        assert hashlib.sha256(received).digest() == hashlib.sha256(b"".join(FRAMES)).digest()
        assert link.waiting == 0
        assert link.closed is None


async def test_one_flush_does_not_hold_the_loop_for_all_there_is(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    near, far = ends
    size = 4 * WRITES_PER_TURN * WRITE_BYTES
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * size)
    link = Link("b:1", near)
    link.put(bytes(size))
    link.flush()
    assert link.waiting >= size - WRITES_PER_TURN * WRITE_BYTES
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.drain)
        assert await read_all(far, size) == bytes(size)
        nursery.cancel_scope.cancel()


def test_a_link_for_which_too_much_waits_is_closed(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdserver.server.peers.link.PEER_OUTBOX_BYTES_MAX", 100)
    link = Link("b:1", ends[0])
    link.put(bytes(1000))
    link.put(bytes(100))
    assert link.closed is None, "one message may be of any size"
    link.put(bytes(1))
    assert link.closed == "it reads too slowly"
    assert link.scope.cancel_called


async def test_a_reader_that_takes_no_byte_is_given_up(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdserver.server.peers.link.PEER_WRITE_TIMEOUT_S", 0.05)
    link = Link("b:1", ends[0])
    link.put(bytes(8 << 20))
    link.flush()
    with trio.fail_after(60), link.scope:
        await link.drain()
    assert link.closed == "it took no byte for 0.05 s"


async def test_a_broken_connection_closes_the_link_with_its_reason(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    near, far = ends
    far.close()
    link = Link("b:1", near)
    link.put(b"x")
    link.flush()
    assert link.closed == "Broken pipe"
    with pytest.raises(OSError, match="Broken pipe"):
        await send_all(near, b"x")
