"""Sends spans and metrics to a collector, with OpenTelemetry's SDK and OTLP over HTTP.

Importing this module imports the SDK, so it is imported only with `Monitor = OTEL`
(`mdserver.server.monitor.telemetry`).

Nothing here waits for the collector in the server's own thread. Spans go into a bounded queue, from
which the SDK sends them in a thread of its own; while it is full the oldest are dropped. Metrics
are made in the server's thread, and sent from another one. A collector that is away costs a line in
the server log, one a minute.
"""

import logging
import math
import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import structlog
import trio
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import export as points
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric

from mdserver import __version__, limits
from mdserver.core.text import safe_text
from mdserver.limits import NS_PER_S
from mdserver.server.clock import Clock
from mdserver.server.monitor.publication_spans import TraceSpan
from mdserver.server.settings import OtelSettings

KINDS = {
    "publish": trace.SpanKind.SERVER,
    "forward": trace.SpanKind.CLIENT,
    "commit": trace.SpanKind.SERVER,
    "fan-out": trace.SpanKind.PRODUCER,
}
UNITS = {"_seconds": "s", "_bytes": "By"}
CUMULATIVE = points.AggregationTemporality.CUMULATIVE
REASON_CHARS_MAX = 500
_UNIT = re.compile("(_seconds|_bytes)$")
log = structlog.get_logger()


class GivenIds(IdGenerator):
    """Gives the next span of the SDK the ids that it is to have."""

    def __init__(self) -> None:
        self.trace = self.span = 0

    def generate_span_id(self) -> int:
        """Return the id of the span that is being made."""
        return self.span

    def generate_trace_id(self) -> int:
        """Return the trace of the span that is being made; it is asked for without a parent."""
        return self.trace


class Warnings(logging.Handler):
    """Keeps what the SDK logs, from any of its threads, until the server logs it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.kept: deque[str] = deque(maxlen=1)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.kept.append(safe_text(record.getMessage(), REASON_CHARS_MAX))


class OpenTelemetry:
    """The connection of a member to a collector; `collect` returns its metrics for Prometheus.

    A worker has none: its member has the metrics of all workers.
    """

    def __init__(
        self,
        settings: OtelSettings,
        member: str,
        collect: Callable[[], Iterable[Metric]] | None,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._collect = collect
        self._clock = clock
        self._started = clock()
        self._warnings = Warnings()
        logger = logging.getLogger("opentelemetry")
        logger.propagate = False
        logger.handlers = [self._warnings]
        self._resource = Resource.create(
            {
                "service.name": "mdserver",
                "service.version": __version__,
                "service.instance.id": member,
                "mdserver.node": settings.node,
            }
        )
        self._ids = GivenIds()
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,  # what comes here was chosen already
            resource=self._resource,
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self._processor = BatchSpanProcessor(
            OTLPSpanExporter(f"{settings.endpoint}/v1/traces", timeout=limits.OTEL_TIMEOUT_S),
            max_queue_size=limits.OTEL_SPANS_WAITING_MAX,
            schedule_delay_millis=1000 * limits.OTEL_SPANS_PAUSE_S,
            max_export_batch_size=limits.OTEL_SPANS_AT_ONCE,
        )
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("mdserver", __version__)
        self._metrics = OTLPMetricExporter(
            f"{settings.endpoint}/v1/metrics", timeout=limits.OTEL_TIMEOUT_S
        )

    def emit(self, span: TraceSpan) -> None:
        """Queue a span. Never blocks and never raises, whatever the SDK does."""
        try:
            self._ids.trace, self._ids.span = span.trace, span.id
            context = None
            if span.parent:
                flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
                above = trace.SpanContext(span.trace, span.parent, span.remote, flags)
                context = trace.set_span_in_context(trace.NonRecordingSpan(above))
            kind = KINDS[span.name]
            made = self._tracer.start_span(
                span.name, context, kind, span.attributes, start_time=span.start
            )
            made.end(span.end)
        except Exception as error:
            self._warnings.kept.append(safe_text(repr(error), REASON_CHARS_MAX))

    async def run(self) -> None:
        """Send metrics until cancelled, and then what still waits, for a few seconds at most."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._log_trouble)
                while True:
                    await self._send_metrics()
                    await trio.sleep(self._settings.interval / NS_PER_S)
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(limits.OTEL_END_S):
                await self._send_metrics()
                await trio.to_thread.run_sync(self._provider.shutdown, abandon_on_cancel=True)

    async def _send_metrics(self) -> None:
        if self._collect is None:
            return
        data = metrics_data(self._collect(), self._resource, self._started, self._clock())
        await trio.to_thread.run_sync(self._export_metrics, data, abandon_on_cancel=True)

    def _export_metrics(self, data: points.MetricsData) -> None:
        try:
            self._metrics.export(data)
        except Exception as error:
            self._warnings.kept.append(safe_text(repr(error), REASON_CHARS_MAX))

    async def _log_trouble(self) -> None:
        """Log what the SDK complains of, once a while."""
        while True:
            await trio.sleep(1)
            if self._warnings.kept:
                reason = self._warnings.kept.pop()
                log.warning("telemetry not sent", reason=reason, to=self._settings.endpoint)
                await trio.sleep(limits.OTEL_TROUBLE_S)
                self._warnings.kept.clear()


def metrics_data(
    metrics: Iterable[Metric], resource: Resource, started: int, now: int
) -> points.MetricsData:
    """Return metrics of Prometheus's model in that of OpenTelemetry; times in ns.

    Names change as the two models define: `mdserver_sent_bytes_total` is `mdserver.sent` in `By`.
    """
    found = []
    for metric in metrics:
        data = data_of(metric, started, now)
        if data is None:
            continue
        unit = _UNIT.search(metric.name)
        name = _UNIT.sub("", metric.name).replace("mdserver_", "mdserver.", 1)
        found.append(
            points.Metric(name, metric.documentation, UNITS[unit[0]] if unit else "1", data)
        )
    scope = InstrumentationScope("mdserver", __version__)
    return points.MetricsData(
        [points.ResourceMetrics(resource, [points.ScopeMetrics(scope, found, "")], "")]
    )


def data_of(metric: Metric, started: int, now: int) -> points.DataT | None:
    """Return the values of a metric; None for a kind that OpenTelemetry has elsewhere."""
    if metric.type == "histogram":
        return points.Histogram([histogram_of(metric, started, now)], CUMULATIVE)
    numbers = [
        points.NumberDataPoint(sample.labels, started, now, sample.value)
        for sample in metric.samples
    ]
    if metric.type == "counter":
        return points.Sum(numbers, CUMULATIVE, is_monotonic=True)
    return points.Gauge(numbers) if metric.type == "gauge" else None


def histogram_of(metric: Metric, started: int, now: int) -> points.HistogramDataPoint:
    """Return a histogram without labels, whose buckets are cumulative in Prometheus's model."""
    bounds: list[float] = []
    counts: list[int] = []
    below, total = 0, 0.0
    for sample in metric.samples:
        if sample.name.endswith("_bucket"):
            bound, reached = float(sample.labels["le"]), int(sample.value)
            counts.append(reached - below)
            below = reached
            if bound != math.inf:
                bounds.append(bound)
        elif sample.name.endswith("_sum"):
            total = sample.value
    # The smallest and the largest value are not known.
    unknown: Any = None
    return points.HistogramDataPoint(
        {}, started, now, below, total, counts, bounds, min=unknown, max=unknown
    )
