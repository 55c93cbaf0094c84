"""The common parts of the Python client's transports: their target, streams and errors."""

import os
import ssl
from collections.abc import Callable
from typing import Protocol

import anyio
import anyio.abc
from anyio.streams.tls import TLSStream
from attrs import frozen

from mdserver.client.core.servers import ServerEndpoint
from mdserver.client.errors import TransportError
from mdserver.errors import leaves

Stream = anyio.abc.ByteStream

READ_BYTES = 64 * 1024
REASON_BYTES = 200  # of an HTTP answer that refuses the client, as its reason
CLOSED_WITHOUT_HANDSHAKE = 1006  # RFC 6455 section 7.1.5: never sent, only inferred


class Transport(Protocol):
    """A connection that carries payloads; its methods raise TransportError once it has ended."""

    async def receive(self) -> bytes:
        """Return the next payload."""

    async def send(self, payload: bytes) -> None:
        """Send one payload."""

    async def close(self, code: int, reason: str) -> None:
        """Close the connection, within `CLIENT_CLOSE_TIMEOUT_S`."""


@frozen
class Target:
    """The server that a transport connects to, and how.

    `text`: the encoding is JSON. `heard` is called whenever bytes of the session arrive.
    """

    server: ServerEndpoint
    tls: ssl.SSLContext | None
    text: bool
    heard: Callable[[], None]

    @property
    def authority(self) -> str:
        """Host and port as in a URL."""
        return str(self.server)


async def open_stream(target: Target) -> Stream:
    """Open a TCP connection, with TLS if the target has a context.

    Raises TransportError.
    """
    host, port = target.server.host, target.server.port
    try:
        stream = await anyio.connect_tcp(host, port)
    except UnicodeError as error:
        raise unopened(f"the host name is invalid: {error}") from None
    except OSError as error:
        raise unopened(failure(error)) from None
    if target.tls is None:
        return stream
    try:
        return await TLSStream.wrap(
            stream, hostname=host, ssl_context=target.tls, standard_compatible=False
        )
    except (anyio.BrokenResourceError, anyio.EndOfStream, OSError) as error:
        await drop(stream)
        raise unopened(f"no TLS connection: {failure(error)}") from None
    except BaseException:
        await drop(stream)
        raise


async def drop(stream: Stream) -> None:
    """Close the socket at once, even in a cancelled scope; this never waits."""
    with anyio.CancelScope(shield=True):
        await anyio.aclose_forcefully(stream)


def unopened(reason: str) -> TransportError:
    """Return the error of a transport that could not be opened."""
    return TransportError(CLOSED_WITHOUT_HANDSHAKE, reason)


def failure(error: Exception) -> str:
    """Return why a connection failed, as one sentence from its innermost cause."""
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
