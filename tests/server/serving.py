"""A server in the test's own process, on a free port of 127.0.0.1, over the real node."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import structlog
import trio
from attrs import evolve

from mdserver.cluster.node import Node
from mdserver.codec.http import Request
from mdserver.config.values import Address
from mdserver.core.outputs import Authorize
from mdserver.core.settings import BrokerSettings
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.server import Server
from mdserver.server.settings import ServerSettings

LOOPBACK = (Address("127.0.0.1", 0),)


NOT_FOUND = Answer(404, (), b"nothing here\n")


async def not_found(request: Request, exchange: Exchange) -> Answer:
    """Answers every request."""
    return NOT_FOUND


def new_node(broker: BrokerSettings) -> Node:
    """A single server's node."""
    return Node(broker, random.Random(1))


def port_of(server: Server) -> int:
    """The port of its first listener."""
    return int(server.urls[0].rpartition(":")[2])


def route(server: Server, **routes: Any) -> None:
    """Have some of a server's outputs carried out by these functions."""
    server.engine.routes = evolve(server.engine.routes, **routes)


def authorize(server: Server, ask: Callable[[Authorize], None]) -> None:
    """Have requests for authorization answered by a function."""
    route(server, authorize=server.sessions.authorizations.through(ask))


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
