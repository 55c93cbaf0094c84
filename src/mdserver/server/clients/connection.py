"""One connection of a client: its socket, its timer, and the protocol that is spoken on it.

    accepted --TLS, if configured--> HTTP --upgrade--> WebSocket session --> closed
                                      |  '--stream---> stream session -----> closed
                                      '--------------------------------------> closed

A connection begins with HTTP (`requests.py`). A request may turn it into a session, over WebSocket
(`websocket_session.py`) or as an answer without end (`stream_session.py`). The connection then is
that session until it ends; it never goes back to HTTP.

A server holds tens of thousands of connections, so each of them is kept small. It has one task,
which is blocked in `wait_readable` nearly all the time, and a cancel scope, but no nursery, which
would take half a kilobyte. A second task runs only while the outbox is parked, in the nursery of
the server (`drain_with`). All its time-outs are one entry of the timer wheel: each protocol gives
the timer the meaning that it needs at the moment (`SpokenProtocol.timer_due`).
"""

import socket
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from mdserver import limits
from mdserver.server.clients import refusals
from mdserver.server.clients.budget import Share
from mdserver.server.clients.context import ServerContext
from mdserver.server.clients.proxies import Proxied
from mdserver.server.clients.rates import Meter
from mdserver.server.encrypted import EncryptedSocket
from mdserver.server.sockets import READ_BLOCKED, WRITE_BYTES

DISCARD_BYTES_MAX = 1024 * 1024
CROWDED = "The server has too much that is not complete: try again later."


class SpokenProtocol(Protocol):
    """The protocol that is spoken on a connection at the moment."""

    def timer_due(self, now: int) -> None:
        """Act on the connection's timer, which is due at `now` (ns)."""

    def connection_ended(self) -> None:
        """Clean up after the socket was closed; does nothing if that was done already."""


class Connection:
    """One connection; it owns its socket.

    `protocol` is None until the TLS handshake is done. `last_received` (ns) is when something was
    received last, or when the server last chose not to read. `unfinished` is the memory for input
    that is not complete yet. `meter` measures the rates of the client, if there are limits. `scope`
    is that of its task, `draining` counts those beside it that wait to send more: a second one may
    begin before the first has ended.
    """

    __slots__ = (
        "address",
        "context",
        "draining",
        "last_received",
        "meter",
        "protocol",
        "proxied",
        "scope",
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
        self.sock: socket.socket | EncryptedSocket = sock
        self.address = address
        self.context = context
        self.proxied = proxied
        self.protocol: SpokenProtocol | None = None
        self.scope: trio.CancelScope | None = None
        self.draining = 0
        self.meter: Meter | None = context.rates.of(address)
        self.unfinished = Share(context.unfinished, limits.UNFINISHED_FREE_BYTES, stranger=True)
        self.last_received = 0

    @property
    def secure(self) -> bool:
        """Whether the connection is encrypted."""
        return isinstance(self.sock, EncryptedSocket)

    @property
    def plain(self) -> socket.socket:
        """The socket below TLS, if there is TLS."""
        return self.sock.plain if isinstance(self.sock, EncryptedSocket) else self.sock

    def timer_due(self, now: int) -> None:
        """Hand the timer to the protocol."""
        if self.protocol is None:
            self.refuse("no TLS connection", "The TLS handshake took too long.")
            self.abort()
        else:
            self.protocol.timer_due(now)

    def refuse(self, what: str, reason: object) -> None:
        """Tell operators that the client was refused, and count it."""
        refusals.tell(self.address, what, reason)
        self.context.sessions.measures.refuse(what)

    def give_time(self, duration: int) -> None:
        """Set the timer to `duration` (ns) from now, and count the client as heard now."""
        context = self.context
        self.last_received = context.clock()
        context.engine.set_timer(self, self.last_received + duration)

    def excuse_silence(self) -> None:
        """Count the client as heard now, because the server itself did not read from it."""
        self.last_received = self.context.clock()

    def comes_from(self, client: str) -> None:
        """Count what is received from now on for another client, the one that the proxy names."""
        if client != self.address:
            self.address = client
            self.meter = self.context.rates.of(client)

    def abort(self) -> None:
        """End the connection at once, by cancelling its task."""
        if self.scope is not None:
            self.scope.cancel()

    @property
    def ending(self) -> bool:
        """Whether the connection was aborted or closed, so that nothing more is to be sent."""
        return (self.scope is not None and self.scope.cancel_called) or self.sock.fileno() < 0

    def drain_with(self, drain: Callable[[], Awaitable[None]]) -> None:
        """Run `drain` in a task beside the reader, until it returns or the connection ends."""
        tasks = self.context.sessions.tasks
        assert tasks is not None, "the server runs"
        self.draining += 1
        tasks.start_soon(self._drain_beside, drain)

    async def _drain_beside(self, drain: Callable[[], Awaitable[None]]) -> None:
        """Have a failure of `drain` end the connection, and nothing else."""
        try:
            await drain()
        except (OSError, trio.ClosedResourceError):
            self.abort()  # the client is gone, or the reader has closed the socket
        except Exception:
            self.context.log.exception("connection failed", address=self.address)
            self.abort()
        finally:
            self.draining -= 1

    def close(self) -> None:
        """Close the socket and release everything that the connection holds."""
        if isinstance(self.sock, EncryptedSocket):
            self.sock.say_goodbye()
        if self.draining:
            trio.lowlevel.notify_closing(self.sock)  # ends the tasks that wait for it
        self.sock.close()
        self.unfinished.hold(0)
        self.context.engine.cancel_timer(self)
        protocol, self.protocol = self.protocol, None  # it refers to the connection
        if protocol is not None:
            protocol.connection_ended()

    async def receive(self) -> bytes:
        """Wait for bytes and return them, empty at the end of the stream.

        They are read into a buffer that all connections share, so an idle connection holds none.
        Raises OSError if the connection is broken.
        """
        sock = self.sock
        context = self.context
        while True:
            # What was decrypted with the handshake is there already.
            if not (isinstance(sock, EncryptedSocket) and sock.pending()):
                await trio.lowlevel.wait_readable(sock)
            try:
                size = sock.recv_into(context.buffer)
            except READ_BLOCKED:
                continue
            self.last_received = context.clock()
            sessions = context.sessions
            sessions.traffic.received += size
            if self.meter is not None:
                # With TLS that is what came, so that records of almost no data are not free.
                self.meter.take(bytes_=sock.cost if isinstance(sock, EncryptedSocket) else size)
            sessions.turn.begin()
            return bytes(memoryview(context.buffer)[:size])

    async def send_all(self, wire: bytes) -> None:
        """Send all bytes, before there is an outbox. The timer bounds how long that takes.

        Raises OSError if the connection is broken.
        """
        sock = self.sock
        if isinstance(sock, EncryptedSocket):
            for start in range(0, len(wire), WRITE_BYTES):
                records = sock.seal(wire[start : start + WRITE_BYTES])
                sock.halfway = True  # also if this task is cancelled meanwhile
                await self._send_all(records)
                sock.halfway = False
        else:
            await self._send_all(wire)
        self.context.sessions.traffic.sent += len(wire)

    async def _send_all(self, data: bytes) -> None:
        """Send all bytes to the plain socket. Raises OSError."""
        plain, rest = self.plain, memoryview(data)
        while rest:
            try:
                rest = rest[plain.send(rest) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(plain)

    async def linger(self, duration: int) -> None:
        """Close this side's half, and read on so that the client gets what was sent last.

        A close with unread bytes would make the kernel reset the connection, and the client might
        lose the last answer. What the client still sends within `duration` (ns) is discarded; then
        the timer ends the connection.
        """
        self.give_time(duration)
        if isinstance(self.sock, EncryptedSocket):
            self.sock.say_goodbye()
        self.sock.shutdown(socket.SHUT_WR)
        await self.discard()

    async def discard(self) -> None:
        """Discard what is received, until the end of the stream or `DISCARD_BYTES_MAX`."""
        discarded = 0
        while discarded < DISCARD_BYTES_MAX and (received := await self.receive()):
            discarded += len(received)
