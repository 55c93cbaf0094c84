"""`/metrics` of the monitor, for Prometheus and other programs that read its formats.

The library writes the exposition formats; this module defines the metrics. Names and units follow
the conventions of Prometheus: base units (seconds, bytes), `_total` for counters. The labels are
the reason of a refusal, the close code of a session and the topic of Kafka, of which there are a
few dozen. Nothing that a client chooses becomes a label, because each value of a label makes a time
series of its own.
"""

from collections.abc import Callable, Iterator
from typing import Any

import attrs
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from mdserver import __version__
from mdserver.codec.http import Request
from mdserver.core.histogram import Histogram
from mdserver.limits import CLOSE_SLOW_CONSUMER, NS_PER_S
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.disk.journalling import JournalState
from mdserver.server.http.answers import NO_STORE, Parameters
from mdserver.server.monitor.statistics import Statistics

GAUGES = {
    "sessions": ("sessions", "WebSocket sessions and HTTP streams that are connected."),
    "connections": ("connections", "Connections of clients that are open."),
    "subscriptions": ("subscriptions", "Subscriptions of all sessions."),
    "subjects": ("subjects", "Subjects of which something is remembered."),
    "cached_messages": ("cached_messages", "Messages in the cache."),
    "cache_bytes": ("cache_bytes", "What the cache counts for MaxCacheBytes."),
    "slow_consumers": ("slow_consumers", "Sessions whose socket takes no more for now."),
    "waiting_publications": ("waiting_publications", "Publications that have no result yet."),
    "subject_groups": ("subject_groups", "Subject groups of the cluster."),
    "coordinated_groups": ("coordinated_groups", "Subject groups that this member coordinates."),
    "groups_without_coordinator": (
        "groups_without_coordinator",
        "Subject groups without a coordinator, as far as this member knows.",
    ),
    "lag_entries": ("uncommitted_entries", "Entries in the logs here that are not committed yet."),
    "behind_entries": (
        "behind_entries",
        "Entries that coordinators in sight have committed and this member has not applied yet.",
    ),
    "members_in_sight": ("members_in_sight", "Members that this one has a link to, and itself."),
}
"""Name in the statistics -> name of the metric without its prefix, and its help text."""

COUNTERS = {
    "connections": ("connections_opened", "Connections of clients that were let in."),
    "disconnections": ("connections_closed", "Connections of clients that ended."),
    "messages_in": ("messages_received", "Publications of clients here that were allowed."),
    "messages_out": ("messages_sent", "Deliveries to sessions here."),
    "bytes_in": ("received_bytes", "Bytes that clients sent, without TLS."),
    "bytes_out": ("sent_bytes", "Bytes that clients were sent, without TLS."),
}

KAFKA_COUNTERS = {
    "records": ("records", "Records that were read."),
    "poison": ("poison_records", "Records that are no messages, and were left out."),
    "strays": ("stray_records", "Records in another partition than that of their key."),
    "repeats": ("repeats", "Repeated publications that were passed over."),
    "assignments": ("assignments", "How often this member began to read, or went on elsewhere."),
}
"""Name in the statistics -> name of the metric without its prefix, and its help text."""

KAFKA_LAG = {
    "partitions": ("partitions", "Partitions that are read."),
    "lag": ("lag_records", "Offsets that are not read yet, of all partitions of a topic."),
    "lag_max": ("lag_records_max", "The same, of that partition of a topic that lacks most."),
}


class Metrics(Collector):
    """The metrics of one server, computed for each scrape."""

    def __init__(self, statistics: Statistics, unready: Callable[[], str | None]) -> None:
        self._statistics = statistics
        self._unready = unready

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its current values."""
        statistics = self._statistics
        measures = statistics.measures
        yield InfoMetricFamily("mdserver", "The version that runs.", {"version": __version__})
        ready = float(self._unready() is None)
        yield GaugeMetricFamily("mdserver_ready", "Whether clients should be sent here.", ready)
        for name, value in statistics.gauges().items():
            metric, meaning = GAUGES[name]
            yield GaugeMetricFamily(f"mdserver_{metric}", meaning, value)
        counted = attrs.asdict(statistics.totals())
        for name, (metric, meaning) in COUNTERS.items():
            yield CounterMetricFamily(f"mdserver_{metric}", meaning, counted[name])
        yield labelled(
            "mdserver_refusals", "What clients were refused.", "reason", measures.refused
        )
        # A rate misses the first increase of a series that was not there before: one has an alert.
        closed = {str(CLOSE_SLOW_CONSUMER): 0}
        closed |= {str(code): count for code, count in measures.closed.items()}
        yield labelled("mdserver_sessions_ended", "Sessions that the server ended.", "code", closed)
        yield CounterMetricFamily(
            "mdserver_slow_consumers_relieved",
            "How often what waits for a slow consumer was made less.",
            measures.relieved,
        )
        yield CounterMetricFamily(
            "mdserver_elections_won",
            "How often this member became coordinator of a subject group.",
            measures.coordinated,
        )
        journal = statistics.journal() if statistics.journal else JournalState(None, 0, 0)
        yield GaugeMetricFamily(
            "mdserver_journal_trouble",
            "Whether something is wrong with the journal, which /health/ready says.",
            float(journal.trouble is not None),
        )
        yield GaugeMetricFamily(
            "mdserver_journal_waiting_bytes",
            "Bytes of the journal that are not written yet.",
            journal.waiting_bytes,
        )
        yield CounterMetricFamily(
            "mdserver_journal_lost_lines",
            "Lines that the journal lacks.",
            journal.lost_lines,
        )
        yield histogram(
            "mdserver_commit_latency_seconds",
            "From a publication of a client here to its commit.",
            statistics.commits,
        )
        yield histogram(
            "mdserver_send_latency_seconds",
            "From the commit of messages to their sending to the sockets.",
            measures.sends,
        )
        yield histogram(
            "mdserver_loop_delay_seconds", "How late tasks are woken up.", measures.loop_delay
        )
        kafka = statistics.kafka_topics()
        if kafka is not None:
            yield from kafka_metrics(kafka)


def kafka_metrics(counts: dict[str, Any]) -> Iterator[Metric]:
    """Yield the metrics of Kafka from what `kafka_lag.summary` returns."""
    for name, (metric, meaning) in KAFKA_COUNTERS.items():
        yield CounterMetricFamily(f"mdserver_kafka_{metric}", meaning, counts[name])
    yield GaugeMetricFamily(
        "mdserver_kafka_waiting_publications",
        "Publications of which Kafka has not said yet whether it has them.",
        counts["waiting"],
    )
    errors = CounterMetricFamily(
        "mdserver_kafka_errors",
        "What failed: to look which topics there are, to read, to write.",
        labels=["task"],
    )
    for task, count in counts["errors"].items():
        errors.add_metric([task], count)
    yield errors
    for name, (metric, meaning) in KAFKA_LAG.items():
        family = GaugeMetricFamily(f"mdserver_kafka_{metric}", meaning, labels=["topic"])
        for topic, found in counts["topics"].items():
            family.add_metric([topic], found[name])
        yield family


def labelled(name: str, meaning: str, label: str, counts: dict[str, int]) -> Metric:
    """Return a counter with one label."""
    family = CounterMetricFamily(name, meaning, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family


def histogram(name: str, meaning: str, counted: Histogram) -> Metric:
    """Return a histogram with its buckets by powers of two."""
    buckets = [
        ("+Inf" if bound == float("inf") else repr(bound), float(count))
        for bound, count in counted.buckets()
    ]
    return HistogramMetricFamily(name, meaning, buckets, counted.total / NS_PER_S)


class MetricsPage:
    """The metrics in the format that `Accept` asks for: OpenMetrics, or Prometheus's own text."""

    def __init__(self, metrics: Metrics) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        self._registry.register(metrics)

    async def __call__(self, request: Request, _exchange: Exchange) -> Answer:
        """Return all metrics. The parameter `format` is accepted and has no effect."""
        Parameters(request, ("format",)).check()
        encode, content_type = choose_encoder(request.header(b"accept") or "")
        headers = [(b"content-type", content_type.encode()), NO_STORE]
        return Answer(200, headers, encode(self._registry))
