"""A server in the test's own process, on a free port of 127.0.0.1, over the real node."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import structlog
import trio
from attrs import evolve, frozen

from mdserver.cluster.node import Node
from mdserver.codec.http import Request
from mdserver.config.values import Address
from mdserver.core.settings import BrokerSettings
from mdserver.server.clients.exchange import Exchange
from mdserver.server.server import Server
from mdserver.server.settings import ServerSettings

LOOPBACK = (Address("127.0.0.1", 0),)


@frozen
class NotFound:
    """An answer to a request that no test of `net` asks about."""

    status: int = 404
    headers: tuple[()] = ()
    body: bytes = b"nothing here\n"


async def not_found(request: Request, exchange: Exchange) -> NotFound:
    """Answers every request."""
    return NotFound()


def new_node(broker: BrokerSettings) -> Node:
    """A single server's node."""
    return Node(broker, random.Random(1))


def port_of(server: Server) -> int:
    """The port of its first listener."""
    return int(server.urls[0].rpartition(":")[2])


@asynccontextmanager
async def serving(
    settings: ServerSettings | None = None,
    broker: BrokerSettings | None = None,
    handler: Any = not_found,
    **options: Any,
) -> AsyncIterator[Server]:
    """A running server; `server.urls` are those of its listeners."""
    settings = evolve(settings or ServerSettings(), listen=LOOPBACK)
    node = options.pop("node", None) or new_node(broker or BrokerSettings())
    log = options.pop("log", None) or structlog.get_logger()
    server = Server(settings, node, handler, log, **options)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve)
        yield server
        nursery.cancel_scope.cancel()
