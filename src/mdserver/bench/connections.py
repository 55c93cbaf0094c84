"""Very many clients in one process, cheaper than any server.

The load must cost less than what it measures. So sockets are plain and non-blocking, one epoll
serves them all with level-triggered reads, and bytes that another subscriber has already received
are verified by one comparison (`verify`).
"""

import errno
import os
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from mdserver.bench.opening import Opening, Talk, answered, pinged
from mdserver.bench.processes import BenchError
from mdserver.bench.target import ServerAddress
from mdserver.bench.verify import ReceivedStream, Verifier
from mdserver.codec.encoding import ClientCodec
from mdserver.limits import KB

OPENING_TIMEOUT_S = 30.0
PER_SOURCE_ADDRESS = 20_000  # connections of one client address: fewer than it has ports for them
_buffer = memoryview(bytearray(256 * KB))  # shared by all connections, which are read in turn
_EVENTS_PER_POLL = 64  # so that the clock is read at least every 64 reads


class LoadConnection:
    """A socket, what it has received, and the talk by which it opens.

    `talk` is None once the connection is open; `ready` means that TCP and TLS are established.
    """

    __slots__ = ("connected", "ready", "socket", "stream", "talk")

    def __init__(self, connecting: socket.socket, stream: ReceivedStream, talk: Talk) -> None:
        self.socket = connecting
        self.stream = stream
        self.talk: Talk | None = talk
        self.connected = False
        self.ready = False


class Connections:
    """Connections to these servers in turn, checked by one verifier; closed with the block.

    With `resume` all but the first resume its TLS session, as clients do that come back.
    `receive_bytes` is the size of their receive buffers, if it is not the system's.
    """

    def __init__(
        self,
        addresses: Sequence[ServerAddress],
        make_codec: Callable[[], ClientCodec],
        verifier: Verifier,
        tls: ssl.SSLContext | None = None,
        resume: bool = False,
        receive_bytes: int | None = None,
    ) -> None:
        self._addresses = addresses
        self._make_codec = make_codec
        self._verifier = verifier
        self._tls = tls
        self._resume = resume
        self._receive_bytes = receive_bytes
        self._session: ssl.SSLSession | None = None
        self._epoll = select.epoll()
        self._by_fd: dict[int, LoadConnection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._by_fd.values():
            connection.socket.close()
        self._epoll.close()

    @property
    def streams(self) -> list[ReceivedStream]:
        """What each subscriber has received."""
        return [connection.stream for connection in self]

    @property
    def resumed(self) -> int:
        """How many connections resumed a TLS session."""
        socks = [connection.socket for connection in self]
        return sum(1 for sock in socks if isinstance(sock, ssl.SSLSocket) and sock.session_reused)

    def __iter__(self) -> Iterator[LoadConnection]:
        return iter(self._by_fd.values())

    def open(self, count: int, opening: Opening, window: int = 64) -> float:
        """Open this many more connections, `window` at a time; return the seconds that it took.

        Raises BenchError if one is refused, or if none makes progress for 30 s.
        """
        begun = time.perf_counter()
        waiting, under_way = count, 0
        while waiting or under_way:
            for _ in range(min(window - under_way, waiting)):
                self._connect(opening)
                waiting -= 1
                under_way += 1
            for connection in self._ready(f"{under_way} connections stand still in opening"):
                under_way -= self._step(connection)
        return time.perf_counter() - begun

    def fence(self) -> None:
        """Ping on every connection and wait for all answers, so that what was under way arrives."""
        for connection in self._by_fd.values():
            connection.talk = pinged(connection.stream, self._verifier)
            connection.socket.send(next(connection.talk))
        waiting = len(self._by_fd)
        while waiting:
            for connection in self._ready(f"{waiting} subscribers got no answer to a ping"):
                waiting -= self._step(connection)

    def drain(self) -> None:
        """Take what is there without waiting; raise BenchError if a server refused something.

        Other servers acknowledge publications or ping, and stop when nobody reads that.
        """
        for fd, _ in self._epoll.poll(0, _EVENTS_PER_POLL):
            connection = self._by_fd[fd]
            self._verifier.received(connection.stream, _read(connection))
            answered(connection.stream)

    def receive(
        self, deliveries: int, timeout_s: float, arrived: Callable[[int], None] | None = None
    ) -> int:
        """Read until the subscribers advanced by this many messages; return how many are missing.

        Messages are missing when nothing has come for `timeout_s`. `arrived` is called after each
        round of reads with the number of messages in it. Raises BenchError if a connection ends.
        """
        poll, by_fd, received = self._epoll.poll, self._by_fd, self._verifier.received
        missing = deliveries
        while missing > 0:
            events = poll(timeout_s, _EVENTS_PER_POLL)
            if not events:
                break
            got = 0
            for fd, _ in events:
                connection = by_fd[fd]
                got += received(connection.stream, _read(connection))
            missing -= got
            if arrived is not None:
                arrived(got)
        return missing

    def _ready(self, otherwise: str) -> list[LoadConnection]:
        events = self._epoll.poll(OPENING_TIMEOUT_S, _EVENTS_PER_POLL)
        if not events:
            raise BenchError(otherwise)
        return [self._by_fd[fd] for fd, _ in events]

    def _connect(self, opening: Opening) -> None:
        subscriber = len(self._by_fd)
        address = self._addresses[subscriber % len(self._addresses)]
        connecting = socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET)
        connecting.setblocking(False)
        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._receive_bytes is not None:
            connecting.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_bytes)
        stream = ReceivedStream(subscriber, self._make_codec(), connecting.send)
        talk = opening(stream, self._verifier)
        self._by_fd[connecting.fileno()] = LoadConnection(connecting, stream, talk)
        if subscriber >= PER_SOURCE_ADDRESS and address.loopback:
            connecting.bind((f"127.0.0.{1 + subscriber // PER_SOURCE_ADDRESS}", 0))
        try:
            status = connecting.connect_ex((address.host, address.port))
        except socket.gaierror as error:
            raise BenchError(f"cannot connect to {address}: {error.strerror}") from None
        self._check(status)
        self._epoll.register(connecting, select.EPOLLOUT)

    def _host(self, connection: LoadConnection) -> str:
        return self._addresses[connection.stream.subscriber % len(self._addresses)].host

    def _check(self, status: int) -> None:
        if status not in (0, errno.EINPROGRESS):
            raise BenchError(f"cannot connect to {_names(self._addresses)}: {os.strerror(status)}")

    def _step(self, connection: LoadConnection) -> bool:
        """Continue the talk of a connection that is ready; return whether this ended it."""
        talk = connection.talk
        if talk is None:
            self._verifier.received(connection.stream, _read(connection))
            return False
        try:
            if connection.ready:
                to_send = talk.send(_read(connection))
            elif self._prepared(connection):
                connection.ready = True
                to_send = next(talk)
            else:
                return False
        except StopIteration:
            connection.talk = None
            if self._resume and isinstance(connection.socket, ssl.SSLSocket):
                self._session = self._session or connection.socket.session
            return True
        if to_send:
            connection.socket.send(to_send)
        return False

    def _prepared(self, connection: LoadConnection) -> bool:
        """Continue the TCP and TLS handshakes; return whether both are done."""
        if not connection.connected:
            self._check(connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
            self._epoll.modify(connection.socket, select.EPOLLIN)
            connection.connected = True
            if self._tls is not None:
                connection.socket = self._tls.wrap_socket(
                    connection.socket,
                    server_hostname=self._host(connection),
                    do_handshake_on_connect=False,
                    session=self._session,
                )
                connection.stream.answer = connection.socket.send
        if isinstance(connection.socket, ssl.SSLSocket):
            try:
                connection.socket.do_handshake()
            except ssl.SSLWantReadError:
                return False
            except ssl.SSLError as error:
                raise BenchError(f"no TLS with {_names(self._addresses)}: {error}") from error
        return True


def _names(addresses: Sequence[ServerAddress]) -> str:
    return ", ".join(str(address) for address in addresses)


def _read(connection: LoadConnection) -> bytes:
    try:
        size = connection.socket.recv_into(_buffer)
    except ssl.SSLWantReadError:
        return b""  # part of a record, or a session ticket
    except ConnectionError as error:
        raise BenchError(f"subscriber {connection.stream.subscriber}: {error}") from error
    if not size:
        raise BenchError(f"subscriber {connection.stream.subscriber} was disconnected")
    return bytes(_buffer[:size])
