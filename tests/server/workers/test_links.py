"""The peer protocol over a socket pair."""

import random
import socket

import pytest
import trio

from mdserver.cluster.messages import ClosePeer
from mdserver.cluster.node import Node
from mdserver.cluster.settings import alone, with_workers, worker_of
from mdserver.core.settings import BrokerSettings
from mdserver.errors import StartError, leaves
from mdserver.server.clock import process_clock
from mdserver.server.engine import Engine, OutputRoutes, ignore
from mdserver.server.peers.doorstep import Complaints
from mdserver.server.peers.table import LinkTable
from mdserver.server.workers.links import ENDED, LocalLinks, ServerLink, worker_name
from tests.server.peers.members import Complaints as Log


def engine_of(node: Node) -> Engine:
    return Engine(node, process_clock())


def connect(engine: Engine, links: LinkTable) -> None:
    """Route what the node says to others into these links."""
    engine.routes = OutputRoutes(
        send_peer=links.send,
        close_peer=links.close,
        peer_discovered=links.discovered,
        trace=ignore,
        after_dispatch=(links.flush,),
    )


async def test_a_worker_joins_its_server_and_learns_of_its_end() -> None:
    settings = with_workers(alone("server"))
    name = worker_name("server", 1)
    server = engine_of(Node(BrokerSettings(groups=4), random.Random(1), settings))
    worker_node = Node(BrokerSettings(groups=4), random.Random(2), worker_of("server", name))
    worker = engine_of(worker_node)
    links = LinkTable(Complaints(Log()))
    local = LocalLinks(server, links, to_workers=True)
    connect(server, links)
    one, two = socket.socketpair()
    link = ServerLink(worker_node, worker, "server", two)
    connect(worker, link.peers)
    reasons: list[str] = []

    async def run() -> None:
        reasons.append(await local.run(name, one))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await nursery.start(link.run)
            assert worker_node.members.joined
            assert worker_node.unready() is None
            reason = worker_node.service.drained()
            assert reason is None, "its share of the groups is nothing, and right so"
            assert worker_node.history == server.node.history  # type: ignore[attr-defined]
            links.close(ClosePeer(name, "for a test"))
    assert reasons == ["for a test"]
    assert not links.links
    assert not link.peers.links
    assert ENDED


async def test_a_worker_whose_server_ends_before_it_has_a_copy_does_not_start() -> None:
    settings = worker_of("server", worker_name("server", 1))
    node = Node(BrokerSettings(groups=4), random.Random(1), settings)
    worker = engine_of(node)
    one, two = socket.socketpair()
    link = ServerLink(node, worker, "server", two)
    connect(worker, link.peers)
    one.close()
    with trio.fail_after(60), pytest.raises(ExceptionGroup) as failed:
        await link.run()
    (error,) = leaves(failed.value)
    assert isinstance(error, StartError)
    assert "ended during the start" in str(error)
