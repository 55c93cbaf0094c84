"""Plots of a report as SVG, without a library: lines over a linear or logarithmic axis."""

import math
from collections.abc import Sequence
from html import escape

from attrs import frozen

WIDTH, HEIGHT = 640, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 34
_TICKS = 5
_PERCENTILES = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999)
Points = Sequence[tuple[float, float]]


@frozen
class PlotLine:
    """One line of a plot; `kind` is a class of the page's style."""

    name: str
    points: Points
    kind: str


def over_time(title: str, unit: str, lines: Sequence[PlotLine]) -> str:
    """Return a plot with seconds below and a unit from 0 upwards at the left."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    if not xs:
        return ""
    low, high = min(xs), max(xs)
    top = _round_up(max(ys))
    x_at = _scale(low, high if high > low else low + 1, _LEFT, WIDTH - _RIGHT)
    y_at = _scale(0, top, HEIGHT - _BOTTOM, _TOP)
    x_ticks = [(x_at(x), f"{x:g} s") for x in _steps(low, high)]
    y_ticks = [(y_at(y), f"{y:g}") for y in _steps(0, top)]
    scaled = [
        PlotLine(line.name, [(x_at(x), y_at(y)) for x, y in line.points], line.kind)
        for line in lines
    ]
    return _plot(title, unit, x_ticks, y_ticks, scaled)


def per_percentile(title: str, values: Sequence[tuple[float, float]]) -> str:
    """Return a plot of ms at each percentile; the axis spreads the last percents out."""
    shown = [(_nines(percentile), ms) for percentile, ms in values]
    if not shown:
        return ""
    right = max(x for x, _ in shown)
    top = _round_up(max(ms for _, ms in shown))
    x_at = _scale(0, right or 1, _LEFT, WIDTH - _RIGHT)
    y_at = _scale(0, top, HEIGHT - _BOTTOM, _TOP)
    x_ticks = [(x_at(_nines(p)), f"{p:g} %") for p in _PERCENTILES if _nines(p) <= right + 0.01]
    y_ticks = [(y_at(y), f"{y:g}") for y in _steps(0, top)]
    line = PlotLine("ms", [(x_at(x), y_at(ms)) for x, ms in shown], "a")
    return _plot(title, "ms", x_ticks, y_ticks, [line])


def distribution(title: str, counts: Sequence[tuple[float, int]]) -> str:
    """Return bars of how many latencies are about as long; the axis of ms is logarithmic."""
    if not counts:
        return ""
    bars: dict[int, int] = {}
    for ms, count in counts:
        at = math.floor(math.log10(max(ms, 0.001)) * 10)
        bars[at] = bars.get(at, 0) + count
    low, high = min(bars), max(bars) + 1
    top = max(bars.values())
    x_at = _scale(low, high, _LEFT, WIDTH - _RIGHT)
    y_at = _scale(0, top, HEIGHT - _BOTTOM, _TOP)
    drawn = "".join(
        f'<rect class="a" x="{x_at(at):.1f}" y="{y_at(count):.1f}" '
        f'width="{max(1.0, x_at(at + 1) - x_at(at) - 1):.1f}" '
        f'height="{HEIGHT - _BOTTOM - y_at(count):.1f}">'
        f"<title>{10 ** (at / 10):.3g} to {10 ** ((at + 1) / 10):.3g} ms: {count:,}</title></rect>"
        for at, count in sorted(bars.items())
    )
    step = max(1, (high - low) // 6)
    x_ticks = [(x_at(at), f"{_short(10 ** (at / 10))} ms") for at in range(low, high + 1, step)]
    y_ticks = [(y_at(y), f"{y:,g}") for y in _steps(0, top)]
    return _plot(title, "", x_ticks, y_ticks, [], drawn)


def _plot(
    title: str,
    unit: str,
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
    lines: Sequence[PlotLine],
    more: str = "",
) -> str:
    bottom = HEIGHT - _BOTTOM
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
    ]
    for y, label in y_ticks:
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for x, label in x_ticks:
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{label}</text>')
    parts.append(f'<text x="{_LEFT}" y="{HEIGHT - 4}">{escape(unit)}</text>')
    parts.append(more)
    for at, line in enumerate(lines):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in line.points)
        parts.append(f'<polyline class="{line.kind}" points="{points}"/>')
        x = WIDTH - _RIGHT - 90 * (len(lines) - at)
        parts.append(
            f'<text class="{line.kind}" x="{x}" y="{HEIGHT - 4}">{escape(line.name)}</text>'
        )
    return "".join([*parts, "</svg>"])


def _scale(low: float, high: float, to_low: float, to_high: float) -> "_Scale":
    return _Scale(low, high, to_low, to_high)


@frozen
class _Scale:
    low: float
    high: float
    to_low: float
    to_high: float

    def __call__(self, value: float) -> float:
        return self.to_low + (value - self.low) / (self.high - self.low) * (
            self.to_high - self.to_low
        )


def _nines(percentile: float) -> float:
    """Return how many nines a percentile has: 0 for 0 %, 1 for 90 %, 2 for 99 %."""
    return -math.log10(max(1e-7, 1 - percentile / 100))


def _round_up(value: float) -> float:
    """Return the next number above that has one digit and zeros, and 5 or 2.5 times one."""
    if value <= 0:
        return 1.0
    power = 10 ** math.floor(math.log10(value))
    return float(next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value))


def _short(value: float) -> str:
    """Return a number with two digits that count, never with an exponent."""
    return f"{value:.2g}" if value < 100 else f"{float(f'{value:.2g}'):,.0f}"


def _steps(low: float, high: float) -> list[float]:
    return [low + (high - low) * at / _TICKS for at in range(_TICKS + 1)]
