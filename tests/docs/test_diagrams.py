"""The diagrams: drawn from the text beside them, in the colours of the page, easy to read."""

import hashlib
import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
SOURCES = sorted((TOP / "docs" / "diagrams").glob("*.dot"))
PROGRAM = TOP / "packaging" / "site" / "diagrams.py"
COLUMN_PX = 328  # of text on a page of 360
FONT_PX_LEAST = 10
SHOWN = re.compile(r"!\[([^\]]+)\]\((?:\.\./)?diagrams/([a-z-]+)\.svg\)")


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_diagram_is_drawn_from_its_text(source: Path) -> None:
    summed = hashlib.sha256(PROGRAM.read_bytes() + source.read_bytes()).hexdigest()[:16]
    first = source.with_suffix(".svg").read_text().partition("\n")[0]
    assert first == f"<!-- {source.name} {summed} -->", "run `make diagrams`"


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_diagram_can_be_read_on_a_telephone_and_in_the_dark(source: Path) -> None:
    text = source.with_suffix(".svg").read_text()
    found = re.search(r'viewBox="[\d.]+ [\d.]+ ([\d.]+) ', text)
    assert found
    width = float(found[1])
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)"', text)]
    assert len(sizes) > 5
    assert min(sizes) * min(1, COLUMN_PX / width) >= FONT_PX_LEAST
    drawn = text.rpartition("</style>")[2]
    assert re.findall(r'(?:fill|stroke)="(?!none")[^"]*"', drawn) == [], "a colour of its own"
    assert "prefers-color-scheme: dark" in text


def test_each_diagram_is_on_a_page_with_words_for_who_cannot_see_it() -> None:
    pages = "\n".join(page.read_text() for page in (TOP / "docs").rglob("*.md"))
    shown = {name: words for words, name in SHOWN.findall(pages)}
    assert set(shown) == {source.stem for source in SOURCES}
    assert all(len(words) > 40 for words in shown.values())
