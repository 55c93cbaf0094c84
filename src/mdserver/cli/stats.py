"""The stats stream of the audit logs: a line every `Stats.LogInterval`."""

import attrs
import trio

from mdserver.core.broker import Broker
from mdserver.core.outputs import Log
from mdserver.journal.audit import AuditLogs
from mdserver.limits import NS_PER_S
from mdserver.net.server import Server


async def write_stats(server: Server, broker: Broker, audit: AuditLogs, interval: int) -> None:
    """Writes a line every `interval` (ns) until it is cancelled."""
    while True:
        await trio.sleep(interval / NS_PER_S)
        audit.take(stats_line(server, broker))


def stats_line(server: Server, broker: Broker) -> Log:
    """What is counted, as an output of the stream `stats`."""
    entered = server.connections_total
    return Log(
        "stats",
        "stats",
        {
            "time": server.engine.clock(),
            **attrs.asdict(broker.counts()),
            "connections_total": entered,
            "disconnections_total": entered - server.connections,
            "messages_in_total": broker.publications,
            "messages_out_total": server.engine.deliveries,
            "bytes_in_total": server.engine.traffic.received,
            "bytes_out_total": server.engine.traffic.sent,
        },
    )
