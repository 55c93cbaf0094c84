"""The table of the monitor's paths that concern one server."""

from collections.abc import Callable

from mdserver.cluster.node import Node
from mdserver.config import Config
from mdserver.server.http.router import Methods
from mdserver.server.monitor.dashboard import dashboard_routes
from mdserver.server.monitor.facts import ConfigurationPage, VersionPage
from mdserver.server.monitor.orders import Orders
from mdserver.server.monitor.sessions import DisconnectSession, SessionsPage
from mdserver.server.monitor.statistics import Statistics
from mdserver.server.monitor.statistics_page import StatisticsPage
from mdserver.server.monitor.subjects import SubjectsPage
from mdserver.server.server import Server


def monitor_routes(
    server: Server,
    node: Node,
    statistics: Statistics,
    orders: Orders,
    config: Callable[[], Config],
) -> dict[str, Methods]:
    """Return the paths with their methods, without `/health` and those of the cluster."""
    clock = server.engine.clock
    return {
        "/statistics": {"GET": StatisticsPage(statistics)},
        "/sessions": {"GET": SessionsPage(server, node)},
        "/sessions/disconnect": {"POST": DisconnectSession(server)},
        "/subjects": {"GET": SubjectsPage(node.broker.inspection, clock)},
        "/configuration": {"GET": ConfigurationPage(config)},
        "/version": {"GET": VersionPage(server.settings.node_name, clock, lambda: server.urls)},
        **dashboard_routes(
            lambda: [*server.urls, *(peer.client for peer in node.members.peers.values())]
        ),
        **orders.routes(),
    }
