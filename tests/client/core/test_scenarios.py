"""Every file of tests/client/core/scenarios; their language is described in scenario.py.

With REWRITE_SCENARIOS=1 in the environment the outputs that came are written into the files, to be
read and compared with the old ones.
"""

import os
from pathlib import Path

import pytest

from tests.client.core.scenario import transcript

FOLDER = Path(__file__).parent / "scenarios"
FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_scenario(path: Path) -> None:
    lines = transcript(path)
    if os.environ.get("REWRITE_SCENARIOS"):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert path.read_text(encoding="utf-8").splitlines() == lines


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 15
