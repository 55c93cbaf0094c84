"""One open link to another member: a non-blocking socket, plain or TLS, and what waits for it.

What was put goes out with one direct send at the end of the step that said it; a task waits for
the socket only where that took less than there was.
"""

import socket
import ssl

import trio

from mdserver.limits import PEER_OUTBOX_BYTES_MAX, PEER_WRITE_TIMEOUT_S
from mdserver.server.peers.mutual import broken
from mdserver.server.sockets import READ_BLOCKED, WRITE_BLOCKED, WRITE_BYTES

WRITES_PER_TURN = 16
TLS_RECORD_BYTES = 16 * 1024  # RFC 8446, 5.1


class Link:
    """A link after its handshake. `closed` is why it ended; `scope` then is cancelled."""

    __slots__ = (
        "_blocked",
        "_frames",
        "_largest",
        "_size",
        "_unsent",
        "closed",
        "peer",
        "scope",
        "sock",
    )

    def __init__(self, peer: str, sock: socket.socket) -> None:
        self.peer = peer
        self.sock = sock
        self.closed: str | None = None
        self.scope = trio.CancelScope()
        self._frames: list[bytes] = []
        self._size = 0
        self._largest = 0
        self._unsent = memoryview(b"")
        self._blocked = trio.Event()

    @property
    def waiting(self) -> int:
        """How many bytes were put and not sent yet."""
        return self._size

    def put(self, data: bytes) -> bool:
        """Have a message sent; True if `flush` has to be called.

        A link that takes too little for too long is closed. One message may be of any size.
        """
        first = not self._frames
        if not self._size:
            self._largest = 0
        self._frames.append(data)
        self._size += len(data)
        self._largest = max(self._largest, len(data))
        if self._size - self._largest > PEER_OUTBOX_BYTES_MAX:
            self.close("it reads too slowly")
        return first

    def close(self, reason: str) -> None:
        """End the link."""
        self.closed = self.closed or reason
        self.scope.cancel()

    def flush(self) -> None:
        """Send what was put, as far as the socket takes it; `drain` sends the rest."""
        if self.closed is None and not self._unsent:
            self._send()
            if self._unsent or self._frames:
                self._blocked.set()

    def _send(self) -> None:
        try:
            for _ in range(WRITES_PER_TURN):
                if not self._unsent:
                    if not self._frames:
                        return
                    self._unsent = memoryview(b"".join(self._frames))
                    self._frames.clear()
                sent = self.sock.send(self._unsent[:WRITE_BYTES])
                self._unsent = self._unsent[sent:]
                self._size -= sent
        except WRITE_BLOCKED:
            pass
        except OSError as error:
            self.close(broken(error))

    async def drain(self) -> None:
        """Send on whenever the socket took less than there was, until cancelled."""
        while True:
            await self._blocked.wait()
            while self.closed is None and (self._unsent or self._frames):
                with trio.move_on_after(PEER_WRITE_TIMEOUT_S) as waiting:
                    await trio.lowlevel.wait_writable(self.sock)
                if waiting.cancelled_caught:
                    self.close(f"it took no byte for {PEER_WRITE_TIMEOUT_S} s")
                self._send()
            self._blocked = trio.Event()


async def receive(sock: socket.socket, buffer: bytearray) -> bytes:
    """Wait for bytes and return them, empty at the end of the stream; `buffer` is free afterwards.

    Raises OSError if the connection is broken.
    """
    while True:
        if not (isinstance(sock, ssl.SSLSocket) and sock.pending()):
            await trio.lowlevel.wait_readable(sock)
        view = memoryview(buffer)
        size = 0
        try:
            size = sock.recv_into(view)
            # TLS gives one record at a time; behind a full one there is likely another.
            while size and not size % TLS_RECORD_BYTES and size < len(view):
                more = sock.recv_into(view[size:])
                if not more:
                    break
                size += more
        except READ_BLOCKED:
            if not size:
                continue
        return bytes(view[:size])


async def send_all(sock: socket.socket, data: bytes) -> None:
    """Send everything. Raises OSError if the connection is broken."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[sock.send(rest[:WRITE_BYTES]) :]
        except WRITE_BLOCKED:
            await trio.lowlevel.wait_writable(sock)
