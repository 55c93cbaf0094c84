"""The report of a measurement: one HTML file with tables and plots, which loads nothing."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from mdserver.bench.plots import PlotLine, distribution, over_time, per_percentile
from mdserver.bench.results import Latencies, Moment, Row, cell, columns, environment

_PERCENTILES = (
    *(float(at) for at in range(0, 90, 5)),
    *(90.0 + at for at in range(10)),
    *(99.0 + at / 10 for at in range(10)),
    *(99.9 + at / 100 for at in range(10)),
    99.99,
    99.999,
)
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #8a9099; --paper: #fff; --a: #1f6feb;
  --b: #d2691e; --c: #a371f7; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --soft: #8a9099; --paper: #15181c;
  --a: #58a6ff; --b: #f0883e; --c: #bc8cff; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; } td, th { padding: .15rem .7rem; text-align: right;
  border-bottom: 1px solid var(--soft); } th { text-align: left; font-weight: 600; }
.scroll { overflow-x: auto; } .plots { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); }
figure { margin: 0; } figcaption { color: var(--soft); } code { overflow-wrap: anywhere; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: var(--soft); }
svg .grid { stroke: var(--soft); stroke-opacity: .3; }
svg polyline { fill: none; stroke-width: 1.5; }
svg polyline.a { stroke: var(--a); } svg polyline.b { stroke: var(--b); }
svg polyline.c { stroke: var(--c); } svg rect.a, svg text.a { fill: var(--a); }
svg text.b { fill: var(--b); } svg text.c { fill: var(--c); } .failed { color: #d1242f; }
"""


def write_report(path: Path, rows: Sequence[Row], command: str, failed: Sequence[str] = ()) -> None:
    """Write the report of these rows; `failed` are the thresholds that were broken."""
    where = environment()
    facts = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
        for name, value in where.items()
    )
    broken = "".join(f"<li class=failed>{escape(each)}</li>" for each in failed)
    title = escape(f"mdserver bench {rows[0].bench}" if rows else "mdserver bench")
    path.write_text(
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body><h1>{title}</h1>"
        f"<p><code>{escape(command)}</code></p>"
        + (f"<ul>{broken}</ul>" if broken else "")
        + f'<div class="scroll">{_table(rows)}</div>'
        + "".join(_plots(row) for row in rows)
        + f"<h2>Where and when</h2><table>{facts}</table></body></html>\n",
        encoding="utf-8",
    )


def _table(rows: Sequence[Row]) -> str:
    lines = []
    for name in columns():
        cells = [cell(getattr(row, name)) for row in rows]
        if any(cells):
            values = "".join(f"<td>{escape(value)}</td>" for value in cells)
            lines.append(f"<tr><th>{escape(name)}</th>{values}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _plots(row: Row) -> str:
    plots = []
    if row.latencies is not None:
        plots += _latency_plots(row.latencies)
    if row.course:
        plots += _course_plots(row.course)
    if not plots:
        return ""
    figures = "".join(
        f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"
        for caption, svg in plots
        if svg
    )
    heading = escape(f"{row.bench}, {row.mode}")
    return f'<h2>{heading}</h2><div class="plots">{figures}</div>'


def _latency_plots(latencies: Latencies) -> list[tuple[str, str]]:
    most = 100.0 * (1 - 1 / latencies.count)  # beyond that all percentiles are the longest
    values = [(at, latencies.ms_at(at)) for at in _PERCENTILES if at <= most]
    values.append((max(most, 0.0), latencies.max_ms))
    counts = [(value_us / 1000, count) for value_us, count in latencies.counts()]
    return [
        ("Latency in ms at each percentile", per_percentile("Latency per percentile", values)),
        ("How many took how long", distribution("Distribution of latencies", counts)),
    ]


def _course_plots(course: Sequence[Moment]) -> list[tuple[str, str]]:
    def line(name: str, column: str, kind: str) -> PlotLine:
        points = [
            (each.second, float(value))
            for each in course
            if (value := getattr(each, column)) is not None
        ]
        return PlotLine(name, points, kind)

    late = [
        line("p50", "p50_ms", "a"),
        line("p99", "p99_ms", "b"),
        line("longest", "max_ms", "c"),
    ]
    return [
        ("Latency in ms, by when it was to be sent", over_time("Latency over time", "ms", late)),
        (
            "Deliveries a second, by when they were to be sent",
            over_time("Deliveries over time", "a second", [line("deliveries", "per_s", "a")]),
        ),
    ]
