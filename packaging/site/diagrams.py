"""Draw docs/diagrams/*.dot as SVG: `make diagrams`, which needs Graphviz.

The pictures are committed, so that nothing needs Graphviz to show them, and each names the sum of
what it was drawn from: a test compares. They take their colours from the page that they are in
(`currentColor` and two variables), and stand for themselves, light or dark, elsewhere.
"""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "diagrams"
# One column, so that a telephone shows the text large enough.
STYLE = {
    "graph": "bgcolor=transparent,fontname=sans-serif,fontsize=14,ranksep=0.35,pad=0.05",
    "node": "shape=box,style=rounded,fontname=sans-serif,fontsize=14,margin=0.1,class=part",
    "edge": "fontname=sans-serif,fontsize=13,arrowsize=0.7",
}
COLOURS = """\
<style>
.diagram { color: #24292f; --part: #f3f5f8; --core: #d5e5fb; }
@media (prefers-color-scheme: dark) {
  .diagram { color: #e6edf3; --part: #262c34; --core: #1d3b63; }
}
</style>
<style>
.diagram text { fill: currentColor; }
.diagram path, .diagram polygon, .diagram polyline { stroke: currentColor; }
.diagram .edge polygon { fill: currentColor; }
.diagram .part path, .diagram .part polygon { fill: var(--part); }
.diagram .core path, .diagram .core polygon { fill: var(--core); }
.diagram .outside path, .diagram .outside polygon { fill: none; stroke-dasharray: 4 3; }
.diagram .cluster path, .diagram .cluster polygon { stroke-opacity: 0.4; fill: none; }
</style>
"""


def sum_of(source: Path) -> str:
    """Return a sum of what a picture is drawn from: its text, and this program."""
    return hashlib.sha256(Path(__file__).read_bytes() + source.read_bytes()).hexdigest()[:16]


def drawn(source: Path) -> str:
    """Return the picture of a text in the language of Graphviz."""
    words = [
        f"-{kind[0].upper()}{each}" for kind, all_ in STYLE.items() for each in all_.split(",")
    ]
    text = subprocess.run(
        ["dot", "-Tsvg", *words, source], capture_output=True, text=True, check=True
    ).stdout
    text = re.sub(
        r"<!--.*?-->\n?|<title>.*?</title>\n?", "", text[text.index("<svg") :], flags=re.S
    )
    # Colours are the page's; what is not filled stays so.
    text = re.sub(r' (?:fill="(?!none")|stroke=")[^"]*"', "", text)
    head, _, rest = text.partition(">")
    head = re.sub(r'(width|height)="(\d+)pt"', r'\1="\2"', head).replace(
        "<svg", '<svg class="diagram" role="img"'
    )
    return f"<!-- {source.name} {sum_of(source)} -->\n{head}>\n{COLOURS}{rest}"


def main() -> None:
    """Draw each text anew; exit with 1 if there is no Graphviz."""
    for source in sorted(FOLDER.glob("*.dot")):
        try:
            source.with_suffix(".svg").write_text(drawn(source), encoding="utf-8")
        except FileNotFoundError:
            sys.exit("diagrams: there is no Graphviz (Debian: apt-get install graphviz)")
        except subprocess.CalledProcessError as error:
            sys.exit(f"diagrams: {source.name}: {error.stderr}")


if __name__ == "__main__":
    main()
