"""The scenarios in `scenarios/`: text files that say what clients of a cluster see.

With REWRITE_SCENARIOS=1 each file gets what really came.
"""

import os
from pathlib import Path

import pytest

from tests.cluster.scenario import Play
from tests.core.scenario import transcript

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_scenario(path: Path) -> None:
    lines = transcript(path, Play())
    if os.environ.get("REWRITE_SCENARIOS"):
        path.write_text("\n".join(lines) + "\n")
    assert path.read_text().splitlines() == lines


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 14
