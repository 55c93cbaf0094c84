"""Plans that reach something new are kept and changed; what they reach is told."""

import random
from pathlib import Path

import pytest
from attrs import evolve
from click.testing import CliRunner

from simulation.__main__ import main
from simulation.explore import PALETTE, Explored, Explorer, beginnings, explored
from simulation.plan import make
from simulation.stored import load


def test_a_plan_is_kept_if_it_reached_something_new() -> None:
    explorer = Explorer(random.Random(1))
    first = Explored(make(1), frozenset({("crash", 1)}), ())

    assert explorer.note(first)
    assert not explorer.note(evolve(first, plan=make(2)))
    assert explorer.note(Explored(make(3), frozenset({("crash", 2)}), ()))
    assert explorer.kept == [make(1), make(3)]


def test_a_changed_plan_keeps_to_the_kinds_of_faults_that_it_may_have() -> None:
    put_back = load()["disk-put-back"].plan
    for plan, kinds in ((make(7), {*PALETTE}), (put_back, {*put_back.kinds})):
        explorer = Explorer(random.Random(2), [plan])
        changed = [explorer.next() for _ in range(50)]

        assert len({one.faults for one in changed}) > 25
        assert {fault.kind for one in changed for fault in one.faults} <= kinds
        assert all(0 <= fault.at < plan.calm for one in changed for fault in one.faults)
        assert all(list(one.faults) == sorted(one.faults, key=lambda f: f.at) for one in changed)


def test_a_run_is_known_by_what_it_reached() -> None:
    stored = load()["early-cold-start"]

    one = explored(stored.plan)

    assert one.problems == ()
    assert "PREPARE_COLD_EARLY" in {guard.name for guard in one.guards}
    assert ("Promise then Elect", 1) in {(name, min(count, 1)) for name, count in one.features}


def test_what_is_explored_begins_with_stored_plans() -> None:
    plans = beginnings()

    assert all(
        stored.plan in plans
        for stored in load().values()
        if stored.plan.members > 1 and not stored.plan.led and not stored.plan.standard
    )
    assert all(not plan.bound for plan in plans)


@pytest.mark.slow
def test_the_command_says_what_was_reached(tmp_path: Path) -> None:
    command = ["explore", "--seconds", "1", "--jobs", "1", "--store", str(tmp_path)]

    ended = CliRunner().invoke(main, command)

    assert ended.exit_code == 0, ended.output
    assert "plans reached something new, 0 failed" in ended.output
    assert load(tmp_path) != {}
