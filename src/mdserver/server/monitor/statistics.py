"""The statistics of a running server: counters, gauges, and windows of time.

Everything that shows statistics (log lines, journal, HTTP, Prometheus, JMX, messages) takes them
from here. Counters only grow, and are incremented by the code that they are about
(`mdserver.server.clients.measures`). Once a second their increase goes as a sample into the windows
(`mdserver.core.windows`). Gauges are computed on request.
"""

from collections.abc import Callable
from typing import Any, Protocol

import attrs
import trio

from mdserver.cluster.node import Node
from mdserver.core.histogram import Histogram
from mdserver.core.outputs import Log
from mdserver.core.windows import Windows, WindowSummary
from mdserver.limits import (
    CLOSE_SLOW_CONSUMER,
    LOOP_DELAY_SAMPLE_MS,
    NS_PER_MS,
    NS_PER_S,
    STATISTICS_SAMPLE_MS,
)
from mdserver.server.clients.measures import Measures
from mdserver.server.disk.journalling import JournalState
from mdserver.server.monitor.kafka_lag import summary
from mdserver.server.server import Server

QUANTILES = (0.5, 0.99, 0.999)


@attrs.frozen(kw_only=True)
class Totals:
    """The counters since the start, and `sessions`, the number of sessions now."""

    sessions: int
    connections: int
    disconnections: int
    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int


INDICATORS = tuple(field.name for field in attrs.fields(Totals))
"""The indicators of the windows: `sessions` as a number, the others as rates per second."""


def totals(server: Server, node: Node) -> Totals:
    """Return the counters now, in constant time."""
    sessions, entered = server.sessions, server.connections_total
    return Totals(
        sessions=len(sessions.outboxes),
        connections=entered,
        disconnections=entered - server.connections,
        messages_in=node.broker.publications.count,
        messages_out=sessions.deliveries,
        bytes_in=sessions.traffic.received,
        bytes_out=sessions.traffic.sent,
    )


class WorkerStatistics(Protocol):
    """The sums of the statistics of all worker processes."""

    def totals(self) -> Totals:
        """Return their counters, also of workers that ended."""

    def gauges(self) -> dict[str, int]:
        """Return their sessions, connections and the like, by the names of `Statistics.gauges`."""

    def measures(self) -> Measures:
        """Return their counters of the network side."""

    def commits(self) -> Histogram:
        """Return the times from publications of their clients to their commits."""


class Statistics:
    """Samples a server and returns the results in several forms.

    `windows` may be filled with those of an earlier process before `run`. `journal` returns the
    state of the journal; it stays None without a journal. `kafka` returns what is known of the
    topics, as plain values, if Kafka is the log. With `workers` their statistics are added to those
    of this process.
    """

    def __init__(self, server: Server, node: Node, workers: WorkerStatistics | None = None) -> None:
        self.windows = Windows(INDICATORS)
        self.journal: Callable[[], JournalState] | None = None
        self.kafka: Callable[[], dict[str, Any]] | None = None
        self._server = server
        self._node = node
        self._workers = workers
        self._before = self.totals()
        self._sampled_at = server.engine.clock()
        self._summaries: dict[str, dict[str, WindowSummary]] = {}
        self._summaries_at = 0

    def take(self, line: Log) -> None:
        """Count the groups of which this member became coordinator."""
        if line.stream == "cluster":
            if line.name == "active":
                self._server.sessions.measures.coordinated += 1
            elif line.name == "coordinates":
                groups = line.values["groups"]
                assert isinstance(groups, int)
                self._server.sessions.measures.coordinated += groups

    async def run(self) -> None:
        """Take samples until cancelled, and measure how late the event loop wakes tasks up."""
        clock = self._server.engine.clock
        delays = self._server.sessions.measures.loop_delay
        pause = LOOP_DELAY_SAMPLE_MS * NS_PER_MS
        while True:
            due = clock() + pause
            await trio.sleep(pause / NS_PER_S)
            now = clock()
            delays.add(now - due)
            if now - self._sampled_at >= STATISTICS_SAMPLE_MS * NS_PER_MS - pause // 2:
                self.sample(now)

    async def write_lines(self, take: Callable[[Log], None], interval: int) -> None:
        """Call `take` with a line every `interval` (ns) until cancelled."""
        while True:
            await trio.sleep(interval / NS_PER_S)
            take(self.line())

    def sample(self, now: int) -> None:
        """Add the increase of the counters since the last sample to the windows."""
        elapsed = now - self._sampled_at
        if elapsed <= 0:
            return
        counted, before = self.totals(), self._before
        values: dict[str, float] = {
            name: (getattr(counted, name) - getattr(before, name)) * NS_PER_S / elapsed
            for name in INDICATORS
        }
        values["sessions"] = counted.sessions
        self.windows.add(values, elapsed, now)
        self._before, self._sampled_at = counted, now

    def summaries(self) -> dict[str, dict[str, WindowSummary]]:
        """Return indicator -> window -> summary of the indicator in that window.

        They are computed once for each sample, however many read them.
        """
        if self._summaries_at != self._sampled_at or not self._summaries:
            now = self._server.engine.clock()
            self._summaries = {name: self.windows.summaries(name, now) for name in INDICATORS}
            self._summaries_at = self._sampled_at
        return self._summaries

    def gauges(self) -> dict[str, Any]:
        """Return the gauges now; takes time in proportion to sessions and subject groups."""
        server, node = self._server, self._node
        counts, settings = node.broker.counts(), node.settings
        groups = node.groups
        outboxes = server.sessions.outboxes.values()
        return {
            "sessions": len(outboxes),
            "connections": server.connections,
            "subscriptions": counts.subscriptions,
            "subjects": counts.subjects,
            "cached_messages": counts.cached_messages,
            "cache_bytes": counts.cache_bytes,
            "slow_consumers": sum(bool(outbox.unsent) for outbox in outboxes),
            "waiting_publications": sum(len(group.queue.proposals) for group in node.groups),
            "subject_groups": len(groups),
            "coordinated_groups": sum(
                group.leadership.coordinator == settings.me for group in groups
            ),
            "groups_without_coordinator": sum(not group.led for group in groups),
            "lag_entries": sum(group.log.length - group.log.committed for group in groups),
            "behind_entries": sum(node.following.behind(group) or 0 for group in groups),
            "members_in_sight": 1 + len(node.outgoing.linked),
        } | self._gauges_of_workers()

    def _gauges_of_workers(self) -> dict[str, int]:
        """Return the gauges that clients at workers have a part in; empty without workers."""
        if self._workers is None:
            return {}
        return self._workers.gauges()

    def line(self) -> Log:
        """Return a line of the stream `stats`, for the audit log and the journal."""
        counted = attrs.asdict(self.totals())
        # The broker's count of sessions takes its place: it includes requests that are being
        # answered.
        del counted["sessions"]
        lines = {f"{name}_total": value for name, value in counted.items()}
        counts = attrs.asdict(self._node.broker.counts())
        if self._workers is not None:
            of_workers = self._workers.gauges()
            counts |= {name: of_workers[name] for name in ("sessions", "subscriptions")}
        return Log("stats", "stats", {"time": self.time(), **counts, **lines})

    def document(self) -> dict[str, Any]:
        """Return all statistics as plain values, for JSON."""
        return {
            "time": self.time() // NS_PER_MS,
            "node": self.node_name,
            "now": self.gauges(),
            "total": {
                name: value
                for name, value in attrs.asdict(self.totals()).items()
                if name != "sessions"
            },
            "windows": {
                name: {
                    window: attrs.asdict(summary, value_serializer=rounded)
                    for window, summary in found.items()
                }
                for name, found in self.summaries().items()
            },
            "latency": {name: latency(found) for name, found in self._measured().items()},
            **self.incidents(),
            "kafka": self.kafka_partitions(),
        }

    def incidents(self) -> dict[str, Any]:
        """Return refusals, closed sessions, slow consumers, elections and the journal's state.

        All are counted since the start, and are plain values.
        """
        measures = self.measures
        return {
            "refused": dict(sorted(measures.refused.items())),
            "closed": {str(code): count for code, count in sorted(measures.closed.items())},
            "slow_consumers": {
                "relieved": measures.relieved,
                "disconnected": measures.closed.get(CLOSE_SLOW_CONSUMER, 0),
            },
            "elections_won": measures.coordinated,
            "journal": None if self.journal is None else attrs.asdict(self.journal()),
        }

    def kafka_topics(self) -> dict[str, Any] | None:
        """Return what is known of Kafka, with the lag of each topic; None without it."""
        return None if self.kafka is None else summary(self.kafka())

    def kafka_partitions(self) -> dict[str, Any] | None:
        """Return the same with the lag of each partition as well."""
        if self.kafka is None:
            return None
        counts = self.kafka()
        return {**summary(counts), "lag": counts["lag"]}

    def histograms(self) -> dict[str, Histogram]:
        """Return copies of all histograms of latencies."""
        return {name: found.copy() for name, found in self._measured().items()}

    def _measured(self) -> dict[str, Histogram]:
        measures = self.measures
        return {
            "publication_to_commit": self.commits,
            "commit_to_socket": measures.sends,
            "loop_delay": measures.loop_delay,
        }

    def time(self) -> int:
        """Return the time of the server (ns)."""
        return self._server.engine.clock()

    @property
    def node_name(self) -> str:
        """The name that the configuration gives this server."""
        return self._server.settings.node_name

    def totals(self) -> Totals:
        """Return the counters since the start."""
        here = totals(self._server, self._node)
        if self._workers is None:
            return here
        of_workers = attrs.asdict(self._workers.totals())
        return Totals(
            **{name: value + of_workers[name] for name, value in attrs.asdict(here).items()}
        )

    @property
    def measures(self) -> Measures:
        """The counters of the network side: a snapshot if there are workers."""
        here = self._server.sessions.measures
        return here if self._workers is None else here.plus(self._workers.measures())

    @property
    def commits(self) -> Histogram:
        """The times from publications of this member's clients to their commits."""
        here = self._node.pending.commits
        return here if self._workers is None else here.plus(self._workers.commits())

    def latest(self) -> dict[str, float]:
        """Return the average of each indicator over the last minute."""
        found = self.summaries()
        return {name: found[name]["1min"].average for name in INDICATORS}


def latency(histogram: Histogram) -> dict[str, float]:
    """Return the count of a histogram, and its average and quantiles in seconds."""
    count = histogram.count
    average = histogram.total / count / NS_PER_S if count else 0.0
    parts = zip(QUANTILES, histogram.quantiles(QUANTILES), strict=True)
    return {
        "count": count,
        "average_s": round(average, 9),
        **{f"p{100 * part:g}_s": round(seconds, 9) for part, seconds in parts},
    }


def rounded(_instance: object, _attribute: object, value: Any) -> Any:
    """Return a value rounded to three decimals; the signature is that of attrs' serializers."""
    return round(value, 3) if isinstance(value, float) else value
