"""`python -m tests.house`: measure how far a reader of the house has to go.

Prints a table and fails if a figure is beyond its bound. The bounds stand in `docs/design.md`,
nowhere else.
"""

import argparse
import re
import sys
from collections.abc import Sequence

from attrs import frozen
from rich.console import Console
from rich.table import Table

from tests.house import sources, way

PAGE = sources.ROOT / "docs/design.md"
TITLE = "## Figures of the house\n"
ROW = re.compile(r"^\| ([^|]+) \| ([0-9.]+) \| [^|]*\|$", re.MULTILINE)
AT_LEAST = "(at least)"


@frozen
class Measure:
    """A figure, and what was counted for it."""

    figure: float
    counted: Sequence[str] = ()


@frozen
class Bound:
    """What the page says of a figure."""

    name: str
    bound: float

    def keeps(self, figure: float) -> bool:
        """Return whether the figure is within the bound."""
        return figure >= self.bound if AT_LEAST in self.name else figure <= self.bound


def bounds(page: str) -> list[Bound]:
    """Read the rows of the page's table, in their order."""
    section = page.partition(TITLE)[2].partition("\n## ")[0]
    return [Bound(row[1], float(row[2])) for row in ROW.finditer(section)]


def measure() -> list[Measure]:
    """Measure everything, in the order of the page's table."""
    whole = way.measured()
    inside = whole.within("cluster")
    told, lines = sources.comments("core", "cluster", "server")
    doubled = [f"{name}: {', '.join(places)}" for name, places in sources.doubled_names().items()]
    lists = [
        list(whole.calls),
        whole.modules,
        whole.moves,
        list(inside.calls),
        inside.moves,
        sources.group_state(),
        doubled,
        sources.untested("core", "cluster", "codec"),
        sources.untested(),
    ]
    return [
        *(Measure(len(counted), counted) for counted in lists),
        Measure(sources.formatter_skips()),
        Measure(round(100 * told / lines, 1)),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if a figure is beyond its bound."""
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print what was counted, too")
    given = parser.parse_args(arguments)
    console = Console(highlight=False, soft_wrap=True)
    table = Table("figure", "measured", "bound")
    rows = list(zip(bounds(PAGE.read_text(encoding="utf-8")), measure(), strict=True))
    beyond = [bound for bound, found in rows if not bound.keeps(found.figure)]
    for bound, found in rows:
        style = "red" if bound in beyond else None
        table.add_row(bound.name, f"{found.figure:g}", f"{bound.bound:g}", style=style)
    console.print(table)
    for bound, found in rows if given.list else ():
        console.print(f"\n{bound.name}:", *found.counted, sep="\n  ")
    for bound in beyond:
        console.print(f"beyond its bound in {PAGE.name}: {bound.name} (--list says what counts)")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
