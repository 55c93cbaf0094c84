"""One connection of a client: its socket, its time, and the protocol that is spoken on it.

A connection begins with HTTP (`requests.py`). A request may turn it into a session, over WebSocket
(`websocket_session.py`) or as an answer without end (`stream_session.py`); then the connection is
that session until it ends. There is one task and one nursery a connection. The task is blocked in
`wait_readable` nearly all the time; a second one runs only while the outbox is parked. What is due
some time is one entry of the timer wheel, whichever protocol is spoken.
"""

import socket
import ssl
from typing import Protocol

import trio

from mdserver import limits
from mdserver.server.clients.budget import Share
from mdserver.server.clients.context import ServerContext
from mdserver.server.clients.proxies import Proxied
from mdserver.server.clients.rates import Meter
from mdserver.server.sockets import READ_BLOCKED, WRITE_BLOCKED
from mdserver.server.tls import say_goodbye

DISCARD_BYTES_MAX = 1024 * 1024
CROWDED = "The server has too much that is not complete: try again later."


class SpokenProtocol(Protocol):
    """What is spoken on a connection at the moment."""

    def timer_due(self, now: int) -> None:
        """Do what is due: the connection's time is up."""

    def connection_ended(self) -> None:
        """Clean up. The socket is closed; may be called when all is cleaned up already."""


class Connection:
    """Owns its socket. `last_received` (ns) is when the client was heard last, or the server did
    not want to hear it; `unfinished` what is held of input that is not complete.
    """

    __slots__ = (
        "address",
        "context",
        "last_received",
        "meter",
        "nursery",
        "protocol",
        "proxied",
        "sock",
        "unfinished",
    )

    def __init__(
        self,
        sock: socket.socket,
        address: str,
        context: ServerContext,
        proxied: Proxied | None = None,
    ) -> None:
        self.sock = sock
        self.address = address
        self.context = context
        self.proxied = proxied
        self.protocol: SpokenProtocol | None = None
        self.nursery: trio.Nursery | None = None
        self.meter: Meter | None = context.rates.of(address)
        self.unfinished = Share(context.unfinished, limits.UNFINISHED_FREE_BYTES, stranger=True)
        self.last_received = 0

    @property
    def secure(self) -> bool:
        """Whether it is encrypted."""
        return isinstance(self.sock, ssl.SSLSocket)

    def timer_due(self, now: int) -> None:
        """Have the protocol do what is due; before there is one the client was too slow."""
        if self.protocol is None:
            self.abort()
        else:
            self.protocol.timer_due(now)

    def give_time(self, duration: int) -> None:
        """Have the timer due in `duration` (ns), and count the client as heard now."""
        context = self.context
        self.last_received = context.clock()
        context.engine.set_timer(self, self.last_received + duration)

    def excuse_silence(self) -> None:
        """Count the client as heard: one that the server does not read from is not silent."""
        self.last_received = self.context.clock()

    def comes_from(self, client: str) -> None:
        """Count what comes from now on for another client: its proxy says so."""
        if client != self.address:
            self.address = client
            self.meter = self.context.rates.of(client)

    def abort(self) -> None:
        """End the connection now."""
        if self.nursery is not None:
            self.nursery.cancel_scope.cancel()

    def close(self) -> None:
        """Close the socket, and give back everything that the connection holds."""
        if isinstance(self.sock, ssl.SSLSocket):
            say_goodbye(self.sock)
        self.sock.close()
        self.unfinished.hold(0)
        self.context.engine.cancel_timer(self)
        if self.protocol is not None:
            self.protocol.connection_ended()

    async def receive(self) -> bytes:
        """Wait for bytes and return them; empty at the end of the stream. Raises OSError."""
        sock = self.sock
        context = self.context
        while True:
            # OpenSSL may hold bytes that it has read already: nothing more need come to the socket.
            if not (isinstance(sock, ssl.SSLSocket) and sock.pending()):
                await trio.lowlevel.wait_readable(sock)
            try:
                size = sock.recv_into(context.buffer)
            except READ_BLOCKED:
                continue
            self.last_received = context.clock()
            sessions = context.sessions
            sessions.traffic.received += size
            if self.meter is not None:
                self.meter.take(bytes_=size)
            sessions.turn.begin()
            return bytes(memoryview(context.buffer)[:size])

    async def send_all(self, wire: bytes) -> None:
        """Send bytes before there is an outbox; the timer bounds how long. Raises OSError."""
        rest = memoryview(wire)
        while rest:
            try:
                rest = rest[self.sock.send(rest) :]
            except WRITE_BLOCKED:
                await trio.lowlevel.wait_writable(self.sock)
        self.context.sessions.traffic.sent += len(wire)

    async def linger(self, duration: int) -> None:
        """Let the client read what was sent last: closing on unread bytes would reset it away.

        This side has nothing more to send and says so; what the client still sends within
        `duration` (ns) is read and thrown away. Then the timer ends the connection.
        """
        self.give_time(duration)
        if isinstance(self.sock, ssl.SSLSocket):
            say_goodbye(self.sock)
        self.sock.shutdown(socket.SHUT_WR)
        await self.discard()

    async def discard(self) -> None:
        """Throw away what comes, until the end of the stream or too much of it."""
        discarded = 0
        while discarded < DISCARD_BYTES_MAX and (received := await self.receive()):
            discarded += len(received)
