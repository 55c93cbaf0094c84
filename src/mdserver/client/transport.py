"""What every transport of the Python client has in common: where it goes, and how it fails."""

import os
import ssl
from typing import Protocol

import trio
from attrs import frozen

from mdserver.client.core.servers import Server
from mdserver.client.errors import TransportError
from mdserver.errors import leaves

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]

CLOSED_WITHOUT_HANDSHAKE = 1006  # RFC 6455 section 7.1.5: never sent, only ever concluded


class Transport(Protocol):
    """A connection that carries payloads; its methods raise TransportError once it ended."""

    async def receive(self) -> bytes:
        """The next payload."""

    async def send(self, payload: bytes) -> None:
        """Send one payload."""

    async def close(self, code: int, reason: str) -> None:
        """Say good-bye, for at most `CLIENT_CLOSE_TIMEOUT_S`."""


@frozen
class Target:
    """Where a transport goes, and how."""

    server: Server
    tls: ssl.SSLContext | None
    text: bool

    @property
    def authority(self) -> str:
        """Host and port as a URL has them."""
        return str(self.server)


async def open_stream(target: Target) -> Stream:
    """A TCP connection, with TLS where the target asks for it; raises TransportError."""
    host, port = target.server.host, target.server.port
    try:
        stream = await trio.open_tcp_stream(host, port)
    except OSError as error:
        raise unopened(failure(error)) from None
    if target.tls is None:
        return stream
    secure = trio.SSLStream(stream, target.tls, server_hostname=host, https_compatible=True)
    try:
        await secure.do_handshake()
    except (trio.BrokenResourceError, ssl.SSLError) as error:
        await drop(secure)
        raise unopened(f"no TLS connection: {failure(error)}") from None
    except BaseException:
        await drop(secure)
        raise
    return secure


async def drop(stream: Stream) -> None:
    """Close the socket at once, whatever has been cancelled; this never waits."""
    with trio.CancelScope(shield=True):
        await trio.aclose_forcefully(stream)


def unopened(reason: str) -> TransportError:
    """The error of a transport that could not be opened."""
    return TransportError(CLOSED_WITHOUT_HANDSHAKE, reason)


def failure(error: Exception) -> str:
    """One sentence, the innermost cause: for whoever reads why a connection failed."""
    cause: BaseException = error
    while isinstance(cause.__cause__, Exception):
        cause = cause.__cause__
    cause = leaves(cause)[0]
    if isinstance(cause, ssl.SSLCertVerificationError):
        return cause.verify_message
    if isinstance(cause, ssl.SSLError):
        return cause.reason or str(cause)
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
        return os.strerror(cause.errno)
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror  # an error of name resolution has a number of its own
    return str(cause) or type(cause).__name__
