"""Server processes that are killed, drained, and seeds no more write down their steps.

Is each such run explained?
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from mdserver.cluster.placement import ranking
from spec import spoilt, tlc, traces
from spec.__main__ import main
from tests.cluster.live_cluster import LiveCluster

SUBJECTS = [f"/s/{index}" for index in range(6)]
needs_tlc = pytest.mark.skipif(not tlc.available(), reason="TLC needs Java")


def publish_all(cluster: LiveCluster, index: int, content: str) -> None:
    for subject in SUBJECTS:
        cluster.wait(lambda: cluster.produce(index, subject, content), 60, subject)  # noqa: B023


def leading(cluster: LiveCluster, asked: int, member: int) -> int:
    """How many groups a member coordinates, as another one sees it."""
    groups = cluster.status(asked)["groups"]
    return sum(group["coordinator"] == cluster.peers[member] for group in groups)


def run_with_a_kill_and_a_hand_over(folder: Path) -> list[Path]:
    """Publications before, during and after both; returns the files of the members."""
    with LiveCluster(folder, 3, groups=4, traced=True) as cluster:
        # Others may coordinate a group for a moment at the start, and would not get it back.
        victim = cluster.peers.index(ranking(0, dict.fromkeys(cluster.peers, 1))[0])
        other, third = (index for index in range(3) if index != victim)
        cluster.wait(lambda: leading(cluster, other, victim), 60, "the victim leads")
        publish_all(cluster, other, "one")
        cluster.kill(victim)
        publish_all(cluster, other, "two")
        cluster.start(victim)
        cluster.wait_ready(victim, 60)
        publish_all(cluster, victim, "three")
        cluster.wait(lambda: leading(cluster, other, victim), 60, "groups are handed back")
        publish_all(cluster, third, "four")
        assert cluster.command(victim, "drain", cluster.peers[victim]).returncode == 0
        cluster.wait(lambda: not leading(cluster, other, victim), 60, "groups are handed on")
        publish_all(cluster, other, "five")
        return [cluster.trace(index) for index in range(3)]


@needs_tlc
@pytest.mark.slow
def test_steps_of_live_members_are_a_behaviour_and_changed_ones_are_not(tmp_path: Path) -> None:
    files = run_with_a_kill_and_a_hand_over(tmp_path)
    whole = tmp_path / "whole.jsonl"

    merged = CliRunner().invoke(main, ["merge", "--output", str(whole), *map(str, files)])
    ended = CliRunner().invoke(main, ["traces", "--spoilt", str(whole)])

    assert merged.exit_code == 0, merged.output
    assert ended.exit_code == 0, ended.output
    assert "4 runs" in ended.output
    assert "4 rejected there" in ended.output
    steps = [json.loads(line) for line in whole.read_text().splitlines()]
    assert [step["incarnation"] for step in steps if step["name"] == "Start"] == [1, 1, 1, 2]
    assert {"Elect", "Publish", "Commit", "Register", "Install", "Learn"} <= {
        step["name"] for step in steps
    }


def run_in_which_five_seeds_become_three(folder: Path) -> list[Path]:
    """One of the three is killed then: two of the five elect, and start with what they noted."""
    with LiveCluster(folder, 5, groups=4, traced=True) as cluster:
        publish_all(cluster, 0, "one")
        for removed in (4, 3):
            done = cluster.command(0, "remove-seed", cluster.peers[removed], "--timeout", "15")
            assert done.returncode == 0, done.stderr
            publish_all(cluster, removed, f"without {removed}")
        for killed in (3, 1):
            cluster.kill(killed)
            publish_all(cluster, 0, f"{killed} is dead")
            cluster.start(killed)
            cluster.wait_ready(killed, 60)
        publish_all(cluster, 1, "two")
        return [cluster.trace(index) for index in range(5)]


@needs_tlc
@pytest.mark.slow
def test_live_members_are_judged_by_the_lists_of_seeds_that_elected(tmp_path: Path) -> None:
    files = run_in_which_five_seeds_become_three(tmp_path)
    whole = tmp_path / "whole.jsonl"
    whole.write_text("".join(traces.merged(files)), encoding="utf-8")

    ended = CliRunner().invoke(main, ["traces", "--spoilt", "--least", "100", str(whole)])

    assert ended.exit_code == 0, ended.output
    assert "8 rejected there" in ended.output  # each group in one of three ways, and by a list
    steps = [json.loads(line) for line in whole.read_text().splitlines()]
    elections = [step for step in steps if step["name"] == "Elect" and step["list"] == 3]
    assert any(len(step["promises"].split(",")) == 2 for step in elections)
    assert {len(step["seats"].split(",")) for step in elections} == {3}


def written(folder: Path, *files: list[dict[str, object]]) -> list[Path]:
    paths = [folder / f"{number}.jsonl" for number in range(len(files))]
    for path, lines in zip(paths, files, strict=True):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return paths


def start(node: str, incarnation: int, at: int) -> dict[str, object]:
    return {
        "name": "Start",
        "node": node,
        "incarnation": incarnation,
        "promised": [0],
        "seed": True,
        "lost": False,
        "at": at,
    }


def test_files_of_members_are_merged_by_time(tmp_path: Path) -> None:
    a = [start("a", 1, 10), {"name": "Stop", "node": "a", "group": 0, "at": 30}]
    b = [start("b", 1, 20), {"name": "Stop", "node": "b", "group": 0, "at": 25}]

    lines = [json.loads(line) for line in traces.merged(written(tmp_path, a, b))]

    assert [line["at"] for line in lines] == [10, 20, 25, 30]


def test_a_start_with_an_incarnation_that_was_there_lost_its_record(tmp_path: Path) -> None:
    paths = written(tmp_path, [start("a", 1, 1), start("a", 2, 2), start("a", 1, 3)])

    lines = [json.loads(line) for line in traces.merged(paths)]

    assert [line["lost"] for line in lines] == [False, False, True]


def test_a_line_without_a_time_is_named(tmp_path: Path) -> None:
    paths = written(tmp_path, [start("a", 1, 1), {"name": "Stop", "node": "a"}])

    with pytest.raises(traces.BadTraceError, match=r"0\.jsonl:2: `at` is missing"):
        traces.merged(paths)


ELECTION = [
    (1, {"name": "Promise", "node": "b", "epoch": 3}),
    (2, {"name": "Promise", "node": "a", "epoch": 3}),
    (3, {"name": "Elect", "node": "a", "epoch": 3, "promises": "b,a", "length": 0}),
    (4, {"name": "Sync", "node": "a", "epoch": 3}),
]


@pytest.mark.parametrize(
    ("change", "order"),
    [(spoilt.deleted, [2, 3, 4]), (spoilt.swapped, [3, 2, 1, 4]), (spoilt.altered, [1, 2, 3, 4])],
)
def test_each_change_spoils_the_last_election(
    change: Callable[[spoilt.Lines, int], tuple[spoilt.Lines, int]], order: list[int]
) -> None:
    lines, number = change(list(ELECTION), 2)

    assert [n for n, _ in lines] == order
    assert number == 3
    assert lines != ELECTION


def test_a_run_without_an_election_is_not_spoilt() -> None:
    assert spoilt.spoilt([traces.Recorded("one", ("a",), ELECTION[:2])]) == []
