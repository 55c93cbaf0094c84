"""The list of bugs can be put in, and what finds them is told."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.mutation import __main__ as mutation
from tests.mutation.__main__ import ROOT, chosen, listed, main

BUGS = listed()


def test_nearly_every_bug_of_the_list_has_its_place() -> None:
    stale = [(bug.file, bug.breaks) for bug in BUGS if bug.stale]

    assert 10 * len(stale) <= len(BUGS), stale


def test_every_bug_says_what_it_breaks_and_what_may_find_it() -> None:
    rules = [(bug.file, bug.breaks) for bug in BUGS]

    assert len(set(rules)) == len(rules)
    assert all(bug.breaks and bug.old != bug.new for bug in BUGS)
    assert [test for bug in BUGS for test in bug.tests if not (ROOT / test).exists()] == []


def test_ten_tenths_are_the_whole_list() -> None:
    parts = [bug for tenth in range(10) for bug in chosen(BUGS, tenth)]

    assert len(parts) == len(BUGS)
    assert set(parts) == set(BUGS)


@pytest.mark.slow
def test_a_bug_that_is_found_and_one_that_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "bugs.toml"
    path.write_text(
        """
[[file]]
name = "cluster/votes.py"
tests = ["tests/cluster/test_votes.py"]
bugs = [
  { old = "(known // RESTARTS_MAX + 1) * RESTARTS_MAX", new = "known", breaks = "a leap" },
  { old = '"The newest epoch', new = '"The newest Epoch', breaks = "nothing" },
  { old = "this is nowhere", new = "", breaks = "no place" },
]
""",
        encoding="utf-8",
    )
    bugs = listed(path)
    monkeypatch.setattr(mutation, "listed", lambda: bugs)
    monkeypatch.setattr(mutation, "WORK", tmp_path / "work")

    ended = CliRunner().invoke(main, ["--seconds", "1", "--jobs", "1"])

    assert ended.exit_code == 1
    assert "tests/cluster/test_votes.py::" in ended.output
    assert "NOTHING" in ended.output
    assert "not in cluster/votes.py any more: no place" in ended.output
    assert "1 of 2 found (50 %)" in ended.output
