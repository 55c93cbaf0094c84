"""docs/metrics.md is what the server exposes, and names all that others ask for."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \|", re.MULTILINE)


@pytest.mark.slow
def test_the_committed_page_is_up_to_date(tmp_path: Path) -> None:
    made = tmp_path / "metrics.md"
    program = TOP / "packaging" / "site" / "metrics.py"
    subprocess.run([sys.executable, program, made], check=True, timeout=60)
    assert PAGE.read_text() == made.read_text(), "run `make docs`"


def test_the_page_has_what_alerts_and_board_ask_for() -> None:
    listed = dict(ROW.findall(PAGE.read_text()))
    histograms = {name for name, kind in listed.items() if kind == "histogram"}
    series = {f"{name}{end}" for name in histograms for end in ("_bucket", "_sum", "_count")}
    folder = TOP / "conf" / "monitoring"
    asked = {
        name
        for file in ("alerts.yml", "grafana.json")
        for name in re.findall(r"\bmdserver_\w+", (folder / file).read_text())
    }
    assert len(asked) > 10
    assert asked - set(listed) - series == set()
