"""Statistics and events of a server as messages (`Monitor = PUSH`), for clients and other members.

Once an interval each member publishes its statistics to a subject of its own. Events of the cluster
go to a second subject, soon after they happened. Both are STANDARD publications: they reach the
clients of every member, and they are neither cached nor written to a log. Only servers can publish
to these subjects, and only clients whose rights name `/__mdserver__` can read them
(docs/monitoring.md, "Messages").
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import attrs
import msgspec
import trio

from mdserver import limits
from mdserver.core.inputs import Announce
from mdserver.core.message import Publication, Qos
from mdserver.core.outputs import Log
from mdserver.core.subjects import EVENTS, STATISTICS, member_segment
from mdserver.limits import NS_PER_MS, NS_PER_S
from mdserver.server.engine import Engine
from mdserver.server.monitor.statistics import Statistics, latency

Row = dict[str, Any]


class Report:
    """Makes the documents in which a member publishes its statistics, one each interval.

    Rates and latencies in a document are those since the document before. `member` is the address
    of the member in its cluster, `interval` the time between two documents (ns). `unready` and
    `warning` return what is wrong in one sentence, None if nothing is.
    """

    def __init__(
        self,
        statistics: Statistics,
        member: str,
        interval: int,
        unready: Callable[[], str | None],
        warning: Callable[[], str | None],
    ) -> None:
        self.member = member
        self.interval = interval
        self._statistics = statistics
        self._unready = unready
        self._warning = warning
        self._time = statistics.time()
        self._totals = attrs.asdict(statistics.totals())
        self._histograms = statistics.histograms()
        self._latest: Row | None = None

    @property
    def latest(self) -> Row:
        """The document that was made last; the first one is made on demand."""
        return self._latest or self.make()

    def make(self) -> Row:
        """Return a document about the time since the one before."""
        statistics, before = self._statistics, self._totals
        time = statistics.time()
        seconds = max(time - self._time, NS_PER_MS) / NS_PER_S
        counted = attrs.asdict(statistics.totals())
        latencies = {
            name: latency(histogram.since(self._histograms[name]))
            for name, histogram in statistics.histograms().items()
        }
        self._time, self._totals = time, counted
        self._histograms = statistics.histograms()
        total = {name: value for name, value in counted.items() if name != "sessions"}
        self._latest = {
            "time": time // NS_PER_MS,
            "member": self.member,
            "node": statistics.node_name,
            "interval_ms": self.interval // NS_PER_MS,
            "unready": self._unready(),
            "warning": self._warning(),
            "now": statistics.gauges(),
            "total": total,
            "rates": {
                name: round((value - before[name]) / seconds, 3) for name, value in total.items()
            },
            "latency": latencies,
            **statistics.incidents(),
            "kafka": statistics.kafka_topics(),
        }
        return self._latest


class Push:
    """Publishes the statistics of a member once an interval, and the events of its cluster."""

    def __init__(self, engine: Engine, report: Report) -> None:
        segment = member_segment(report.member)
        self._engine = engine
        self._report = report
        self._statistics_subject = STATISTICS + segment
        self._events_subject = EVENTS + segment
        self._events: deque[Row] = deque(maxlen=limits.PUSH_EVENTS_MAX)
        self._happened = trio.Event()

    def take(self, line: Log) -> None:
        """Keep a line of the stream `cluster` for the next message of events."""
        if line.stream == "cluster":
            time = self._engine.clock() // NS_PER_MS
            self._events.append({"time": time, "event": line.name, **line.values})
            self._happened.set()

    async def run(self) -> None:
        """Publish until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._publish_events)
            while True:
                # The first document is published at once, so that a member that has come back is
                # not missing for an interval.
                self._publish(self._statistics_subject, self._report.make())
                await trio.sleep(self._report.interval / NS_PER_S)

    async def _publish_events(self) -> None:
        """Publish the events that happen together in one message."""
        while True:
            await self._happened.wait()
            await trio.sleep(limits.PUSH_EVENTS_PAUSE_MS / 1000)
            self._happened = trio.Event()
            events = list(self._events)
            self._events.clear()
            self._publish(self._events_subject, {"member": self._report.member, "events": events})

    def _publish(self, subject: str, document: Row) -> None:
        publication = Publication(
            subject,
            msgspec.json.encode(document),
            retained=False,
            qos=Qos.STANDARD,
            time=self._engine.clock(),
        )
        self._engine.dispatch(Announce([publication]))
