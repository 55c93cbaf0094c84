"""Parts of the reports: HTML pages of one file, with nothing to load from anywhere."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

STYLE = """
body { font: 15px/1.5 system-ui; margin: 2rem auto; max-width: 70rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0 }
td, th { padding: .2rem .8rem; text-align: left }
th { border-bottom: 2px solid #888 } td { border-bottom: 1px solid #ddd }
.n { text-align: right; font-variant-numeric: tabular-nums } h1 small { font-weight: normal }
"""
BAR_WIDTH = 480
ROWS_MAX = 1_000


def bars(counts: Mapping[str, float], colours: Mapping[str, str], spelled: str = "{:,}") -> str:
    """A bar chart: a name and a bar for each number, which is written as `spelled` says."""
    if not counts:
        return "<p>None.</p>"
    most = max(counts.values()) or 1
    height = 26 * len(counts)
    parts = [f'<svg width="{BAR_WIDTH + 360}" height="{height}" role="img">']
    for row, (name, count) in enumerate(counts.items()):
        y = 26 * row
        width = max(2, round(BAR_WIDTH * count / most)) if count else 0
        fill = colours.get(name, "#34607f")
        parts.append(f'<text x="0" y="{y + 17}">{html.escape(name[:24])}</text>')
        parts.append(f'<rect x="190" y="{y + 3}" width="{width}" height="18" fill="{fill}"/>')
        parts.append(f'<text x="{196 + width}" y="{y + 17}">{spelled.format(count)}</text>')
    return "".join([*parts, "</svg>"])


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Rows as a table, the first `ROWS_MAX` of them."""
    if not rows:
        return "<p>None.</p>"
    head = "".join(f"<th>{column}</th>" for column in columns)
    lines = [f"<table><tr>{head}</tr>"]
    for row in rows[:ROWS_MAX]:
        cells = []
        for column in columns:
            value = row[column]
            kind = " class=n" if isinstance(value, int) else ""
            cells.append(f"<td{kind}>{html.escape(str(value))}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    lines.append("</table>")
    if len(rows) > ROWS_MAX:
        lines.append(f"<p>... and {len(rows) - ROWS_MAX:,} more.</p>")
    return "".join(lines)
