"""A client that sends what it likes: bytes over a socket, and frames written by hand."""

import base64
import os
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

TEXT, BINARY, CLOSE, PING, PONG, CONTINUATION = 1, 2, 8, 9, 10, 0
KEY = base64.b64encode(bytes(range(16)))


def upgrade(path: str = "/ws", *lines: str, key: bytes = KEY) -> bytes:
    """A good upgrade request, with these lines added."""
    head = [
        f"GET {path} HTTP/1.1",
        "Host: localhost",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key.decode()}",
        "Sec-WebSocket-Version: 13",
        *lines,
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n"


def frame(
    opcode: int,
    payload: bytes = b"",
    *,
    fin: bool = True,
    reserved: int = 0,
    mask: bytes | None = b"\x01\x02\x03\x04",
    length: int | None = None,
) -> bytes:
    """One client frame; `length` may lie, and `mask` None leaves out the mask."""
    first = (0x80 if fin else 0) | reserved << 4 | opcode
    size = len(payload) if length is None else length
    bit = 0x80 if mask is not None else 0
    if size < 126:
        head = bytes((first, bit | size))
    elif size < 65536:
        head = struct.pack("!BBH", first, bit | 126, size)
    else:
        head = struct.pack("!BBQ", first, bit | 127, size)
    if mask is None:
        return head + payload
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def close_payload(code: int, reason: bytes = b"") -> bytes:
    """What a close frame carries."""
    return struct.pack("!H", code) + reason


class RawClient:
    """Bytes in and out, and server frames one by one."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.received = b""

    @property
    def socket(self) -> trio.socket.SocketType:
        """The socket, below TLS if there is TLS."""
        stream = self.stream
        return (stream.transport_stream if isinstance(stream, trio.SSLStream) else stream).socket

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def _more(self) -> bool:
        try:
            data = await self.stream.receive_some(65536)
        except trio.BrokenResourceError:
            data = b""
        self.received += data
        return bool(data)

    async def until(self, mark: bytes) -> bytes:
        """Everything up to and with `mark`."""
        while mark not in self.received:
            assert await self._more(), f"the server ended after {self.received!r}"
        at = self.received.index(mark) + len(mark)
        found, self.received = self.received[:at], self.received[at:]
        return found

    async def rest(self) -> bytes:
        """Everything until the server closes the connection."""
        while await self._more():
            pass
        found, self.received = self.received, b""
        return found

    async def exactly(self, count: int) -> bytes:
        while len(self.received) < count:
            assert await self._more(), f"the server ended after {self.received!r}"
        found, self.received = self.received[:count], self.received[count:]
        return found

    async def frame(self) -> tuple[int, bytes]:
        """Opcode and payload of the server's next frame, which has to be whole and not masked."""
        first, second = await self.exactly(2)
        assert first & 0x70 == 0
        assert first & 0x80
        assert not second & 0x80
        length = second
        if length == 126:
            (length,) = struct.unpack("!H", await self.exactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", await self.exactly(8))
        return first & 0x0F, await self.exactly(length)

    async def closed_with(self) -> int:
        """The code of the server's close frame; nothing may come after it."""
        while True:
            opcode, payload = await self.frame()
            if opcode == CLOSE:
                break
        self.stream.socket.shutdown(trio.socket.SHUT_WR)
        assert await self.rest() == b""
        return struct.unpack("!H", payload[:2])[0] if payload else 1005


@asynccontextmanager
async def connected(
    port: int, timeout: float = 10, tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawClient]:
    """A TCP connection, encrypted with `tls`; the whole block has `timeout` seconds."""
    with trio.fail_after(timeout):
        stream: trio.abc.Stream = await trio.open_tcp_stream("127.0.0.1", port)
        if tls is not None:
            stream = trio.SSLStream(stream, tls, server_hostname="localhost", https_compatible=True)
        async with stream:
            yield RawClient(stream)


@asynccontextmanager
async def upgraded(
    port: int, *lines: str, timeout: float = 10, tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawClient]:
    """A WebSocket connection after its upgrade."""
    async with connected(port, timeout, tls) as client:
        await client.send(upgrade("/ws", *lines, key=base64.b64encode(os.urandom(16))))
        answer = await client.until(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 101 ")
        yield client
