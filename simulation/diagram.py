"""A run as a space-time diagram: time downwards, one line a member, steps and faults on them.

SVG (W3C, "Scalable Vector Graphics 1.1") that any browser shows; hovering over a mark tells all.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from attrs import frozen

from simulation.run import Result
from simulation.world import World

COLUMN = 170
ROW = 16
TOP = 70
MARGIN = 90
STEPS_MAX = 400
OTHER = "#57606a"
COLOURS = {
    "Start": "#1a7f37",
    "Promise": "#8250df",
    "Elect": "#bc4c00",
    "Sync": "#0969da",
    "Install": "#0969da",
    "Activate": "#bc4c00",
    "Publish": "#57606a",
    "Accept": "#8c959f",
    "Commit": "#1a7f37",
    "Register": "#bf3989",
    "Readmit": "#bf3989",
    "Stop": "#cf222e",
}


@frozen
class Mark:
    """Something that happened in a column; `told` is shown when one points at it."""

    at_s: float
    column: int
    label: str
    told: str = ""
    colour: str = OTHER
    fault: bool = False


def drawing(title: str, columns: Sequence[str], marks: Sequence[Mark]) -> str:
    """The text of an SVG file: the last marks, a row each."""
    marks = marks[-STEPS_MAX:]
    width = MARGIN + COLUMN * len(columns) + 20
    height = TOP + ROW * (len(marks) + 2)
    size = f'width="{width}" height="{height}"'
    font = 'font-family="sans-serif" font-size="11"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="20" font-size="14">{escape(title)}</text>',
        *_lines(columns, height),
        *_rows(marks),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _lines(columns: Sequence[str], height: int) -> Iterator[str]:
    for column, name in enumerate(columns):
        x = MARGIN + COLUMN * column
        yield f'<text x="{x - 10}" y="{TOP - 20}" font-weight="bold">{escape(name)}</text>'
        yield f'<line x1="{x}" y1="{TOP - 10}" x2="{x}" y2="{height}" stroke="#d0d7de"/>'


def _rows(marks: Sequence[Mark]) -> Iterator[str]:
    for row, mark in enumerate(marks):
        x, y = MARGIN + COLUMN * mark.column, TOP + ROW * row
        yield f'<text x="4" y="{y + 4}" fill="{OTHER}">{mark.at_s:.4f}</text>'
        yield f"<g><title>{escape(mark.told or mark.label)}</title>"
        if mark.fault:
            yield f'<path d="M{x - 6} {y} l6 -6 l6 6 l-6 6 z" fill="#cf222e"/>'
        else:
            yield f'<circle cx="{x}" cy="{y}" r="5" fill="{mark.colour}"/>'
        yield f'<text x="{x + 9}" y="{y + 4}">{escape(mark.label)}</text></g>'


def diagram(result: Result, world: World) -> str:
    """A simulated run: the steps of the protocol and the faults, in the order of their time."""
    columns = {name: column for column, name in enumerate(world.names)}
    marks = [
        Mark(f.at / 1e9, f.first, f"fault {f.kind}", f"for {f.lasting / 1e9:.3f} s", fault=True)
        for f in world.plan.faults
    ]
    for step in world.traced:
        told = ", ".join(f"{key} {value}" for key, value in step.items() if key != "at")
        colour = COLOURS.get(step["name"], OTHER)
        marks.append(Mark(step["at"] / 1e9, columns[step["node"]], _label(step), told, colour))
    title = f"seed {result.seed}: {result.problems[0] if result.problems else 'passed'}"
    named = [f"{name} (seed)" if name in world.seeds else name for name in world.names]
    return drawing(title, named, sorted(marks, key=lambda mark: mark.at_s))


def _label(step: dict[str, Any]) -> str:
    if step["name"] == "Start":
        return f"Start as {step['incarnation']}"
    place = f" g{step['group']} e{step['epoch']}" if step.get("group") is not None else ""
    return f"{step['name']}{place} len {step.get('length', '')}"
