"""Each row of the threat model names tests, and these exist."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "security.md"
NAMED = re.compile(r"`([\w/]+\.(?:py|txt))(?:::(\w+))?`")


def rows() -> list[tuple[str, str]]:
    """What may be tried, and the last cell, of each row of a table that names tests."""
    found: list[tuple[str, str]] = []
    within = False
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            within = False
        elif cells[-1] == "tests":
            within = True
        elif within and not line.startswith("|---"):
            found.append((cells[1], cells[-1]))
    return found


def test_both_tables_have_rows() -> None:
    assert len(rows()) >= 25


@pytest.mark.parametrize(("tried", "tests"), rows())
def test_what_may_be_tried_has_tests_that_exist(tried: str, tests: str) -> None:
    if tests == "nothing to test":  # the row says that nothing stops it
        return
    named = NAMED.findall(tests)
    assert named, f"{tried}: no test is named"
    for file, name in named:
        path = TESTS / file
        assert path.exists(), path
        if name:
            assert re.search(rf"^(async )?def {name}\(", path.read_text(), re.MULTILINE), name
