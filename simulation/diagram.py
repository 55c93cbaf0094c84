"""A run as a space-time diagram: time downwards, one line a member, steps and faults on them.

SVG (W3C, "Scalable Vector Graphics 1.1") that any browser shows; hovering over a mark tells all.
"""

from collections.abc import Iterator
from html import escape
from typing import Any

from simulation.run import Result
from simulation.world import World

COLUMN = 170
ROW = 16
TOP = 70
MARGIN = 90
STEPS_MAX = 400
COLOURS = {
    "Start": "#1a7f37", "Promise": "#8250df", "Elect": "#bc4c00", "Sync": "#0969da",
    "Install": "#0969da", "Activate": "#bc4c00", "Publish": "#57606a", "Accept": "#8c959f",
    "Commit": "#1a7f37", "Register": "#bf3989", "Readmit": "#bf3989", "Stop": "#cf222e",
}  # fmt: skip


def steps_of(world: World) -> list[dict[str, Any]]:
    """The last steps and all faults, in the order of their time."""
    faults = [
        {"at": f.at, "name": f"fault {f.kind}", "node": world.names[f.first], "fault": True,
         "lasting": f"{f.lasting / 1e9:.3f} s"}
        for f in world.plan.faults
    ]  # fmt: skip
    steps = sorted([*world.traced, *faults], key=lambda step: step["at"])
    return steps[-STEPS_MAX:]


def diagram(result: Result, world: World) -> str:
    """The text of an SVG file."""
    steps = steps_of(world)
    width = MARGIN + COLUMN * len(world.names) + 20
    height = TOP + ROW * (len(steps) + 2)
    size = f'width="{width}" height="{height}"'
    font = 'font-family="sans-serif" font-size="11"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
        '<rect width="100%" height="100%" fill="white"/>',
        *_head(result, world, height),
        *_marks(steps, world),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _head(result: Result, world: World, height: int) -> Iterator[str]:
    title = f"seed {result.seed}: {result.problems[0] if result.problems else 'passed'}"
    yield f'<text x="10" y="20" font-size="14">{escape(title)}</text>'
    for column, name in enumerate(world.names):
        x = MARGIN + COLUMN * column
        seed = " (seed)" if name in world.seeds else ""
        yield f'<text x="{x - 10}" y="{TOP - 20}" font-weight="bold">{name}{seed}</text>'
        yield f'<line x1="{x}" y1="{TOP - 10}" x2="{x}" y2="{height}" stroke="#d0d7de"/>'


def _marks(steps: list[dict[str, Any]], world: World) -> Iterator[str]:
    columns = {name: MARGIN + COLUMN * i for i, name in enumerate(world.names)}
    for row, step in enumerate(steps):
        x, y = columns[step["node"]], TOP + ROW * row
        told = ", ".join(f"{key} {value}" for key, value in step.items() if key != "at")
        yield f'<text x="4" y="{y + 4}" fill="#57606a">{step["at"] / 1e9:.4f}</text>'
        yield f"<g><title>{escape(told)}</title>"
        if step.get("fault"):
            yield f'<path d="M{x - 6} {y} l6 -6 l6 6 l-6 6 z" fill="#cf222e"/>'
            label = step["name"]
        else:
            colour = COLOURS.get(step["name"], "#57606a")
            yield f'<circle cx="{x}" cy="{y}" r="5" fill="{colour}"/>'
            label = _label(step)
        yield f'<text x="{x + 9}" y="{y + 4}">{escape(label)}</text></g>'


def _label(step: dict[str, Any]) -> str:
    if step["name"] == "Start":
        return f"Start as {step['incarnation']}"
    place = f" g{step['group']} e{step['epoch']}" if step.get("group") is not None else ""
    return f"{step['name']}{place} len {step.get('length', '')}"
