"""Connections of a simulated network under sockets of the server's own kind.

Each end is one of a pair of local sockets; the server has the other one. What the server sends is
taken out here, goes its way in simulated time, in pieces that are cut anywhere, and is put in at
the other end. Local sockets of one process pass on what they get at once, so nothing depends on the
machine.
"""

import math
import random
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import trio

from mdserver.config.values import Address

BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError)


class Name(Address):
    """An address of the simulated network: members know each other by their host alone."""

    def __str__(self) -> str:
        return self.host


class Door(socket.socket):
    """A listening socket: `arrive` queues a connection, `accept` takes it."""

    def __init__(self, address: Address) -> None:
        ours, self._bell = socket.socketpair()
        super().__init__(fileno=ours.detach())
        self.setblocking(False)
        self._address = address
        self._queue: deque[tuple[socket.socket, str]] = deque()

    def arrive(self, sock: socket.socket, where: str) -> None:
        """Somebody connects from an address."""
        self._queue.append((sock, where))
        self._bell.send(b"!")

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        """The next connection. Raises BlockingIOError where there is none."""
        self.recv(1)
        sock, where = self._queue.popleft()
        return sock, (where, 0)

    def getsockname(self) -> tuple[str, int]:
        """The address, as it is named in the simulated network."""
        return self._address.host, self._address.port

    @property
    def closed(self) -> bool:
        """Whether nobody accepts any more."""
        return self.fileno() < 0

    def close(self) -> None:
        """Nobody is accepted any more."""
        self._bell.close()
        for sock, _ in self._queue:
            sock.close()
        self._queue.clear()
        super().close()


class Carried(socket.socket):
    """A server's socket of the simulated network, where the other side has a name."""

    where = ""

    def getpeername(self) -> tuple[str, int]:
        """Where the other side is, as it is named in the simulated network."""
        return self.where, 0


class End:
    """One end of a connection: `theirs` is the server's socket, `said` gets what it sends.

    The end of the stream is b"", in both directions.
    """

    def __init__(self, said: Callable[[bytes], None], where: str = "") -> None:
        self.said = said
        theirs, self._ours = socket.socketpair()
        self.theirs = Carried(fileno=theirs.detach())
        self.theirs.setblocking(False)
        self.theirs.where = where
        self._put, self._waiting = trio.open_memory_channel[bytes](math.inf)
        self._scope = trio.CancelScope()

    def put(self, data: bytes) -> None:
        """Have the server receive something."""
        self._put.send_nowait(data)

    def close(self) -> None:
        """The connection is over; what was put and not taken yet is lost."""
        self._scope.cancel()

    async def run(self) -> None:
        """Carry bytes until `close`."""
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(self._ours))
        with self._scope:
            async with stream, trio.open_nursery() as nursery:
                nursery.start_soon(self._write, stream)
                with suppress(*BROKEN):
                    async for data in stream:
                        self.said(bytes(data))
                self.said(b"")

    async def _write(self, stream: trio.SocketStream) -> None:
        with suppress(*BROKEN):
            async for data in self._waiting:
                if data:
                    await stream.send_all(data)
                else:
                    await stream.send_eof()


def pieces(data: bytes, rng: random.Random) -> list[bytes]:
    """Bytes as they may arrive: cut anywhere, or not at all. The end of a stream stays one."""
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(3)))
    return [data[a:b] for a, b in pairwise((0, *cuts, len(data))) if a < b] or [data]
