"""Who is forgotten when there are too many publishers: those of a client that adds many."""

import http.client
import json
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import pytest
import trio
from websockets.sync.client import ClientConnection, connect

from mdserver.client import Client
from mdserver.cluster.settings import alone
from mdserver.core.entitlement import Policy
from mdserver.core.settings import BrokerSettings
from mdserver.limits import PUBLISHER_SERIES_NUMBERS, PUBLISHERS_MAX
from mdserver.server.http.router import Router
from mdserver.server.server import Server
from tests.client.judged import Judged
from tests.live import live_server
from tests.server.serving import serving

MOST = 40
MANY = 3 * MOST


class Small(Judged):
    """A node that knows few publishers."""

    def __init__(self) -> None:
        settings = BrokerSettings(policy=Policy.ASK, groups=1)
        few = attrs.evolve(alone(settings.member), publishers_max=MOST)
        super().__init__(settings, secrets.SystemRandom(), few)


async def names(server: Server) -> None:
    """Eve names a new publisher at each connect."""
    for name in range(MANY):
        async with Client(server.urls, token="eve", publisher=f"{name}") as client:
            await client.publish("/a/b", "eve")


async def series(server: Server) -> None:
    """Eve begins series after series of numbers of one publisher."""
    async with Client(server.urls, token="eve", publisher="feed") as client:
        await client.publish("/a/b", "eve")
        own = client.numbering
    for number in range(1, MANY + 1):
        kept = attrs.evolve(own, taken={0: number * PUBLISHER_SERIES_NUMBERS})
        async with Client(server.urls, token="eve", numbering=kept) as client:
            await client.publish("/a/b", "eve")


async def keys(server: Server) -> None:
    """Eve's requests over HTTP have a key each, and more than one publication."""
    for request in range(4):
        await trio.to_thread.run_sync(produce, server.urls[0], f"the-key-of-request-{request}")


def produce(url: str, key: str) -> None:
    head = {
        "Authorization": "Bearer eve",
        "Content-Type": "application/json",
        "Idempotency-Key": key,
    }
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    body = json.dumps([{"subject": "/a/b", "content": "eve"}] * (MANY // 4))
    connection.request("POST", "/rest/produce", body, head)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()


@pytest.mark.parametrize("flood", [names, series, keys])
async def test_a_user_that_adds_many_has_no_other_one_forgotten(
    flood: Callable[[Server], Awaitable[None]],
) -> None:
    with trio.fail_after(60):
        node = Small()
        async with serving(node=node, handler=Router()) as server:
            for again in (False, True):
                async with Client(server.urls, token="ann", publisher="feed") as client:
                    result = await client.publish("/a/b", "once")
                    assert result.duplicate is again
                if not again:
                    await flood(server)
            assert len(node.groups[0].log.publishers.table) <= MOST


@contextmanager
def speaking(
    url: str, address: str, *publisher: str
) -> Iterator[tuple[ClientConnection, dict[str, Any]]]:
    """A connection from an address, with what the server said of it."""
    host, _, port = urlsplit(url).netloc.partition(":")
    with (
        socket.create_connection((host, int(port)), source_address=(address, 0)) as opened,
        connect(f"ws://{host}:{port}/ws", sock=opened, max_size=None) as connection,
    ):
        named = dict(zip(("publisher", "publisher_key"), publisher, strict=False))
        connection.send(json.dumps({"op": "connect", **named}))
        yield connection, json.loads(connection.recv())


def published(connection: ClientConnection, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """The results of publications with these numbers."""
    commands = [
        {"op": "publish", "subject": "/a/b", "content": "", "number": number, "id": number}
        for number in numbers
    ]
    connection.send(json.dumps(commands))
    results: list[dict[str, Any]] = []
    while len(results) < len(numbers):
        events = json.loads(connection.recv())
        results += events if isinstance(events, list) else [events]
    return results


@pytest.mark.slow
def test_a_stranger_that_fills_the_table_has_no_other_address_forgotten(tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        with speaking(server.url, "127.0.0.2", "feed") as (victim, connected):
            assert published(victim, [1])[0]["status"] == "PUBLISH_OK"
        with speaking(server.url, "127.0.0.1", "feed") as (stranger, _):
            for first in range(1, PUBLISHERS_MAX + 1000, 500):
                begun = [s * PUBLISHER_SERIES_NUMBERS + 1 for s in range(first, first + 500)]
                results = published(stranger, begun)
                assert {result["status"] for result in results} == {"PUBLISH_OK"}
        identity = connected["publisher"], connected["publisher_key"]
        with speaking(server.url, "127.0.0.2", *identity) as (victim, _):
            assert published(victim, [2])[0]["status"] == "PUBLISH_OK"
