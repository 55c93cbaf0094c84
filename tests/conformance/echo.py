"""`python -m tests.conformance.echo --listen HOST:PORT`: the live WebSocket stack, as an echo.

Listener, connection, outbox and flusher are those of the server; only what happens with a message
is another thing: it goes back as it came, so that any RFC 6455 suite can drive it.
"""

import argparse
import contextlib
from collections.abc import Sequence
from typing import Any

import structlog
import trio

from mdserver import limits
from mdserver.codec.http import Request
from mdserver.codec.websocket import WebSocketMessage, close_frame, frame_header, ping_frame
from mdserver.config.values import Address
from mdserver.core.events import Delivery, WireEvent
from mdserver.core.inputs import Opened
from mdserver.core.outputs import Output
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.clients.outbox import Outbox
from mdserver.server.clients.sessions import Sessions
from mdserver.server.server import Server
from mdserver.server.settings import ServerSettings
from tests.server.serving import NOT_FOUND


class EchoForm:
    """Frames are whole WebSocket messages with their headers."""

    name = "echo"
    aliased = False

    def delivery(self, delivery: Delivery) -> bytes:
        raise NotImplementedError

    def event(self, event: WireEvent) -> bytes:
        raise NotImplementedError

    def alias_frame(self, alias: int) -> bytes:
        raise NotImplementedError

    def wire(self, frames: Sequence[bytes]) -> bytes:
        return b"".join(frames)

    def alive(self) -> bytes:
        return ping_frame()

    def goodbye(self, code: int, reason: str) -> bytes:
        return close_frame(code, reason)


class Echo:
    """Sends every message back, each in a message of its own."""

    def __init__(self, sessions: Sessions) -> None:
        self._flusher = sessions.flusher
        self._form = EchoForm()

    def form(self, subprotocol: str | None) -> EchoForm:
        return self._form

    def opened(self, outbox: Outbox, opened: Opened) -> None:
        """Nobody has to know."""

    async def messages(self, outbox: Outbox, messages: Sequence[WebSocketMessage]) -> int:
        for message in messages:
            frame = frame_header(len(message.payload), message.text) + message.payload
            if outbox.append(frame):
                self._flusher.dirty.append(outbox)
        self._flusher.wake()
        return len(messages)

    def writability(self, outbox: Outbox, *, writable: bool) -> None:
        """Nobody has to know."""

    def closed(self, outbox: Outbox, reason: str) -> None:
        """Nobody has to know."""


class NoNode:
    """There is nothing behind an echo."""

    def step(self, input: Any, now: int) -> list[Output]:  # noqa: A002
        return []


async def not_found(request: Request, exchange: Exchange) -> Answer:
    """There is nothing but the echo."""
    return NOT_FOUND


def echo_server(address: Address, message_bytes_max: int = 16 * limits.MB) -> Server:
    """A server that echoes on this address."""
    settings = ServerSettings(
        listen=(address,),
        websocket_bytes_max=message_bytes_max,
        outbox_bytes_max=64 * limits.MB,
    )
    return Server(settings, NoNode(), not_found, structlog.get_logger(), session_handler=Echo)


async def _main(address: Address) -> None:
    server = echo_server(address)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve)
        print(f"echo ready: {server.urls[0].replace('http', 'ws')}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:9001", metavar="HOST:PORT")
    host, _, port = parser.parse_args().listen.rpartition(":")
    with contextlib.suppress(KeyboardInterrupt):
        trio.run(_main, Address(host.strip("[]"), int(port)))
