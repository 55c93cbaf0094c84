"""A server whose message takes longer to come than a client waits for a sign of life."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio
from websockets.sync.server import ServerConnection, serve

from mdserver.client import Client, Notification

KEEPALIVE_MS = 2000  # a client that hears nothing leaves after twice that time at most
PAUSE_S = 0.05
PARTS = 120
CONTENT = "x" * PARTS
CONNECTED = {
    "op": "connected",
    "session": "1",
    "member": "slow",
    "version": 1,
    "history": "h",
    "groups": 1,
    "keepalive_ms": KEEPALIVE_MS,
    "message_bytes_max": 1000,
}
MESSAGE = {
    "op": "message",
    "subject": "/a/b",
    "content": CONTENT,
    "type": "UPDATE",
    "epoch": 1,
    "seq": 1,
}


def talk(connection: ServerConnection) -> None:
    """Answer the first subscription by a message in small parts, and nothing else meanwhile."""
    said = False
    for payload in connection:
        told = json.loads(payload)
        for command in told if isinstance(told, list) else [told]:
            if command["op"] == "connect":
                connection.send(json.dumps(CONNECTED))
            elif command["op"] == "ping":
                connection.send(json.dumps({**command, "op": "pong"}))
        if not said and "subscribe" in str(payload):
            said = True
            connection.send(slowly(json.dumps(MESSAGE)))


def slowly(text: str) -> Iterator[str]:
    size = len(text) // PARTS + 1
    for start in range(0, len(text), size):
        time.sleep(PAUSE_S)
        yield text[start : start + size]


@contextmanager
def slow_server() -> Iterator[int]:
    """Run the server until the end of the `with` block, and give its port."""
    with serve(talk, "127.0.0.1", 0, subprotocols=["mdserver.v1.json"]) as server:  # type: ignore[list-item]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.socket.getsockname()[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
async def test_the_parts_of_a_large_message_are_signs_of_life() -> None:
    with slow_server() as port, trio.fail_after(60):
        async with Client([f"127.0.0.1:{port}"], encoding="json", keepalive_ms=KEEPALIVE_MS) as it:
            async with it.subscribe("/a/b") as subscription:
                assert (await anext(subscription)).content == CONTENT
            told = await anext(it.statuses)
            assert told.status is Notification.SERVER_UP
            with trio.move_on_after(0):
                pytest.fail(f"the connection was left: {await anext(it.statuses)}")
