"""`make demo`: every message of the data set arrives, each company's in the order of its dates."""

import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "docs" / "examples" / "demo.py"
ROWS = 560


@pytest.mark.slow
def test_the_demo_shows_every_price_once_and_in_order() -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO), "--once"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ready, *lines = done.stdout.splitlines()
    assert ready.startswith("mdserver ready: http://127.0.0.1:")
    assert len(lines) == len(set(lines)) == ROWS
    dates: dict[str, list[str]] = {}
    for line in lines:
        subject, _, date, currency = line.split(" ")
        assert currency == "currency=USD"
        dates.setdefault(subject, []).append(date)
    assert sorted(dates) == [
        "/stocks/AAPL",
        "/stocks/AMZN",
        "/stocks/GOOG",
        "/stocks/IBM",
        "/stocks/MSFT",
    ]
    assert all(seen == sorted(seen) for seen in dates.values())
