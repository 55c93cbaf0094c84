"""A run of whole servers under Trio's mock clock, from its plan to its result."""

import random
import time

import trio
from attrs import evolve
from trio._core import _run as scheduler
from trio.testing import MockClock

from mdserver.limits import NS_PER_S
from simulation.faults import Faults
from simulation.plan import Plan, make
from simulation.run import LOOK_EVERY, Result, result_of, schedule
from simulation.server.world import ServerWorld

CALM = 6 * NS_PER_S
SENDINGS_MAX = 150


def plan_of(seed: int) -> Plan:
    """The plan of a seed: as at the other levels, but a cluster, and shorter."""
    plan = make(seed)
    members = plan.members if plan.members in {3, 4, 5} else 3
    faults = [fault for fault in plan.faults if fault.at < CALM]
    sendings = [sending for sending in plan.sendings if sending.at < CALM]
    small = evolve(plan, members=members, calm=CALM)
    faults = [evolve(f, first=f.first % members, second=f.second % members) for f in faults]
    return small.with_parts(faults, sendings[:SENDINGS_MAX])


def run(plan: Plan) -> tuple[Result, ServerWorld]:
    """Run a plan to its end. The same plan gives the same run.

    Trio chooses between tasks that are ready at random: here its generator is seeded, and it looks
    at tasks in the order in which they were made (trio._core._run, as its plugin for Hypothesis
    has it). The sockets' back-off comes from `random`, seeded too.
    """
    began = time.perf_counter()
    before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    scheduler._r.seed(f"{plan.seed} tasks")
    random.seed(f"{plan.seed} sockets")
    try:
        return trio.run(_main, plan, began, clock=MockClock(autojump_threshold=0))
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = before  # type: ignore[misc]


async def _main(plan: Plan, began: float) -> tuple[Result, ServerWorld]:
    async with trio.open_nursery() as nursery:
        world = ServerWorld(plan, nursery)
        faults = Faults(world)
        schedule(world, faults)
        nursery.start_soon(world.play)
        try:
            crashed = await _go(world, faults)
        finally:
            for member in world.members.values():
                member.stop()
            nursery.cancel_scope.cancel()
    return result_of(world, crashed, began), world


async def _go(world: ServerWorld, faults: Faults) -> str | None:
    """Until the calm, then until everything rests; what went wrong on the way."""
    plan = world.plan
    for until in (*range(LOOK_EVERY, plan.calm, LOOK_EVERY), plan.calm):
        await _until(world, until)
        world.look()
        if world.watch.findings:
            return None
        late = world.overdue()
        if late is not None:
            return f"service: {plan.bound / 1e9:.0f} s later, {late} (at {until / 1e9:.1f} s)"
    faults.heal()
    until, unrest = plan.calm, "it was never looked at"
    while unrest and not world.watch.findings:
        if until > plan.resting_by:
            waited = (until - plan.calm) / 1e9
            return f"liveness: {waited:.0f} s after the last fault, {unrest}"
        until += LOOK_EVERY
        await _until(world, until)
        world.look()
        unrest = world.at_rest() or ""
    return None


async def _until(world: ServerWorld, time: int) -> None:
    """Let things happen up to a time, or until something is found."""
    for look in range(world.heap.now + LOOK_EVERY, time + LOOK_EVERY, LOOK_EVERY):
        await trio.sleep_until(min(look, time) / NS_PER_S)
        if world.watch.findings:
            return
