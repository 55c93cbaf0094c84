"""A server that says exactly what a test tells it to: for what a real one rarely does."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
import trio_websocket

from mdserver.client import ReconnectSettings

CONNECTED = {
    "op": "connected",
    "session": "1",
    "member": "m",
    "version": 1,
    "history": "h1",
    "groups": 4,
    "keepalive_ms": 0,
    "message_bytes_max": 1000,
}


class Peer:
    """The server's side of one connection, in JSON."""

    def __init__(self, connection: trio_websocket.WebSocketConnection) -> None:
        self._connection = connection
        self._commands: deque[dict[str, Any]] = deque()
        self.done = trio.Event()

    async def hear(self, op: str | None = None) -> dict[str, Any]:
        """The next command; with `op`, the next of this kind."""
        with trio.fail_after(5):
            while True:
                while not self._commands:
                    heard = msgspec.json.decode(await self._connection.get_message())
                    self._commands.extend(heard if isinstance(heard, list) else [heard])
                command = self._commands.popleft()
                if op is None or command["op"] == op:
                    return command

    async def say(self, *events: dict[str, Any]) -> None:
        """Send events in one message."""
        await self._connection.send_message(msgspec.json.encode(list(events)).decode())

    async def greet(self, **keys: Any) -> dict[str, Any]:
        """Answer `connect`; gives the command."""
        command = await self.hear("connect")
        await self.say(CONNECTED | keys)
        return command

    async def message(self, subject: str, seq: int, **keys: Any) -> None:
        """Deliver a message."""
        event = {"op": "message", "subject": subject, "type": "UPDATE", "epoch": 1, "seq": seq}
        await self.say(event | {"content": str(seq)} | keys)

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """End the connection."""
        with trio.fail_after(5):
            await self._connection.aclose(code, reason)

    async def closed(self) -> int:
        """Wait until the client has ended the connection; gives its close code."""
        with trio.fail_after(5):
            try:
                while True:
                    await self._connection.get_message()
            except trio_websocket.ConnectionClosed as closed:
                return closed.reason.code if closed.reason is not None else 1006


class ScriptedServer:
    """Hands its connections to the test."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[Peer](100)
        self.address = ""
        self.subprotocol: str | None = "mdserver.v1.json"
        self.reject: tuple[int, bytes] | None = None

    async def handle(self, request: trio_websocket.WebSocketRequest) -> None:
        if self.reject is not None:
            await request.reject(self.reject[0], body=self.reject[1])
            return
        peer = Peer(await request.accept(subprotocol=self.subprotocol))
        await self._send.send(peer)
        await peer.done.wait()

    async def accept(self) -> Peer:
        """The next connection."""
        with trio.fail_after(5):
            return await self._receive.receive()


@asynccontextmanager
async def serving(port: int = 0) -> AsyncIterator[ScriptedServer]:
    async with trio.open_nursery() as nursery:
        scripted = ScriptedServer()
        server = await nursery.start(
            trio_websocket.serve_websocket, scripted.handle, "127.0.0.1", port, None
        )
        scripted.address = f"127.0.0.1:{server.port}"
        yield scripted
        nursery.cancel_scope.cancel()


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedServer]:
    """A scripted server on a free port."""
    async with serving() as server:
        yield server


@pytest.fixture
def at_once() -> ReconnectSettings:
    """Reconnect without waiting long."""
    return ReconnectSettings(quick_initial_delay_s=0.02, time_interval_s=0.02)
