"""Batching by time and by size: what arrives within the period travels in one operation.

And what is sent at once costs the scheduler one pass.
"""

import json
import socket

import trio
import trio.testing
import trio_websocket

from mdserver.core.commands import Connect, Publish
from mdserver.core.inputs import Opened, Received
from mdserver.limits import NS_PER_MS, NS_PER_S, SUBPROTOCOL_JSON
from mdserver.server.clients.flusher import Flusher
from mdserver.server.clients.forms import WEBSOCKET_FORMS
from mdserver.server.clients.outbox import Outbox
from mdserver.server.clients.traffic import Traffic
from mdserver.server.server import Server
from mdserver.server.settings import ServerSettings
from tests.server.serving import port_of, serving

PUBLISHER = 1_000_000


async def subscribed(client: trio_websocket.WebSocketConnection) -> None:
    """Subscribes, and returns when the server has said so."""
    await client.send_message('[{"op":"subscribe","subjects":["/a/b"]},{"op":"ping","t":1}]')
    while '"pong"' not in await client.get_message():
        pass


def publish(server: Server, content: str) -> None:
    """One publication in a step of its own, by a session without a connection."""
    server.engine.dispatch(Received(PUBLISHER, [Publish(subject="/a/b", content=content)]))


async def batches(server: Server, contents: list[str]) -> list[list[str]]:
    """The contents of each WebSocket message in which these publications arrive."""
    found: list[list[str]] = []
    with trio.fail_after(10):
        async with trio_websocket.open_websocket_url(
            f"ws://127.0.0.1:{port_of(server)}/ws"
        ) as client:
            await subscribed(client)
            server.engine.dispatch(Opened(PUBLISHER, "127.0.0.1"))
            server.engine.dispatch(Received(PUBLISHER, [Connect()]))
            for content in contents:
                publish(server, content)
                await trio.testing.wait_all_tasks_blocked()
            while sum(map(len, found)) < len(contents):
                events = json.loads(await client.get_message())
                events = events if isinstance(events, list) else [events]
                found.append([event["content"] for event in events])
    return found


class Unused:
    """The connection of an outbox that is sent as a whole."""


class Runs(trio.abc.Instrument):
    """Counts how often the scheduler runs any task but this one."""

    def __init__(self) -> None:
        self.me = trio.lowlevel.current_task()
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task is not self.me


async def test_the_flusher_runs_once_for_what_it_can_send_at_once() -> None:
    near, far = socket.socketpair()
    form = WEBSOCKET_FORMS[SUBPROTOCOL_JSON]
    outbox = Outbox(1, form, near, Unused(), 1000, Traffic())  # type: ignore[arg-type]
    flusher, runs = Flusher(), Runs()
    with near, far:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flusher.run)
            await trio.testing.wait_all_tasks_blocked()
            trio.lowlevel.add_instrument(runs)
            outbox.append(b"frame")
            flusher.dirty.append(outbox)
            flusher.wake()
            await trio.testing.wait_all_tasks_blocked()
            trio.lowlevel.remove_instrument(runs)
            nursery.cancel_scope.cancel()
        assert far.recv(1000) == form.wire([b"frame"])
    assert runs.count == 1


async def test_without_batching_a_message_goes_at_once() -> None:
    async with serving(ServerSettings()) as server:
        assert await batches(server, ["1", "2", "3"]) == [["1"], ["2"], ["3"]]


async def test_what_comes_within_the_time_goes_in_one_operation() -> None:
    async with serving(ServerSettings(batching=300 * NS_PER_MS)) as server:
        assert await batches(server, ["1", "2", "3"]) == [["1", "2", "3"]]


async def test_enough_bytes_end_the_time_early() -> None:
    settings = ServerSettings(batching=NS_PER_S, batching_bytes=800)
    async with serving(settings) as server:
        found = await batches(server, ["x" * 300] * 4)
        assert [len(batch) for batch in found] == [3, 1]
