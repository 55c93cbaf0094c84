"""How the sockets of a server come about: over TCP, unless it is given others."""

import socket
from collections.abc import Awaitable, Callable

import trio
from attrs import frozen

from mdserver.config.values import Address
from mdserver.server.clients.listener import listen


async def dialed(address: Address) -> socket.socket:
    """A connection to a member. Raises OSError where there is none."""
    stream = await trio.open_tcp_stream(address.host, address.port)
    sock = socket.socket(fileno=stream.socket.detach())
    sock.setblocking(False)
    return sock


@frozen
class Network:
    """Where a server's sockets come from; all of them are non-blocking.

    `listen` makes the listening sockets of an address (StartError where that is not possible),
    `dial` a connection to another member (OSError where there is none).
    """

    listen: Callable[[Address], list[socket.socket]] = listen
    dial: Callable[[Address], Awaitable[socket.socket]] = dialed


TCP = Network()
