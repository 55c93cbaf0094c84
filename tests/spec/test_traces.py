"""Recorded runs against the specification: a true one is explained, a false one is not."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulation.plan import make
from simulation.profiles import PROFILES
from simulation.run import run as simulate
from spec import tlc, traces
from spec.__main__ import main
from tests.spec import steps

SEEDS = ("m0", "m1", "m2", "m3", "m4")
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
    "a cold promise is missing": (deleted("Promise", 1), "Elect"),
    "a promise is missing": (deleted("Promise", 4), "Elect"),
    "an acknowledgement is missing": (deleted("Accept", 2), "Commit"),
    "no second seed holds the base": (deleted("ColdSync", 1), "Activate"),
    "publishing without being active": (deleted("Activate"), "Publish"),
    "installed without being registered": (deleted("Register"), "Install"),
    "elected before the promise": (swapped("Promise", 4), "Elect"),
    "committed before accepted": (swapped("Accept", 2), "Commit"),
    "delivered before committed": (swapped("Commit"), "Learn"),
    "too short a log was adopted": (altered("Elect", "length", 2, 1), "Elect"),
    "a minority elects": (altered("Elect", "promises", "a", 1), "Elect"),
    "a cold election without a seed": (altered("Elect", "promises", "a,b", 0), "Elect"),
    "another member publishes": (altered("Publish", "node", "b"), "Publish"),
    "a publication stands twice": (altered("Publish", "publications", "p#1", 1), "Publish"),
    "an old incarnation is registered": (altered("Register", "registered", 1), "Register"),
    "a promise hides a log": (altered("Promise", "length", 2, 4), "Promise"),
    "a promise was forgotten": (altered("Start", "promised", [0], 3), "Start"),
    "a promise to another candidate counts": (altered("Promise", "candidate", "b", 4), "Elect"),
}
BAD_LOST = {
    "no promise names the loss": (altered("Promise", "readmit", "", 6), "Readmit"),
    "a promise names an earlier loss": (altered("Promise", "readmit", "b=1023", 7), "Readmit"),
    "a promise from before the loss counts": (altered("Elect", "promises", "a,b", 2), "Elect"),
    "a lost seed is registered as one that restarted": (
        altered("Readmit", "name", "Register"),
        "Register",
    ),
    "a lost seed is registered as what it was": (altered("Readmit", "registered", 1), "Readmit"),
    "a lost seed is an earlier incarnation": (altered("Lose", "incarnation", 1), "Lose"),
    "a lost seed takes a log without being taken back": (deleted("Readmit"), "Install"),
}
BAD_RESTORED = {
    "what was acknowledged is not on the disk": (altered("Restore", "length", 3), "Restore"),
    "the disk has more than there was": (altered("Restore", "length", 5), "Restore"),
    "a log of an epoch that was not there": (altered("Restore", "accepted", 7), "Restore"),
    "entries before the log is there": (deleted("Restore"), "Sync"),
}


@pytest.mark.slow
@needs_tlc
def test_true_runs_are_explained_and_each_false_one_is_rejected_at_its_line(tmp_path: Path) -> None:
    true = traces.split("true", list(enumerate(steps.run(), 1)))
    interrupted = traces.split("interrupted", list(enumerate(steps.interrupted(), 1)))
    lost = traces.split("lost", list(enumerate(steps.lost(), 1)))
    restored = traces.split("restored", list(enumerate(steps.restored(), 1)))
    runs = [*true, *interrupted, *lost, *restored]
    bad = ((BAD, steps.run), (BAD_LOST, steps.lost), (BAD_RESTORED, steps.restored))
    for changes, made in bad:
        for name, (change, _) in changes.items():
            runs += traces.split(name, list(enumerate(change(made()), 1)))

    verdict = traces.check(runs)

    rejected = {bad.name.removesuffix(" group 0"): bad.line["name"] for bad in verdict.rejected}
    assert rejected == {n: first for changes, _ in bad for n, (_, first) in changes.items()}
    assert verdict.runs == len(rejected) + 4


@pytest.mark.slow
@needs_tlc
def test_command_names_the_line_that_no_action_explains(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text(steps.as_text(steps.run()))
    bad.write_text(steps.as_text(swapped("Accept", 2)(steps.run())))
    steps_of = [(line["name"], line.get("committed")) for line in swapped("Accept", 2)(steps.run())]
    wrong_at = 1 + steps_of.index(("Commit", 2))

    accepted = CliRunner().invoke(main, ["traces", str(good)])
    refused = CliRunner().invoke(main, ["traces", str(good), str(bad)])

    assert accepted.exit_code == 0, accepted.output
    assert "1 runs, 37 events, 0 rejected" in accepted.output
    assert refused.exit_code == 1
    assert f"bad.jsonl group 0: line {wrong_at}: no action explains" in refused.output


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "bad.jsonl:2: not JSON"),
        ('{"name": "Dance", "node": "a"}', "bad.jsonl:2: not a step"),
        ("[]", "bad.jsonl:2: not a step"),
        ('{"name": "Elect", "node": "a"}', "bad.jsonl:2: an election without its list of seeds"),
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
    start = {**steps.start("a", 1, 0), "promised": [0] * 8}
    lines = [start, steps.step("Forget", "a"), {**steps.step("Forget", "a"), "group": 7}]

    runs = traces.split("two", list(enumerate(lines, 1)))

    assert [run.name for run in runs] == ["two group 0", "two group 7"]
    assert [[n for n, _ in run.lines] for run in runs] == [[1, 2], [1, 3]]


def elected(number: int, seats: str) -> dict:
    return steps.elect("a", number, 0, seats, number=number, seats=seats)


def test_the_first_list_is_the_one_that_elections_name() -> None:
    """A member that becomes a seed later says so when it starts again."""
    lines = [
        *(steps.start(node, 1, 0) for node in "abc"),
        elected(1, "a,b,c"),
        elected(2, "a,b,c,d"),
        steps.start("d", 2, 0),
    ]

    (run,) = traces.split("lists", list(enumerate(lines, 1)))

    assert run.seeds == ("a", "b", "c")
    assert run.voters == ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("before", "other"),
    [
        ([], steps.step("Register", "a", seed="d")),
        ([], steps.seed("Install", "d", 1, 1, 0)),
        ([elected(2, "a,b")], steps.step("Register", "a", seed="c")),
        ([elected(2, "a,b,c,e")], steps.promise("e", 2, 1, 0, "a")),
    ],
    ids=[
        "the log for a stranger",
        "a step of a stranger",
        "a seed that was one before",
        "a seed that nobody gave the log",
    ],
)
def test_a_run_is_judged_up_to_what_the_module_knows_of_lists(
    before: list[dict], other: dict
) -> None:
    lines = [*(steps.start(node, 1, 0) for node in "abc"), *before, steps.step("Learn", "d")]

    (run,) = traces.split("lists", list(enumerate([*lines, other, lines[-1]], 1)))

    assert [number for number, _ in run.lines] == [*range(1, len(lines) + 1)]
    assert [number for number, _ in run.left_out] == [len(lines) + 1, len(lines) + 2]


def test_a_member_that_a_later_list_has_is_given_the_log_before() -> None:
    lines = [
        *(steps.start(node, 1, 0) for node in "abc"),
        steps.step("Register", "a", seed="d"),
        steps.seed("Install", "d", 1, 1, 0),
        elected(2, "a,b,c,d"),
    ]

    (run,) = traces.split("lists", list(enumerate(lines, 1)))

    assert run.voters == ("a", "b", "c", "d")
    assert list(run.left_out) == []


def with_lists(path: Path) -> list[dict]:
    """Write the steps of a run in which five seeds become three, and return them."""
    plan = PROFILES["reseeded-at-once"](1)
    _, world = simulate(plan.with_parts(list(plan.faults), list(plan.sendings[::8])))
    path.write_text(world.trace_lines(), encoding="utf-8")
    return [json.loads(line) for line in world.trace_lines().splitlines()]


@needs_tlc
@pytest.mark.slow
def test_runs_in_which_the_seeds_change_are_judged_by_the_lists_in_force(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    lines = with_lists(path)
    groups = len({line["group"] for line in lines if "group" in line})
    assert max(line["list"] for line in lines if line["name"] == "Elect") == 3

    ended = CliRunner().invoke(main, ["traces", "--spoilt", "--least", "100", str(path)])

    assert ended.exit_code == 0, ended.output
    # Each group once in one of three ways, and once by an older list.
    assert f"{2 * groups} rejected there" in ended.output


FALSE_LISTS = {
    "two seeds fewer at once": {"seats": "m0,m1,m2"},
    "a majority of other seeds": {"promises": "m3,m4,m0"},
    "a list that nothing was elected by": {"list": 3},
}


@needs_tlc
@pytest.mark.slow
def test_a_false_list_is_rejected(tmp_path: Path) -> None:
    lines = with_lists(tmp_path / "run.jsonl")
    at = next(i for i, line in enumerate(lines) if line.get("list") == 2 and line["group"] == 1)
    runs = []
    for name, change in FALSE_LISTS.items():
        false = [*lines[:at], {**lines[at], **change}, *lines[at + 1 :]]
        runs += [traces.of_group(name, SEEDS, list(enumerate(false, 1)), 1)]

    verdict = traces.check(runs)

    assert {(bad.name, bad.number) for bad in verdict.rejected} == {
        (name, at + 1) for name in FALSE_LISTS
    }


@needs_tlc
@pytest.mark.slow
def test_the_command_says_which_lines_it_does_not_judge_and_fails(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    lines = [*steps.run(), steps.seed("Install", "d", 1, 1, 0)]
    path.write_text(steps.as_text(lines), encoding="utf-8")

    accepted = CliRunner().invoke(main, ["traces", "--least", "90", str(path)])
    refused = CliRunner().invoke(main, ["traces", str(path)])

    assert accepted.exit_code == 0, accepted.output
    assert refused.exit_code == 1
    where = f"1 steps from line {len(lines)} on are not judged: Install of d"
    assert where in refused.output


@needs_tlc
@pytest.mark.slow
def test_simulated_runs_are_behaviours_of_the_specification() -> None:
    """Runs with crashes and elections; each with one promise less is none."""
    true, false = [], []
    for seed in (3, 7, 11):
        plan = make(seed)
        _, world = simulate(plan.with_parts(list(plan.faults), list(plan.sendings[:8])))
        lines = [json.loads(line) for line in world.trace_lines().splitlines()]
        true += traces.split(f"true {seed}", list(enumerate(lines, 1)))
        false += traces.split(f"false {seed}", list(enumerate(without_an_election_vote(lines), 1)))

    verdict = traces.check([*true, *false])

    assert not [bad for bad in verdict.rejected if bad.name.startswith("true")]
    assert {bad.line["name"] for bad in verdict.rejected} == {"Elect"}
    assert len(verdict.rejected) >= 2


def without_an_election_vote(lines: list[dict]) -> list[dict]:
    """Leave out the promise that the last election of group 0 counted first."""
    elect = [i for i, v in enumerate(lines) if v["name"] == "Elect" and v["group"] == 0][-1]
    voter = lines[elect]["promises"].split(",")[0]
    at = [
        i
        for i, v in enumerate(lines[:elect])
        if v["name"] == "Promise"
        and (v["group"], v["node"]) == (0, voter)
        and v["epoch"] == lines[elect]["epoch"]
    ][-1]
    return lines[:at] + lines[at + 1 :]


def with_contents(name: str) -> tuple[list[dict], int]:
    """Return the steps of a simulated run, and where the last one of a name is that has entries."""
    plan = make(8)
    _, world = simulate(plan.with_parts([], list(plan.sendings[:10])))
    lines = [json.loads(line) for line in world.trace_lines().splitlines()]
    return lines, max(i for i, line in enumerate(lines) if line["name"] == name and line["digests"])


@needs_tlc
@pytest.mark.slow
@pytest.mark.parametrize("name", ["Accept", "Learn"])
def test_other_content_under_the_same_name_is_rejected(name: str, tmp_path: Path) -> None:
    lines, at = with_contents(name)
    first, _, rest = lines[at]["digests"].rpartition(",")
    assert rest
    lines[at]["digests"] = f"{first},1" if first else "1"
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    verdict = traces.check(traces.read(path))

    assert [(one.number, one.line["name"]) for one in verdict.rejected] == [(at + 1, name)]
