"""Plans of chaos runs, who may be killed when, and what counts as silence."""

from pathlib import Path

import pytest

from simulation.chaos.cluster import Availability, Cluster
from simulation.chaos.loopback import Loopback
from simulation.chaos.plan import BLACKOUT, CLOCK, OTHER_KINDS, PROCESS_KINDS, make


def test_a_plan_follows_from_its_seed_and_a_minute_has_every_kind() -> None:
    plans = [make(seed, 60, 5, clocks=True) for seed in range(50)]
    assert plans == [make(seed, 60, 5, clocks=True) for seed in range(50)]
    wanted = {*PROCESS_KINDS, *OTHER_KINDS, CLOCK}
    assert all(len(wanted - set(plan.kinds)) <= plan.reckless for plan in plans)
    assert {plan.seeds for plan in plans} == {3, 5}
    assert all((BLACKOUT in plan.kinds) == plan.reckless for plan in plans)
    assert any(plan.reckless for plan in plans)
    assert CLOCK not in make(1, 60, 3, clocks=False).kinds


def test_short_runs_differ_in_what_they_do() -> None:
    assert len({make(seed, 10, 3, clocks=True).kinds for seed in range(20)}) > 10


@pytest.mark.parametrize(("members", "seeds"), [(3, 3), (5, 5)])
def test_no_seed_may_end_that_the_majority_needs(tmp_path: Path, members: int, seeds: int) -> None:
    plan = next(p for s in range(9) if (p := make(s, 9, members, clocks=False)).seeds == seeds)
    cluster = Cluster(plan, Loopback(members), tmp_path, lambda _: None)
    majority = seeds // 2 + 1
    for count, member in enumerate(cluster.members):
        member.proven = True
        # Without this one there are as many as were proven before it.
        assert cluster.spare(member) == (count >= majority)
    cluster.doomed = dict.fromkeys(range(seeds - majority))
    last = cluster.members[-1]
    assert not cluster.spare(last)
    cluster.doomed.popitem()
    assert cluster.spare(last)


def test_silence_counts_only_while_publications_could_be_taken() -> None:
    available = Availability()
    available.acked(1.0)
    assert available.longest_s == 0
    available.now_able(True, 10.0)
    available.now_able(True, 11.0)
    available.acked(13.0)
    assert available.longest_s == 3.0
    available.acked(14.0)
    available.now_able(False, 14.5)
    available.now_able(True, 60.0)
    available.acked(62.0)
    assert available.longest_s == 3.0
    available.now_able(False, 70.0)
    assert available.longest_s == 8.0
