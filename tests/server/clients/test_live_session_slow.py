"""Clients that read too slowly, under each policy, over real sockets."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio.testing

from mdserver.codec.binary_form import BinaryClient
from mdserver.codec.json_form import JsonClient
from mdserver.config import FanoutEngine, SlowConsumerPolicy
from mdserver.core.commands import Publish, Subscribe
from mdserver.core.events import MessageEvent
from mdserver.core.message import Qos
from mdserver.core.settings import BrokerSettings
from mdserver.limits import CLOSE_SLOW_CONSUMER, KB, SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON
from mdserver.server.server import Server
from mdserver.server.settings import ServerSettings
from tests.server.layers import Layer
from tests.server.raw import BINARY, CLOSE, TEXT, RawClient, frame, upgraded
from tests.server.serving import port_of, serving

CODECS = {SUBPROTOCOL_JSON: JsonClient, SUBPROTOCOL_BINARY: BinaryClient}
PUBLISHED = 150
TCP = Layer()


class Client:
    """Speaks one encoding."""

    def __init__(self, raw: RawClient, subprotocol: str) -> None:
        self.raw = raw
        self.codec = CODECS[subprotocol]()
        self.closed_with: int | None = None

    async def send(self, *commands: object) -> None:
        payload = self.codec.join([self.codec.command(command) for command in commands])
        await self.raw.send(frame(TEXT if self.codec.text else BINARY, payload))

    async def messages_until(self, content: str) -> list[MessageEvent]:
        """All messages, until one has this content or the server closes."""
        messages: list[MessageEvent] = []
        while not messages or not (messages[-1].content or "").startswith(content):
            opcode, payload = await self.raw.frame()
            if opcode == CLOSE:
                self.closed_with = int.from_bytes(payload[:2], "big")
                break
            events = self.codec.events(payload)
            messages += [event for event in events if isinstance(event, MessageEvent)]
        return messages


@asynccontextmanager
async def a_slow_client(
    policy: SlowConsumerPolicy,
    subprotocol: str,
    qos: Qos,
    engine: FanoutEngine = FanoutEngine.AUTO,
    layer: Layer = TCP,
) -> AsyncIterator[tuple[Server, Client]]:
    """One client has been sent much more than it has read; the last content is "399…"."""
    settings = ServerSettings(outbox_bytes_max=64 * KB, slow_consumers=policy, fanout_engine=engine)
    line = f"Sec-WebSocket-Protocol: {subprotocol}"
    async with (
        serving(layer.settings(settings)) as server,
        upgraded(layer.port(server), line, tls=layer.context) as raw,
        upgraded(port_of(server)) as other,
    ):
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * KB)
        slow, publisher = Client(raw, subprotocol), Client(other, SUBPROTOCOL_JSON)
        await slow.send(Subscribe(subjects=["/a/*"]))
        await raw.frame()
        for number in range(PUBLISHED):
            content = f"{number} " + "x" * 8000
            await publisher.send(
                Publish(subject="/a/b", content=content, qos=qos, closure=str(number))
            )
            await other.frame()
        yield server, slow


@pytest.mark.parametrize("subprotocol", CODECS)
async def test_disconnect(subprotocol: str, fanout_engine: FanoutEngine, layer: Layer) -> None:
    async with a_slow_client(
        SlowConsumerPolicy.DISCONNECT, subprotocol, Qos.GUARANTEED, fanout_engine, layer
    ) as (server, slow):
        assert len(server.sessions.outboxes) == 1
        await slow.messages_until(f"{PUBLISHED - 1} ")
        assert slow.closed_with == CLOSE_SLOW_CONSUMER


@pytest.mark.parametrize("subprotocol", CODECS)
async def test_conflate(subprotocol: str, fanout_engine: FanoutEngine, layer: Layer) -> None:
    async with a_slow_client(
        SlowConsumerPolicy.CONFLATE, subprotocol, Qos.GUARANTEED, fanout_engine, layer
    ) as (
        server,
        slow,
    ):
        outbox = next(outbox for outbox in server.sessions.outboxes.values() if outbox.unsent)
        assert outbox.bytes_waiting < 256 * KB
        messages = await slow.messages_until(f"{PUBLISHED - 1} ")
        assert slow.closed_with is None
        assert len(messages) < PUBLISHED
        seqs = [message.seq for message in messages]
        assert seqs == sorted(set(seqs))
        assert (messages[-1].seq, messages[-1].match) == (PUBLISHED, "/a/*")


@pytest.mark.parametrize("subprotocol", CODECS)
async def test_drop_standard(subprotocol: str) -> None:
    async with a_slow_client(SlowConsumerPolicy.DROP_STANDARD, subprotocol, Qos.STANDARD) as (
        _,
        slow,
    ):
        messages = await slow.messages_until(f"{PUBLISHED - 1} ")
        assert slow.closed_with is None
        assert len(messages) < PUBLISHED
        numbers = [int((message.content or "").split()[0]) for message in messages]
        assert numbers == sorted(set(numbers))


async def test_guaranteed_messages_are_never_dropped_silently() -> None:
    async with a_slow_client(
        SlowConsumerPolicy.DROP_STANDARD, SUBPROTOCOL_JSON, Qos.GUARANTEED
    ) as (_, slow):
        await slow.messages_until(f"{PUBLISHED - 1} ")
        assert slow.closed_with == CLOSE_SLOW_CONSUMER


async def test_a_history_beyond_the_limit_that_the_socket_takes_at_once() -> None:
    """Reading goes on: only a parked outbox makes it wait."""
    settings = ServerSettings(outbox_bytes_max=64 * KB)
    async with serving(settings) as server, upgraded(port_of(server)) as raw:
        client = Client(raw, SUBPROTOCOL_JSON)
        for number in range(70):
            await client.send(Publish(subject="/a/b", content=f"{number} " + "x" * 1000))
        await client.send(Subscribe(subjects=["/a/b"], history=70))
        assert len(await client.messages_until("69 ")) == 70
        await client.send(Publish(subject="/a/b", content="after"))
        assert await client.messages_until("after")


async def test_what_a_pattern_brings_waits_in_the_cache_for_a_client_that_does_not_read() -> None:
    broker = BrokerSettings(brought_at_once=20)
    subjects = [f"/a/{number}" for number in range(1000)]
    async with serving(ServerSettings(), broker) as server, upgraded(port_of(server)) as raw:
        client = Client(raw, SUBPROTOCOL_JSON)
        for one in subjects:
            await client.send(Publish(subject=one, content=one + " " + "x" * 8000))
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * KB)
        await client.send(Subscribe(subjects=["/a/*"]))
        await trio.testing.wait_all_tasks_blocked(0.05)  # longer than any pause between two steps
        (outbox,) = server.sessions.outboxes.values()
        assert outbox.unsent
        assert outbox.bytes_waiting < 2 * 20 * 17_000
        messages = await client.messages_until(subjects[-1] + " ")
        assert [message.subject for message in messages] == subjects
