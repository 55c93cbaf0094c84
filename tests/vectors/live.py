"""Plays the dialogues against a server that runs: `python -m tests.vectors ws://127.0.0.1:8800`."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_client_stream

from mdserver import limits
from tests.vectors.dialogue import Connection, play

SUBPROTOCOLS = {"json": limits.SUBPROTOCOL_JSON, "binary": limits.SUBPROTOCOL_BINARY}
ANSWER_TIMEOUT_S = 30


class Remote:
    """A connection over a real socket."""

    def __init__(self, websocket: WebSocketConnection, encoding: str) -> None:
        self._websocket = websocket
        self._text = encoding == "json"

    async def send(self, payload: bytes) -> None:
        await self._websocket.send_message(payload.decode() if self._text else payload)

    async def receive(self) -> bytes | int:
        try:
            with trio.fail_after(ANSWER_TIMEOUT_S):
                message = await self._websocket.get_message()
        except ConnectionClosed as closed:
            return int(closed.reason.code) if closed.reason else 1006
        assert isinstance(message, str) is self._text
        return message.encode() if isinstance(message, str) else message

    async def close(self, code: int) -> None:
        with trio.move_on_after(ANSWER_TIMEOUT_S):
            await self._websocket.aclose(code)


@asynccontextmanager
async def connecting(url: str) -> AsyncIterator["Connector"]:
    """Opens connections to the server at `url`, until the end of the block."""
    async with AsyncExitStack() as streams, trio.open_nursery() as nursery:
        yield Connector(url, nursery, streams)
        nursery.cancel_scope.cancel()


class Connector:
    """Gives `play` its connections."""

    def __init__(self, url: str, nursery: trio.Nursery, streams: AsyncExitStack) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port or 80
        self._nursery = nursery
        self._streams = streams

    async def open(self, encoding: str) -> Connection:
        stream = await trio.open_tcp_stream(self._host, self._port)
        await self._streams.enter_async_context(stream)
        websocket = await wrap_client_stream(
            self._nursery, stream, self._host, "/ws", subprotocols=[SUBPROTOCOLS[encoding]]
        )
        assert websocket.subprotocol == SUBPROTOCOLS[encoding]
        return Remote(websocket, encoding)


async def play_live(url: str, name: str, encoding: str, run: str) -> int:
    """Play one dialogue with the server at `url`; see `play`."""
    async with connecting(url) as connector:
        return await play(name, encoding, run, connector.open)
