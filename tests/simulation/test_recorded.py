"""Seeds that write their logs down: whatever crashes, nothing is lost or told anew.

In these runs no crash is held back for the sake of the majority, and the checker takes every reset
and gap for an error.
"""

import random

import pytest
from attrs import evolve

from mdserver.cluster.wal import WalBuffer
from mdserver.limits import NS_PER_MS
from simulation import disk_profiles, plan
from simulation.run import run

CRASHES = ("crash", "crash-coordinator", "crash-at-step", "restart-storm", "slow")


def crashing(seed: int) -> plan.Plan:
    """A plan with many crashes and a slow disk."""
    made = plan.make(seed)
    rng = random.Random(f"{seed} crashing")
    faults = [
        fault for _ in range(4) for fault in plan.draw_faults(rng, CRASHES, made.members, made.calm)
    ]
    faults = [evolve(fault, lasting=min(fault.lasting, 2000 * NS_PER_MS)) for fault in faults]
    return evolve(
        # A publisher far beyond the numbers that are kept comes to rest by slow retries.
        made,
        kinds=CRASHES,
        disk_max=50 * NS_PER_MS,
        recorded=True,
        patience=4 * made.patience,
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
    )


@pytest.mark.parametrize("first", range(1, 31, 6))
def test_crashes_of_everybody_lose_nothing(first: int) -> None:
    crashes = anew = 0
    for seed in range(first, first + 6):
        result, _ = run(crashing(seed))
        assert result.problems == (), f"seed {seed}"
        crashes += result.coverage["crash"]
        anew += result.coverage.get("records written anew", 0)
    assert crashes > 50
    assert anew


@pytest.mark.parametrize("first", range(1, 25, 6))
def test_a_seed_whose_disk_is_put_back_costs_nothing(first: int) -> None:
    """Others remember later starts of it: nothing is lost, told of or told twice."""
    found = 0
    for seed in range(first, first + 6):
        result, _ = run(disk_profiles.put_back(seed, majority=False), split=seed % 2 == 0)
        assert result.problems == (), f"seed {seed}"
        found += result.coverage.get("disk put back", 0)
    assert found


@pytest.mark.parametrize("first", range(1, 13, 3))
def test_disks_of_a_majority_put_back_come_to_rest_with_the_orders_of_an_operator(
    first: int,
) -> None:
    """What was acknowledged is there, or its history is gone with it: nothing is lost silently."""
    found = 0
    for seed in range(first, first + 3):
        result, _ = run(disk_profiles.put_back(seed), split=seed % 2 == 0)
        assert result.problems == (), f"seed {seed}"
        found += result.coverage.get("disks of a majority put back", 0)
    assert found


@pytest.mark.parametrize("first", range(1, 13, 3))
def test_disks_that_stop_for_seconds_cost_nothing(first: int) -> None:
    stalls = 0
    for seed in range(first, first + 3):
        result, _ = run(disk_profiles.slow_disks(seed), split=seed % 2 == 0)
        assert result.problems == (), f"seed {seed}"
        stalls += result.coverage.get("fault stall-disk", 0)
    assert stalls > 5


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1200, 20))
def test_many_plans_with_every_kind_of_fault(first: int) -> None:
    for seed in range(first, first + 20):
        for made in (crashing(seed), evolve(plan.make(seed), recorded=True)):
            assert run(made)[0].problems == (), f"seed {seed}"


def test_acks_that_do_not_wait_for_the_disk_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WalBuffer, "needed", 0)
    found = {kind for seed in range(1, 21) for kind in run(crashing(seed))[0].kinds}
    # A coordinator that notices has the seed wait for an operator, which shows as no progress.
    assert found & {"lost", "fork", "I1", "I2", "I3", "I5", "disclosed loss"}, found
