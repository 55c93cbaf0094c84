"""Parts of the reports: HTML pages that are one file and load nothing else."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui; margin: 0 auto; padding: 1.5rem; max-width: 75rem }
.wide { overflow-x: auto; margin: 1rem 0 }
table { border-collapse: collapse }
td, th { padding: .2rem .8rem; text-align: left; vertical-align: top }
th { border-bottom: 2px solid #888; white-space: nowrap } td { border-bottom: 1px solid #8884 }
.n { text-align: right; font-variant-numeric: tabular-nums } h1 small { font-weight: normal }
svg { max-width: 100%; height: auto } svg text { fill: currentColor }
.bars { display: grid; grid-template-columns: fit-content(40%) 1fr; gap: .2rem .8rem }
.bars > :nth-child(odd) { overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
.bars i { display: inline-block; height: 1em; margin-right: .4rem; vertical-align: -.1em }
@media (max-width: 40rem) { body { padding: .75rem } td, th { padding: .2rem .4rem } }
"""
BAR_COLOUR = "#34607f"
ROWS_MAX = 1_000


def document(title: str, parts: Sequence[str], style: str = "") -> str:
    """Return a whole page; it follows the reader's choice of light or dark, and fits a phone."""
    head = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
    )
    return "\n".join([head, f"<style>{STYLE}{style}</style>", *parts, "</html>"])


def bars(counts: Mapping[str, float], colours: Mapping[str, str], spelled: str = "{:,}") -> str:
    """Return a bar chart with a name and a bar for each number.

    `colours` gives the colours of bars by name, `spelled` the format of the numbers.
    """
    if not counts:
        return "<p>None.</p>"
    most = max(counts.values()) or 1
    parts = ["<div class=bars>"]
    for name, count in counts.items():
        label, share = html.escape(name), count / most
        # A part of the line is left for the number.
        style = f"width:calc({share:.4f} * (100% - 7em));background:{colours.get(name, BAR_COLOUR)}"
        bar = f'<i style="{style}"></i>' if count else ""
        parts.append(f'<span title="{label}">{label}</span>')
        parts.append(f"<span>{bar}{spelled.format(count)}</span>")
    return "".join([*parts, "</div>"])


def table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], count: int | None = None
) -> str:
    """Return rows as a table, the first `ROWS_MAX` of them; `count` says how many there are."""
    if not rows:
        return "<p>None.</p>"
    head = "".join(f"<th>{column}</th>" for column in columns)
    lines = [f"<div class=wide><table><tr>{head}</tr>"]
    for row in rows[:ROWS_MAX]:
        cells = []
        for column in columns:
            value = "" if row[column] is None else row[column]
            kind = " class=n" if isinstance(value, int) else ""
            cells.append(f"<td{kind}>{html.escape(str(value))}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    lines.append("</table></div>")
    more = (len(rows) if count is None else count) - min(len(rows), ROWS_MAX)
    if more > 0:
        lines.append(f"<p>... and {more:,} more.</p>")
    return "".join(lines)
