"""Puts OpenTelemetry between the engine and the node of a server, if `Monitor` has `OTEL`."""

from typing import TYPE_CHECKING

from mdserver.cluster.node import Node
from mdserver.server.monitor.prometheus import Metrics
from mdserver.server.monitor.publication_spans import Sampler, SpanNode
from mdserver.server.server import Server
from mdserver.server.settings import OtelSettings

if TYPE_CHECKING:
    from mdserver.server.monitor.otel import OpenTelemetry


def connect_telemetry(
    settings: OtelSettings, server: Server, node: Node, metrics: Metrics | None
) -> "OpenTelemetry":
    """Have a server report to a collector, without metrics if it has none; run the result."""
    # The SDK is an extra, and takes 50 ms and some 10 MB: it is imported only by those who want it.
    from mdserver.server.monitor.otel import OpenTelemetry  # noqa: PLC0415

    clock = server.engine.clock
    collect = None if metrics is None else metrics.collect
    telemetry = OpenTelemetry(settings, node.settings.me, collect, clock)
    spans = SpanNode(node, Sampler(settings.sampling), telemetry.emit)
    server.engine.node = spans
    flusher = server.sessions.flusher
    measured = flusher.flushed

    def flushed(since: int) -> None:
        measured(since)
        spans.flushed(clock())

    flusher.flushed = flushed
    return telemetry
