"""Creates listening and outgoing sockets, and accepts; replaced by the simulator.

Trio's own accept helpers log a traceback every 0.1 s while the process lacks descriptors. The loop
here waits as well, but leaves it to its caller how often to log that.
"""

import errno
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio
from attrs import frozen

from mdserver.config.values import Address
from mdserver.errors import StartError

BACKLOG = 4096
ACCEPTS_PER_TURN = 32
BACK_OFF_S = 0.1
NOT_SENT_BYTES = 16 * 1024
# After the handshake a TLS write would need a read, or a read a write, only for a renegotiation.
# That is switched off, so such an exception is an error like any other.
READ_BLOCKED = (BlockingIOError, ssl.SSLWantReadError)
WRITE_BLOCKED = (BlockingIOError, ssl.SSLWantWriteError)
# OpenSSL wants a refused write repeated with the same bytes. So the bytes of a write depend only on
# what is left to send: all of it, up to this size.
WRITE_BYTES = 64 * 1024
_NOT_NOW = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class Socket(Protocol):
    """A non-blocking socket, plain or TLS."""

    def send(self, data: bytes | memoryview, /) -> int:
        """Send as many bytes as the socket takes and return how many these are.

        Raises one of WRITE_BLOCKED if it takes none.
        """

    def fileno(self) -> int:
        """Return the descriptor."""


_HINTS = {
    errno.EADDRINUSE: " (another program listens there: stop it, or configure another port)",
    errno.EACCES: " (ports below 1024 are for root, who may start a server with RunAsUser)",
}


def listen(address: Address) -> list[socket.socket]:
    """Bind and listen; return two sockets for `*` (IPv4 and IPv6), one otherwise.

    Raises StartError if the address cannot be used.
    """
    try:
        if address.host != "*":
            return [_listen(address.host, address.port)]
        sixth = _listen("::", address.port)
        try:
            return [_listen("0.0.0.0", sixth.getsockname()[1]), sixth]  # noqa: S104 - as asked
        except OSError:
            sixth.close()
            raise
    except OSError as error:
        if address.host == "*" and error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            return listen(Address("0.0.0.0", address.port))  # noqa: S104 - a host without IPv6
        hint = _HINTS.get(error.errno or 0, "")
        raise StartError(f"Cannot listen on {address}: {error.strerror or error}{hint}") from None


def _listen(host: str, port: int) -> socket.socket:
    """Make one listening socket. Raises OSError."""
    family, kind, protocol, _, where = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        options(sock)
        sock.bind(where)
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def divided(sock: socket.socket, count: int) -> list[socket.socket]:
    """Replace a listening socket by `count` ones, among which the kernel divides connections.

    They have SO_REUSEPORT, which lets any program of this user listen there as well. So the address
    is first bound without it (`listen`), which fails if another program listens. Takes over `sock`.
    Raises StartError.
    """
    family, where = sock.family, sock.getsockname()
    sock.close()
    made: list[socket.socket] = []
    try:
        for _ in range(count):
            one = socket.socket(family, socket.SOCK_STREAM)
            made.append(one)
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            options(one)
            one.bind(where)
            one.listen(BACKLOG)
    except OSError as error:
        for one in made:
            one.close()
        address = Address(where[0], where[1])
        raise StartError(f"Cannot listen on {address}: {error.strerror or error}") from None
    return made


def options(sock: socket.socket) -> None:
    """Set the options of a listening TCP socket that accepted sockets inherit.

    See docs/design.md, "Fan-out", for what they are for.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if sys.platform == "linux":
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, NOT_SENT_BYTES)


def end_unacknowledged(sock: socket.socket, seconds: float) -> None:
    """Have the kernel end a connection whose bytes stay unacknowledged for so long (RFC 5482).

    TCP repeats them at intervals that double. So a connection that outlives a cut of the network
    may stand still for as long again once it is over, when a new one would go through at once.
    """
    if sys.platform == "linux" and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * seconds))


def url_of(sock: socket.socket, *, secure: bool = False) -> str:
    """Return the URL of a listening socket."""
    host, port = sock.getsockname()[:2]
    return f"http{'s' if secure else ''}://{Address(host, port)}"


async def accept_each(
    listening: socket.socket,
    accepted: Callable[[socket.socket, str], None],
    complain: Callable[[OSError], None],
    delay_s: Callable[[], float] = lambda: 0.0,
) -> None:
    """Accept until cancelled, then close `listening`.

    `accepted` is called with each socket and the IP address of its client. `complain` is called
    with the error when descriptors or memory are lacking; after a pause the loop tries again.
    `delay_s` returns how many seconds the next connection has to wait, in the kernel's queue.
    """
    with listening:
        while True:
            await trio.lowlevel.wait_readable(listening)
            try:
                for _ in range(ACCEPTS_PER_TURN):
                    if (seconds := delay_s()) > 0:
                        await trio.sleep(seconds)
                        break
                    sock, where = listening.accept()
                    sock.setblocking(False)
                    accepted(sock, where[0])
            except (BlockingIOError, ConnectionAbortedError):
                pass
            except OSError as error:
                if error.errno not in _NOT_NOW:
                    raise
                complain(error)
                await trio.sleep(BACK_OFF_S)


async def dial(address: Address) -> socket.socket:
    """Connect to another member. Raises OSError if that fails."""
    stream = await trio.open_tcp_stream(address.host, address.port)
    sock = socket.socket(fileno=stream.socket.detach())
    sock.setblocking(False)
    return sock


@frozen
class SocketFactory:
    """Creates the sockets of a server, all of them non-blocking.

    `listen` makes the listening sockets of an address (raises StartError if that is not possible),
    `dial` a connection to another member (raises OSError if that fails). `held` are listening
    sockets that a supervisor keeps open; `listen` may return some of them.
    """

    listen: Callable[[Address], list[socket.socket]] = listen
    dial: Callable[[Address], Awaitable[socket.socket]] = dial
    held: Sequence[socket.socket] = ()


TCP = SocketFactory()
