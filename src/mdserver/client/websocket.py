"""The WebSocket transport of the Python client, on trio-websocket."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import trio
import trio_websocket
from attrs import frozen

from mdserver.client.core.servers import Server
from mdserver.client.errors import TransportError
from mdserver.limits import (
    CLIENT_CLOSE_TIMEOUT_S,
    CLIENT_PAYLOAD_BYTES_MAX,
    SUBPROTOCOL_BINARY,
    SUBPROTOCOL_JSON,
)

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


class WebSocketTransport:
    """One WebSocket connection."""

    def __init__(self, connection: trio_websocket.WebSocketConnection, *, text: bool) -> None:
        self._connection = connection
        self._text = text

    async def receive(self) -> bytes:
        """The next WebSocket message."""
        try:
            payload = await self._connection.get_message()
        except trio_websocket.ConnectionClosed as closed:
            raise _ended(closed) from None
        return payload.encode() if isinstance(payload, str) else payload

    async def send(self, payload: bytes) -> None:
        """Send one WebSocket message, of the type that the encoding asks for."""
        try:
            await self._connection.send_message(payload.decode() if self._text else payload)
        except trio_websocket.ConnectionClosed as closed:
            raise _ended(closed) from None

    async def close(self, code: int, reason: str) -> None:
        """The closing handshake, and the end of the socket in any case."""
        with trio.move_on_after(CLIENT_CLOSE_TIMEOUT_S, shield=True):
            await self._connection.aclose(code, reason)


@asynccontextmanager
async def open_websocket(target: Target) -> AsyncIterator[Transport]:
    """Connect and upgrade; TransportError says in its reason why that was not possible."""
    async with trio.open_nursery() as nursery:
        subprotocol = SUBPROTOCOL_JSON if target.text else SUBPROTOCOL_BINARY
        try:
            connection = await trio_websocket.connect_websocket(
                nursery,
                target.server.host,
                target.server.port,
                "/ws",
                use_ssl=target.tls or False,
                subprotocols=[subprotocol],
                max_message_size=CLIENT_PAYLOAD_BYTES_MAX,
                receive_buffer_size=None,
            )
        except trio_websocket.ConnectionRejected as rejected:
            nursery.cancel_scope.cancel()
            raise TransportError(CLOSED_WITHOUT_HANDSHAKE, _rejection(rejected)) from None
        except (trio_websocket.HandshakeError, OSError, trio.BrokenResourceError) as error:
            nursery.cancel_scope.cancel()
            raise TransportError(CLOSED_WITHOUT_HANDSHAKE, _failure(error)) from None
        transport = WebSocketTransport(connection, text=target.text)
        try:
            if connection.subprotocol != subprotocol:
                reason = f"the server does not speak {subprotocol}"
                raise TransportError(CLOSED_WITHOUT_HANDSHAKE, reason)
            yield transport
        finally:
            await transport.close(1000, "")


def _ended(closed: trio_websocket.ConnectionClosed) -> TransportError:
    reason = closed.reason
    if reason is None:
        return TransportError(CLOSED_WITHOUT_HANDSHAKE, "the connection was lost")
    return TransportError(reason.code, reason.reason or "the connection was lost")


def _rejection(rejected: trio_websocket.ConnectionRejected) -> str:
    body = (rejected.body or b"")[:200].decode(errors="replace").strip()
    return f"the server answered HTTP {rejected.status_code}" + (f": {body}" if body else "")


def _failure(error: Exception) -> str:
    """One sentence, the innermost cause: for whoever reads why a connection failed."""
    cause = error
    while isinstance(cause.__cause__, Exception):
        cause = cause.__cause__
    while isinstance(cause, ExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return str(cause) or type(cause).__name__
