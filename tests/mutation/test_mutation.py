"""The list of bugs can be put in, and what finds them is told."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.mutation import __main__ as mutation
from tests.mutation.__main__ import (
    ENDLESS_RUN,
    ENDLESS_TESTS,
    ROOT,
    SIMULATOR_CANNOT_RUN,
    TESTS_CANNOT_RUN,
    Bug,
    Outcome,
    chosen,
    listed,
    main,
)

BUGS = listed()


def test_every_bug_of_the_list_has_its_place() -> None:
    assert [(bug.file, bug.breaks) for bug in BUGS if bug.stale] == []


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
    assert "1 of 2 found (50 %), 0 of them by what did not come to an end; 0 not" in ended.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("def test_one() -> None:\n    assert False\n", "test_some.py::test_one"),
        (None, TESTS_CANNOT_RUN),
    ],
    ids=["fails", "is not there"],
)
def test_nothing_is_put_in_if_tests_fail_without_it(
    content: str | None, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    test = tmp_path / "test_some.py"
    if content is not None:
        test.write_text(content, encoding="utf-8")
    bug = Bug("cluster/votes.py", '"The newest epoch', '"The newest Epoch', "it", (str(test),))
    assert not bug.stale
    monkeypatch.setattr(mutation, "listed", lambda: [bug])
    monkeypatch.setattr(mutation, "WORK", tmp_path / "work")

    ended = CliRunner().invoke(main, ["--jobs", "1"])

    assert ended.exit_code == 1
    (line,) = ended.output.splitlines()
    assert line.startswith("without any bug there is a failure: ")
    assert line.endswith(said)


@pytest.mark.parametrize(
    ("killer", "broken", "endless"),
    [
        ("", False, False),
        ("tests/cluster/test_votes.py::test_one", False, False),
        (TESTS_CANNOT_RUN, True, False),
        (SIMULATOR_CANNOT_RUN, True, False),
        (ENDLESS_TESTS, False, True),
        (ENDLESS_RUN, False, True),
    ],
)
def test_what_did_not_run_found_nothing(killer: str, broken: bool, endless: bool) -> None:
    outcome = Outcome(BUGS[0], killer, 1.0)

    assert (outcome.broken, outcome.endless) == (broken, endless)
