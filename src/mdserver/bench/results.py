"""The result of a benchmark: a row for each measurement, as a table or as JSON lines.

The columns are a contract with the programs that read the lines (docs/performance.md, "Columns").
"""

import json
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import attrs
from attrs import define
from hdrh.histogram import HdrHistogram
from rich.console import Console
from rich.table import Table

from mdserver import __version__

COLUMNS_VERSION = 1
_US_MAX = 60_000_000
_SIGNIFICANT_DIGITS = 3


@define(kw_only=True)
class Row:
    """One measurement; a column that does not apply is None.

    `count` is how many messages or connections were measured in `seconds`, and `per_s` their rate
    (deliveries for a fan-out). `per_cpu_s` is the same for each second of processor time of the
    server, which other load on the computer changes less. `floor_per_s` and `floor_per_cpu_s` are
    the same of the floor, `ratio` and `cpu_ratio` the rates divided by them. `resident_kib` is the
    memory of the server at the end, and `kib_each` what one of `count` added to it. Latencies are
    in milliseconds.
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
    lost: int | None = None
    repeated: int | None = None
    altered: int | None = None
    resident_kib: int | None = None
    kib_each: float | None = None


class Latencies:
    """A histogram of latencies from one microsecond to one minute, to three digits."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, _US_MAX, _SIGNIFICANT_DIGITS)

    def add(self, ns: int, count: int) -> None:
        """Add `count` latencies of this length."""
        self._histogram.record_value(min(max(ns // 1000, 1), _US_MAX), count)

    def fill(self, row: Row) -> None:
        """Write the percentiles into a row."""
        at = self._histogram.get_value_at_percentile
        row.p50_ms, row.p95_ms = at(50) / 1000, at(95) / 1000
        row.p99_ms, row.p999_ms = at(99) / 1000, at(99.9) / 1000
        row.max_ms = self._histogram.get_max_value() / 1000


def write(rows: Sequence[Row], path: Path) -> None:
    """Append one JSON line for each row, with what was measured, where and when."""
    where = {
        "columns_version": COLUMNS_VERSION,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "mdserver": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": os.cpu_count(),
    }
    with path.open("a", encoding="utf-8") as lines:
        for row in rows:
            lines.write(json.dumps(where | attrs.asdict(row)) + "\n")


def show(rows: Sequence[Row], console: Console) -> None:
    """Print a table with a column for each row, of the values that apply to any of them."""
    table = Table(show_header=False)
    for name in [field.name for field in attrs.fields(Row)]:
        cells = [_cell(getattr(row, name)) for row in rows]
        if any(cells):
            table.add_row(name.replace("_", " "), *cells)
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(table)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
