"""The benchmark of the archive: a small run measures what it says, and its journal is as asked."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from mdserver.bench.archive import HISTORY_SUBJECT, ArchiveLoad, messages

pytestmark = pytest.mark.pipeline

TIMEOUT_S = 900


@pytest.mark.parametrize("history", [0, 1, 7, 50, 100])
def test_the_long_history_is_spread_among_the_others(history: int) -> None:
    made = list(messages(ArchiveLoad(100, history, 16)))
    places = [n for n, message in enumerate(made) if message.subject == HISTORY_SUBJECT]
    assert (len(made), len(places)) == (100, history)
    assert max((b - a for a, b in pairwise(places)), default=0) <= 15
    assert {len(message.content) for message in made} == {16}


@pytest.mark.slow
@pytest.mark.soak
def test_a_small_run(tmp_path: Path) -> None:
    lines = tmp_path / "rows.jsonl"
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "mdserver.bench.archive",
            "--rows",
            "3000",
            "--history",
            "1000",
            "--json",
            str(lines),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [(row["bench"], row["mode"], row["count"]) for row in rows] == [
        ("archive", "first batch", 3000),
        ("archive", "all", 3000),
        ("history", "best", 1000),
    ]
