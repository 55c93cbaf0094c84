"""The plan of `capacity` as an HTML page: what fills a member, and how well the fits predict."""

import html
import math

from mdserver.pipeline.capacity.model import MEMORY, Demand, Fit, Observation, Plan
from mdserver.pipeline.common.html_page import bars, document, table

SIZE = 320
MARGIN = 34
TICKS = 4


def page(plan: Plan, demand: Demand) -> str:
    """Return the report as HTML."""
    members = "1 member" if plan.members == 1 else f"{plan.members} members"
    load = (
        f"{demand.connections:,} connections, {demand.publications:,.0f} publications/s of"
        f" {demand.content_bytes:,} bytes, {demand.deliveries:,.0f} deliveries/s. A member may"
        f" use {demand.share:.0%} of a core and {demand.memory / 2**30:.1f} GB."
    )
    rows = [
        {
            "cost of": fit.resource,
            "under the load asked for": _spelled(fit.resource, fit.cost(_asked(demand))),
            "runs": len(fit.runs),
            "worst foretelling": "one run only" if fit.error is None else f"{fit.error:.0%}",
        }
        for fit in plan.fits
    ]
    charts = "".join(_measured_and_fitted(fit) for fit in plan.fits if len(fit.runs) > 1)
    return document(
        "Capacity",
        [
            f"<h1>{members} <small>limited by {html.escape(plan.limited_by)}</small></h1>",
            f"<p>{load}</p>",
            "<h2>Processor time of a member (100 %: all it may use)</h2>",
            bars(plan.processor, {}, "{:.1%}"),
            "<h2>Memory of a member (100 %: all it may use)</h2>",
            bars(plan.memory, {}, "{:.1%}"),
            "<h2>What it rests on</h2>",
            table(rows, tuple(rows[0])) if rows else "<p>Nothing.</p>",
            "<h2>Measured and fitted</h2>",
            charts or "<p>No cost was measured more than once.</p>",
        ],
        "figure { display: inline-block; margin: 0 1rem 1rem 0 }",
    )


def _asked(demand: Demand) -> Observation:
    return Observation("", 0.0, demand.content_bytes, demand.burst, demand.connections)


def _spelled(resource: str, cost: float) -> str:
    return f"{cost:,.0f} bytes" if resource in MEMORY else f"{cost * 1e6:.3g} µs"


def _measured_and_fitted(fit: Fit) -> str:
    """Return a chart with a point for each run, on logarithmic axes.

    On the diagonal the fitted cost is the measured one.
    """
    pairs = [(run.cost, fit.cost(run)) for run in fit.runs]
    values = [math.log10(max(value, 1e-12)) for pair in pairs for value in pair]
    low, high = min(values) - 0.1, max(values) + 0.1

    def place(value: float) -> float:
        return MARGIN + (math.log10(max(value, 1e-12)) - low) / (high - low) * (SIZE - 2 * MARGIN)

    points = "".join(
        f'<circle cx="{place(measured):.1f}" cy="{SIZE - place(fitted):.1f}" r="4" fill="#34607f"/>'
        for measured, fitted in pairs
    )
    ticks = "".join(
        f'<text x="{MARGIN + part * (SIZE - 2 * MARGIN):.0f}" y="{SIZE - 8}" font-size="10"'
        f' text-anchor="middle">{_spelled(fit.resource, 10 ** (low + part * (high - low)))}</text>'
        for part in (index / (TICKS - 1) for index in range(TICKS))
    )
    end = SIZE - MARGIN
    line = f'<line x1="{MARGIN}" y1="{end}" x2="{end}" y2="{MARGIN}" stroke="#bbb"/>'
    frame = (
        f'<rect x="{MARGIN}" y="{MARGIN}" width="{SIZE - 2 * MARGIN}" height="{SIZE - 2 * MARGIN}"'
        ' fill="none" stroke="#888"/>'
    )
    return (
        f'<figure><svg width="{SIZE}" height="{SIZE}" role="img">{frame}{line}{points}{ticks}</svg>'
        f"<figcaption>{html.escape(fit.resource)}: measured (across), fitted (up)</figcaption>"
        "</figure>"
    )
