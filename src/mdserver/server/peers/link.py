"""One open link to another member: a non-blocking socket, plain or TLS, and its queue.

A link is in one of three states, as an outbox is (`mdserver.server.clients.outbox`):

    empty --put--> dirty --flush, all sent--> empty
                     |
                     '--flush, sent in part--> blocked --drain, all sent--> empty

*dirty*: `_frames` wait for `flush`, which is called once after each dispatch. So all messages of a
step go out with one send, without a task switch.
*blocked*: the socket took less than there was. The rest of the bytes that were tried is `_unsent`;
messages that come meanwhile wait in `_frames`. The task in `drain` waits for the socket and sends
on. OpenSSL wants a refused write repeated with the same bytes, so `_unsent` changes only at its
beginning, and `flush` does nothing while there is any.

The queue is bounded (`Link.put`). A link that is closed may lose the end of what was put; the
members compare their logs in heartbeats for that reason (docs/cluster.md, "Messages").
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
    """A link after its handshake.

    `scope` is the cancel scope around its tasks; `close` cancels it and sets `closed` to the reason
    (None until then). `failed` says that a send did. `_size` is the number of bytes that were put
    and are not sent, `_largest` the size of the largest message since the link was empty.
    """

    __slots__ = (
        "_blocked",
        "_frames",
        "_largest",
        "_size",
        "_unsent",
        "closed",
        "failed",
        "peer",
        "scope",
        "sock",
    )

    def __init__(self, peer: str, sock: socket.socket) -> None:
        self.peer = peer
        self.sock = sock
        self.closed: str | None = None
        self.failed = False
        self.scope = trio.CancelScope()
        self._frames: list[bytes] = []
        self._size = 0
        self._largest = 0
        self._unsent = memoryview(b"")
        self._blocked = trio.Event()

    @property
    def waiting(self) -> int:
        """The number of bytes that were put and are not sent yet."""
        return self._size

    def put(self, data: bytes) -> bool:
        """Queue an encoded message; return whether the link became dirty, so needs a `flush`.

        Closes the link if more than `PEER_OUTBOX_BYTES_MAX` wait. The largest message does not
        count: the copy of a group may be larger than the bound, and there is no other way to send
        it.
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
        """End the link; the first reason counts."""
        self.closed = self.closed or reason
        self.scope.cancel()

    def flush(self) -> None:
        """Send what was put as far as the socket takes it, and leave the rest to `drain`."""
        if self.closed is None and not self._unsent:
            self._send()
            if self._unsent or self._frames:
                self._blocked.set()

    def _send(self) -> None:
        """Send until the socket takes no more, for at most `WRITES_PER_TURN` writes."""
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
            self.failed = True
            self.close(broken(error))

    async def drain(self) -> None:
        """Send the rest whenever the link is blocked, until cancelled.

        Closes the link if the socket takes no byte for `PEER_WRITE_TIMEOUT_S`.
        """
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
    """Wait for bytes and return a copy of them, empty at the end of the stream.

    `buffer` is used during the call only, so many links can share one. Raises OSError if the
    connection is broken.
    """
    while True:
        # OpenSSL may hold bytes that it has read already; the socket then stays silent.
        if not (isinstance(sock, ssl.SSLSocket) and sock.pending()):
            await trio.lowlevel.wait_readable(sock)
        view = memoryview(buffer)
        size = 0
        try:
            size = sock.recv_into(view)
            # OpenSSL returns one record at a time. After a full one there is probably another, and
            # a message should not take a scheduler pass for each 16 KiB.
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
    """Send all bytes, before the link is open. Raises OSError if the connection is broken."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[sock.send(rest[:WRITE_BYTES]) :]
        except WRITE_BLOCKED:
            await trio.lowlevel.wait_writable(sock)
