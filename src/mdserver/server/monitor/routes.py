"""The table of the monitor's paths that concern one server."""

from collections.abc import Callable
from typing import Protocol

from mdserver.cluster.node import Node
from mdserver.config import Config
from mdserver.server.http.router import Methods
from mdserver.server.monitor.dashboard import dashboard_routes
from mdserver.server.monitor.facts import ConfigurationPage, VersionPage
from mdserver.server.monitor.orders import Orders
from mdserver.server.monitor.sessions import (
    DisconnectSession,
    SessionList,
    SessionSource,
    SessionsPage,
)
from mdserver.server.monitor.statistics import Statistics
from mdserver.server.monitor.statistics_page import StatisticsPage
from mdserver.server.monitor.subjects import SubjectsPage, SubscriberCounts
from mdserver.server.server import Server


class WorkerSources(SessionSource, SubscriberCounts, Protocol):
    """What the monitor asks all worker processes."""


def monitor_routes(
    server: Server,
    node: Node,
    statistics: Statistics,
    orders: Orders,
    config: Callable[[], Config],
    workers: WorkerSources | None = None,
) -> dict[str, Methods]:
    """Return the paths with their methods, without `/health` and those of the cluster.

    With `workers` the pages are about their clients.
    """
    clock = server.engine.clock
    sessions: SessionSource = SessionList(server, node) if workers is None else workers
    return {
        "/statistics": {"GET": StatisticsPage(statistics)},
        "/sessions": {"GET": SessionsPage(sessions)},
        "/sessions/disconnect": {"POST": DisconnectSession(sessions, server.settings.node_name)},
        "/subjects": {"GET": SubjectsPage(node.broker.inspection, clock, workers)},
        "/configuration": {"GET": ConfigurationPage(config)},
        "/version": {"GET": VersionPage(server.settings.node_name, clock, lambda: server.urls)},
        **dashboard_routes(
            lambda: [*server.urls, *(peer.client for peer in node.members.peers.values())]
        ),
        **orders.routes(),
    }
