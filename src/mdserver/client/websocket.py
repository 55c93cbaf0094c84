"""The WebSocket transport of the Python client, on trio-websocket."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import trio
import trio_websocket
from wsproto.utilities import LocalProtocolError

from mdserver.client.errors import TransportError
from mdserver.client.transport import (
    CLOSED_WITHOUT_HANDSHAKE,
    Stream,
    Target,
    Transport,
    drop,
    failure,
    open_stream,
    unopened,
)
from mdserver.errors import leaves
from mdserver.limits import (
    CLIENT_CLOSE_TIMEOUT_S,
    CLIENT_FAREWELL_S,
    CLIENT_PAYLOAD_BYTES_MAX,
    SUBPROTOCOL_BINARY,
    SUBPROTOCOL_JSON,
)

Rejected = trio_websocket.ConnectionRejected


class OpeningStream(trio.abc.Stream):
    """A stream whose end is an error until `answered` is set.

    trio-websocket waits for ever if the other side closes before it has answered the upgrade.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.answered = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Return what arrived; raise TransportError if the stream ends without an answer."""
        if self.answered:
            return await self._stream.receive_some(max_bytes)
        try:
            data = await self._stream.receive_some(max_bytes)
        except trio.BrokenResourceError as error:
            raise unopened(f"no answer to the upgrade: {failure(error)}") from None
        if not data and not self.answered:
            raise unopened("no answer to the upgrade: the server closed the connection")
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send on the wrapped stream."""
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait on the wrapped stream."""
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Close the wrapped stream."""
        await self._stream.aclose()


class WebSocketTransport:
    """One WebSocket connection."""

    def __init__(self, connection: trio_websocket.WebSocketConnection, *, text: bool) -> None:
        self._connection = connection
        self._text = text

    async def receive(self) -> bytes:
        """Return the next WebSocket message."""
        try:
            payload = await self._connection.get_message()
        except trio_websocket.ConnectionClosed as closed:
            raise _ended(closed) from None
        return payload.encode() if isinstance(payload, str) else payload

    async def send(self, payload: bytes) -> None:
        """Send one WebSocket message: text for JSON, otherwise binary."""
        try:
            await self._connection.send_message(payload.decode() if self._text else payload)
        except trio_websocket.ConnectionClosed as closed:
            raise _ended(closed) from None

    async def close(self, code: int, reason: str) -> None:
        """Perform the closing handshake, and close the socket in any case.

        In a cancelled scope nothing reads the answer any more, so there is only time to send the
        frame.
        """
        cancelled = trio.current_effective_deadline() == -math.inf
        timeout_s = CLIENT_FAREWELL_S if cancelled else CLIENT_CLOSE_TIMEOUT_S
        with trio.move_on_after(timeout_s, shield=True):
            await self._connection.aclose(code, reason)


@asynccontextmanager
async def open_websocket(target: Target) -> AsyncIterator[Transport]:
    """Connect and upgrade.

    Raises TransportError, whose reason says why that was not possible.
    """
    stream = await open_stream(target)
    try:
        async with trio.open_nursery() as nursery:
            connection = await _upgrade(nursery, stream, target)
            transport = WebSocketTransport(connection, text=target.text)
            try:
                yield transport
            finally:
                await transport.close(1000, "")
                nursery.cancel_scope.cancel()
    except* Rejected as group:
        raise unopened(_rejection(leaves(group)[0])) from None
    except* (trio_websocket.HandshakeError, trio_websocket.ConnectionClosed) as group:
        raise unopened(f"no answer to the upgrade: {failure(group)}") from None
    except* LocalProtocolError:
        # trio-websocket tries to answer a ping after the close frame has been sent.
        raise TransportError(CLOSED_WITHOUT_HANDSHAKE, "closed while the server spoke") from None
    finally:
        # trio-websocket leaves the stream open if the other side closed first.
        await drop(stream)


async def _upgrade(
    nursery: trio.Nursery, stream: Stream, target: Target
) -> trio_websocket.WebSocketConnection:
    subprotocol = SUBPROTOCOL_JSON if target.text else SUBPROTOCOL_BINARY
    opening = OpeningStream(stream)
    connection = await trio_websocket.wrap_client_stream(
        nursery,
        cast("Stream", opening),  # any trio.abc.Stream will do
        target.authority,
        "/ws",
        subprotocols=[subprotocol],
        max_message_size=CLIENT_PAYLOAD_BYTES_MAX,
        receive_buffer_size=None,
    )
    opening.answered = True
    if connection.subprotocol != subprotocol:
        raise unopened(f"the server does not speak {subprotocol}")
    return connection


def _ended(closed: trio_websocket.ConnectionClosed) -> TransportError:
    reason = closed.reason
    if reason is None:
        return TransportError(CLOSED_WITHOUT_HANDSHAKE, "the connection was lost")
    return TransportError(reason.code, reason.reason or "the connection was lost")


def _rejection(rejected: Rejected) -> str:
    body = (rejected.body or b"")[:200].decode(errors="replace").strip()
    return f"the server answered HTTP {rejected.status_code}" + (f": {body}" if body else "")
