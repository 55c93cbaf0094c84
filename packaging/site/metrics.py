"""Write docs/metrics.md from what the server exposes: `make docs`.

python packaging/site/metrics.py [FILE]
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric

from mdserver.config import load
from mdserver.server.app import build
from mdserver.server.monitor.prometheus import Metrics, kafka_metrics

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
HEAD = """\
# Metrics

Every metric that `GET /metrics` of a server has. [Monitoring](monitoring.md#prometheus) says how to
scrape them, and which alerts and board come along; `Monitor = OTEL` sends the same to a collector
([OpenTelemetry](monitoring.md#opentelemetry)). `make docs` makes this page from the server.

Counters begin with 0 when the server starts. A histogram is three series: `_bucket` with the label
`le`, `_sum` and `_count`; its buckets end at powers of two nanoseconds. No label has a value that a
client chose.
"""
LABELS = {
    "code": "the close code",
    "reason": "a status, the code of an error, an HTTP status, or the limit that was reached",
    "task": "`look`, `read` or `write`",
    "topic": "the topic, or `(others)` beyond those that are shown",
    "version": "the version",
}
ENDINGS = {"counter": "_total", "info": "_info"}


def families() -> dict[str, list[Metric]]:
    """Return all metrics, with something in each that has labels."""
    app = build(load(overrides=["Listen=127.0.0.1:0", "Entitlement=None"]).config)
    app.server.sessions.measures.refuse("PUBLISH_DENIED")
    counts = dict.fromkeys(("records", "poison", "strays", "repeats", "assignments", "waiting"), 0)
    topic = {"partitions": 1, "lag": 0, "lag_max": 0}
    tasks = dict.fromkeys(("look", "read", "write"), 0)
    kafka = {**counts, "errors": tasks, "topics": {"prices": topic}}
    return {
        "The server": list(Metrics(app.statistics, lambda: None).collect()),
        "Kafka as the log": list(kafka_metrics(kafka)),
        "The process": list(ProcessCollector(registry=CollectorRegistry()).collect()),
    }


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield HEAD
    for title, metrics in families().items():
        yield f"## {title}\n"
        yield "| metric | type | labels | |\n|---|---|---|---|"
        for metric in metrics:
            yield row(metric)
        yield ""


def row(metric: Metric) -> str:
    """Return the row of a metric."""
    names = {name for sample in metric.samples for name in sample.labels} - {"le"}
    labels = "; ".join(f"`{name}`: {LABELS[name]}" for name in sorted(names))
    name = metric.name.removesuffix("_total") + ENDINGS.get(metric.type, "")
    return f"| `{name}` | {metric.type} | {labels} | {metric.documentation} |"


if __name__ == "__main__":
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    file.write_text("\n".join(page()).rstrip() + "\n", encoding="utf-8")
