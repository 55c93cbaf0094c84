"""The statistics of workers: what each reports, and their sum at the server."""

from collections.abc import Iterable
from typing import Any

import attrs
from attrs import define, field

from mdserver.core.histogram import Histogram
from mdserver.server.clients.measures import Measures
from mdserver.server.monitor.statistics import INDICATORS, Statistics, Totals
from mdserver.server.workers.control import WorkerReport

SUMMED = ("sessions", "connections", "subscriptions", "slow_consumers", "waiting_publications")
"""The gauges that are summed. The server has its own values of the others, or the same ones."""


def figures_of(statistics: Statistics) -> WorkerReport:
    """Return the statistics of this process."""
    measures, gauges = statistics.measures, statistics.gauges()
    return WorkerReport(
        totals=attrs.asdict(statistics.totals()),
        gauges={name: gauges[name] for name in SUMMED},
        refused=measures.refused,
        closed=measures.closed,
        relieved=measures.relieved,
        histograms={
            name: (histogram.counts, histogram.total)
            for name, histogram in statistics.histograms().items()
        },
    )


def summed(tables: Iterable[dict[Any, int]]) -> dict[Any, int]:
    """Return one table with the sum of each number."""
    found: dict[Any, int] = {}
    for table in tables:
        for name, value in table.items():
            found[name] = found.get(name, 0) + value
    return found


@define(eq=False)
class WorkerFigures:
    """The figures of all workers: of each the newest, by its slot.

    `_past` has the last ones of workers that ended, without gauges: counters never fall. What a
    worker counted after its last report is lost if it is killed.
    """

    _now: dict[int, WorkerReport] = field(init=False, factory=dict)
    _past: list[WorkerReport] = field(init=False, factory=list)

    def take(self, slot: int, figures: WorkerReport) -> None:
        """Take a report of a worker."""
        self._now[slot] = figures

    def ended(self, slot: int) -> None:
        """Keep what a worker counted that ended."""
        last = self._now.pop(slot, None)
        if last is not None:
            # One for all that ended, since there may be many of them in the course of time.
            self._past = [self._sum([*self._past, without_gauges(last)])]

    def sum(self) -> WorkerReport:
        """Return the sum."""
        return self._sum([*self._now.values(), *self._past])

    # What `monitor.statistics` adds to the server's own figures.

    def totals(self) -> Totals:
        """Return their counters, also of workers that ended."""
        return Totals(**dict.fromkeys(INDICATORS, 0) | self.sum().totals)

    def gauges(self) -> dict[str, int]:
        """Return the sums of the gauges that are summed."""
        return dict.fromkeys(SUMMED, 0) | self.sum().gauges

    def measures(self) -> Measures:
        """Return their counters of the network side."""
        found, figures = Measures(), self.sum()
        found.sends = self._histogram(figures, "commit_to_socket")
        found.loop_delay = self._histogram(figures, "loop_delay")
        found.refused, found.closed = figures.refused, figures.closed
        found.relieved = figures.relieved
        return found

    def commits(self) -> Histogram:
        """Return the times from publications of their clients to their commits."""
        return self._histogram(self.sum(), "publication_to_commit")

    @staticmethod
    def _histogram(figures: WorkerReport, name: str) -> Histogram:
        found = Histogram()
        counted = figures.histograms.get(name)
        if counted is not None:
            found.counts, found.total = list(counted[0]), counted[1]
        return found

    @staticmethod
    def _sum(every: list[WorkerReport]) -> WorkerReport:
        histograms: dict[str, tuple[list[int], int]] = {}
        for figures in every:
            for name, (counts, total) in figures.histograms.items():
                before, sum_before = histograms.get(name, ([0] * len(counts), 0))
                both = [a + b for a, b in zip(before, counts, strict=True)]
                histograms[name] = both, sum_before + total
        return WorkerReport(
            totals=summed(figures.totals for figures in every),
            gauges=summed(figures.gauges for figures in every),
            refused=summed(figures.refused for figures in every),
            closed=summed(figures.closed for figures in every),
            relieved=sum(figures.relieved for figures in every),
            histograms=histograms,
        )


def without_gauges(figures: WorkerReport) -> WorkerReport:
    """Return figures of a process that is no more: it has no sessions and no gauges."""
    return WorkerReport(
        totals=figures.totals | {"sessions": 0},
        gauges={},
        refused=figures.refused,
        closed=figures.closed,
        relieved=figures.relieved,
        histograms=figures.histograms,
    )
