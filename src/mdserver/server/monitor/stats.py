"""The stats streams of the audit logs and of the journal: a line at equal intervals."""

from collections.abc import Callable

import attrs
import trio

from mdserver.core.broker import Broker
from mdserver.core.outputs import Log
from mdserver.limits import NS_PER_S
from mdserver.server.server import Server


async def write_stats(
    server: Server, broker: Broker, take: Callable[[Log], None], interval: int
) -> None:
    """Gives `take` a line every `interval` (ns) until it is cancelled."""
    while True:
        await trio.sleep(interval / NS_PER_S)
        take(stats_line(server, broker))


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
            "messages_in_total": broker.publications.count,
            "messages_out_total": server.engine.deliveries,
            "bytes_in_total": server.engine.traffic.received,
            "bytes_out_total": server.engine.traffic.sent,
        },
    )
