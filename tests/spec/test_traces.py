"""Recorded runs against the specification: a true one is explained, a false one is not."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from spec import tlc, traces
from spec.__main__ import main
from tests.spec import steps

needs_tlc = pytest.mark.skipif(not tlc.available(), reason="TLC needs Java")


def deleted(name: str, nth: int = 0) -> Callable[[list[dict]], list[dict]]:
    def change(lines: list[dict]) -> list[dict]:
        at = [i for i, line in enumerate(lines) if line["name"] == name][nth]
        return lines[:at] + lines[at + 1 :]

    return change


def swapped(name: str, nth: int = 0) -> Callable[[list[dict]], list[dict]]:
    def change(lines: list[dict]) -> list[dict]:
        at = [i for i, line in enumerate(lines) if line["name"] == name][nth]
        return [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]

    return change


def altered(name: str, key: str, value: object, nth: int = 0) -> Callable[[list[dict]], list[dict]]:
    def change(lines: list[dict]) -> list[dict]:
        at = [i for i, line in enumerate(lines) if line["name"] == name][nth]
        return [*lines[:at], {**lines[at], key: value}, *lines[at + 1 :]]

    return change


BAD = {
    "a promise is missing": (deleted("Promise"), "Elect"),
    "an acknowledgement is missing": (deleted("Accept", 1), "Commit"),
    "no second seed holds the base": (deleted("Sync", 1), "Activate"),
    "committed without being active": (deleted("Activate"), "Publish"),
    "installed without being registered": (deleted("Register"), "Install"),
    "elected before the promise": (swapped("Promise", 1), "Elect"),
    "committed before accepted": (swapped("Accept", 1), "Commit"),
    "delivered before committed": (swapped("Commit"), "Learn"),
    "too short a log was adopted": (altered("Elect", "length", 2, 1), "Elect"),
    "another member publishes": (altered("Publish", "node", "b"), "Publish"),
    "a publication stands twice": (altered("Publish", "publication", "p#1", 1), "Publish"),
    "an old incarnation is registered": (altered("Register", "incarnation", 1), "Register"),
    "a promise hides a log": (altered("Promise", "length", 2, 3), "Promise"),
}


@needs_tlc
def test_true_runs_are_explained_and_each_false_one_is_rejected_at_its_line(tmp_path: Path) -> None:
    true = traces.split("true", list(enumerate(steps.run(), 1)))
    runs = list(true)
    for name, (change, _) in BAD.items():
        runs += traces.split(name, list(enumerate(change(steps.run()), 1)))

    verdict = traces.check(runs)

    rejected = {bad.name.removesuffix(" group 0"): bad.line["name"] for bad in verdict.rejected}
    assert rejected == {name: first for name, (_, first) in BAD.items()}
    assert verdict.runs == len(BAD) + 1


@needs_tlc
def test_command_names_the_line_that_no_action_explains(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text(steps.as_text(steps.run()))
    bad.write_text(steps.as_text(swapped("Accept", 1)(steps.run())))
    names = [line["name"] for line in swapped("Accept", 1)(steps.run())]
    wrong_at = 1 + names.index("Commit")

    accepted = CliRunner().invoke(main, ["traces", str(good)])
    refused = CliRunner().invoke(main, ["traces", str(good), str(bad)])

    assert accepted.exit_code == 0, accepted.output
    assert "1 runs, 35 events, 0 rejected" in accepted.output
    assert refused.exit_code == 1
    assert f"bad.jsonl group 0: line {wrong_at}: no action explains" in refused.output


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "bad.jsonl:2: not JSON"),
        ('{"name": "Dance", "node": "a"}', "bad.jsonl:2: not a step"),
        ("[]", "bad.jsonl:2: not a step"),
    ],
)
def test_unreadable_line_is_named(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps(steps.run()[0]) + "\n" + text)

    ended = subprocess.run(
        [sys.executable, "-m", "spec", "traces", str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(traces.__file__).parents[1],
    )

    assert ended.returncode == 2
    assert reason in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_each_group_is_a_run_of_its_own() -> None:
    lines = [steps.start("a", 1, "normal"), steps.step("Forget", "a"),
             {**steps.step("Forget", "a"), "group": 7}]  # fmt: skip

    runs = traces.split("two", list(enumerate(lines, 1)))

    assert [run.name for run in runs] == ["two group 0", "two group 7"]
    assert [[n for n, _ in run.lines] for run in runs] == [[1, 2], [1, 3]]
