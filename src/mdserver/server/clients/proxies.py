"""Connections that come through a proxy: which client they belong to and are counted for."""

import socket
from typing import Protocol

import trio

from mdserver.codec.http import Request, RequestRefusedError
from mdserver.codec.proxy import (
    FIXED_BYTES,
    ProxyHeader,
    ProxyHeaderError,
    forwarded_client,
    parse_fixed,
)
from mdserver.config.values import Network
from mdserver.core.entitlement import within

RETRY_AFTER = (b"retry-after", b"5")


class AddressCounts(Protocol):
    """The connections of each address."""

    def move(self, old: str | None, new: str) -> str | None:
        """Count a connection for another address, or return the reason why that is refused."""


class Proxied:
    """The client that a connection of a listed proxy belongs to; each request may name another.

    Until the client is known the connection is counted for no address, only in total. `counted` is
    the address that it is counted for.
    """

    __slots__ = ("_counts", "_proxies", "_through", "counted")

    def __init__(self, counts: AddressCounts, proxies: tuple[Network, ...], peer: str) -> None:
        self._counts = counts
        self._proxies = proxies
        self._through = peer
        self.counted: str | None = None

    def announced(self, client: str) -> str | None:
        """Take the client of a PROXY header; return the reason if that client is refused."""
        self._through = client
        return self._count(client)

    def client_of(self, request: Request) -> str:
        """Return the address that a request comes from, and count the connection for it.

        Raises RequestRefusedError: 400 for a malformed header, 503 at the limit of connections.
        """
        client = self._through
        forwarded = request.header(b"x-forwarded-for")
        # `X-Forwarded-For` counts only if a listed proxy sent it. The address of the PROXY header
        # may be that of the client itself, which could write anything into the request.
        if forwarded is not None and self._listed(client):
            client = forwarded_client(forwarded, self._listed)
        refusal = self._count(client)
        if refusal is not None:
            raise RequestRefusedError(503, refusal, [RETRY_AFTER])
        return client

    def _listed(self, address: str) -> bool:
        return within(address, self._proxies)

    def _count(self, client: str) -> str | None:
        refusal = self._counts.move(self.counted, client)
        if refusal is None:
            self.counted = client
        return refusal


async def read_header(sock: socket.socket) -> str | None:
    """Read a PROXY header and no byte more; return the client's address if the header has one.

    Raises ProxyHeaderError for anything else, EOFError if the stream ends before the first byte.
    """
    fixed = await _read(sock, FIXED_BYTES)
    if not fixed:
        raise EOFError
    header: ProxyHeader = parse_fixed(fixed)
    rest = await _read(sock, header.rest)
    if len(rest) < header.rest:
        raise ProxyHeaderError("A PROXY header is cut off.")
    return header.client(rest)


async def _read(sock: socket.socket, size: int) -> bytes:
    """Read `size` bytes, or fewer at the end of the stream."""
    received = b""
    while len(received) < size:
        await trio.lowlevel.wait_readable(sock)
        try:
            part = sock.recv(size - len(received))
        except BlockingIOError:
            continue
        if not part:
            break
        received += part
    return received
