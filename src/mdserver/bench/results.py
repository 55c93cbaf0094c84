"""The result of a benchmark: a row for each measurement, as a table or as JSON lines.

The columns are a contract with the programs that read the lines (docs/performance.md, "Columns").
"""

import json
import os
import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import attrs
from attrs import define, field, frozen
from hdrh.histogram import HdrHistogram
from rich.console import Console
from rich.table import Table

from mdserver import __version__

COLUMNS_VERSION = 1
_US_MAX = 60_000_000
_SIGNIFICANT_DIGITS = 3
_PLOTTED = "plotted"


class Latencies:
    """A histogram of latencies from one microsecond to one minute, to three digits or fewer."""

    def __init__(self, digits: int = _SIGNIFICANT_DIGITS) -> None:
        self._histogram = HdrHistogram(1, _US_MAX, digits)

    @property
    def count(self) -> int:
        """How many latencies were added."""
        return int(self._histogram.get_total_count())

    def add(self, ns: int, count: int) -> None:
        """Add `count` latencies of this length."""
        self._histogram.record_value(min(max(ns // 1000, 1), _US_MAX), count)

    def merge(self, counts: Iterable[tuple[int, int]]) -> None:
        """Add the counts of another histogram, as `counts` returns them."""
        for value_us, count in counts:
            self._histogram.record_value(value_us, count)

    def counts(self) -> list[tuple[int, int]]:
        """Return each recorded value, in microseconds, with its count."""
        return [
            (bucket.value_iterated_to, bucket.count_at_value_iterated_to)
            for bucket in self._histogram.get_recorded_iterator()
        ]

    def ms_at(self, percentile: float) -> float:
        """Return the latency in ms that this share of all, in percent, does not exceed."""
        return float(self._histogram.get_value_at_percentile(percentile)) / 1000

    @property
    def max_ms(self) -> float:
        """The longest latency, in milliseconds."""
        return float(self._histogram.get_max_value()) / 1000

    def fill(self, row: "Row") -> None:
        """Write the percentiles into a row, if there are any latencies."""
        if not self.count:
            return
        row.p50_ms, row.p95_ms = self.ms_at(50), self.ms_at(95)
        row.p99_ms, row.p999_ms = self.ms_at(99), self.ms_at(99.9)
        row.max_ms = self.max_ms
        row.latencies = self


@frozen
class Moment:
    """What happened in one interval of a measurement; `second` is its begin."""

    second: float
    per_s: float
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


@define(kw_only=True)
class Row:
    """One measurement; a column that does not apply is None.

    `count` is how many messages or connections were measured in `seconds`, and `per_s` their rate
    (deliveries for a fan-out). `per_cpu_s` is the same for each second of processor time of the
    server, which other load on the computer changes less. `floor_per_s` and `floor_per_cpu_s` are
    the same of the floor, `ratio` and `cpu_ratio` the rates divided by them, `floor_p99_ms` is the
    99th percentile of its latencies. `resident_kib` is the memory of the server at the end, and
    `kib_each` what one of `count` added to it. Latencies are in milliseconds. `intended_per_s` is
    how many publications a second an open loop intends, and `reconnects` counts the connections
    that were opened again. `grown_percent` is by how much the memory grew after it had settled, and
    `descriptors_left` how many descriptors of the server the clients left open. `latencies` and
    `course` are no columns: plots are made of them.
    """

    bench: str
    mode: str
    encoding: str
    connections: int
    content_bytes: int | None = None
    count: int
    seconds: float
    per_s: float
    per_cpu_s: float | None = None
    floor_per_s: float | None = None
    floor_per_cpu_s: float | None = None
    ratio: float | None = None
    cpu_ratio: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    max_ms: float | None = None
    floor_p99_ms: float | None = None
    lost: int | None = None
    repeated: int | None = None
    altered: int | None = None
    resident_kib: int | None = None
    kib_each: float | None = None
    intended_per_s: float | None = None
    reconnects: int | None = None
    grown_percent: float | None = None
    descriptors_left: int | None = None
    latencies: Latencies | None = field(default=None, metadata={_PLOTTED: True})
    course: Sequence[Moment] = field(default=(), metadata={_PLOTTED: True})


def columns() -> Iterator[str]:
    """Return the names of the columns, in their order."""
    return (each.name for each in attrs.fields(Row) if not each.metadata.get(_PLOTTED))


def lines(rows: Sequence[Row]) -> list[str]:
    """Return a JSON line for each row, with what was measured, where and when."""
    where = environment()
    return [json.dumps(where | {name: getattr(row, name) for name in columns()}) for row in rows]


def write(rows: Sequence[Row], path: Path) -> None:
    """Append the JSON lines of the rows to a file."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines(rows))


def environment() -> dict[str, object]:
    """Return what was measured, where and when: the first columns of a line."""
    return {
        "columns_version": COLUMNS_VERSION,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "mdserver": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": os.cpu_count(),
    }


def show(rows: Sequence[Row], console: Console) -> None:
    """Print a table with a column for each row, of the values that apply to any of them."""
    table = Table(show_header=False)
    for name in columns():
        cells = [cell(getattr(row, name)) for row in rows]
        if any(cells):
            table.add_row(name.replace("_", " "), *cells)
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(table)


def cell(value: object) -> str:
    """Return a value as it stands in a table; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
