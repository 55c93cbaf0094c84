"""A run from its plan to its result."""

import time
import traceback
from functools import partial
from pathlib import Path

from attrs import frozen

from mdserver.limits import NS_PER_MS
from simulation import habits
from simulation.faults import Faults
from simulation.plan import Plan
from simulation.world import World

LOOK_EVERY = 100 * NS_PER_MS


@frozen
class Result:
    """What came of a run. `problems` are "class: sentence"; none means that it passed."""

    seed: int
    problems: tuple[str, ...]
    events: int
    steps: int
    committed: int
    acked: int
    delivered: int
    simulated: int  # ns
    seconds: float
    trace_hash: str
    coverage: dict[str, int]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The classes of the problems."""
        return tuple(dict.fromkeys(problem.partition(":")[0] for problem in self.problems))


def run(plan: Plan, *, split: bool = False) -> tuple[Result, World]:
    """Run a plan to its end: faults, calm, rest, checks. `split`: links carry pieces of frames."""
    began = time.perf_counter()
    world = World(plan, split=split)
    faults = Faults(world)
    schedule(world, faults)
    crashed = _go(world, faults)
    return result_of(world, crashed, began), world


def schedule(world: World, faults: Faults) -> None:
    """Have everything happen that the plan names."""
    heap, plan = world.heap, world.plan
    for member in world.members.values():
        heap.at(0, member.start)
    for client in [*world.subscribers, *world.publishers]:
        heap.at(0, client.connect)
    for client in world.subscribers:
        client.subscribe(world.subjects)
    habits.schedule(world)
    for fault in plan.faults:
        heap.at(fault.at, partial(faults.apply, fault))
    for number, sending in enumerate(plan.sendings):
        client, subject = world.publishers[sending.publisher], world.subjects[sending.subject]
        heap.at(sending.at, partial(client.publish, subject, f"p{number}"))


def result_of(world: World, crashed: str | None, began: float) -> Result:
    """What came of a run that ended by itself, or that something unexpected ended (`crashed`)."""
    problems = [f"{f.kind}: {f.what} (at {f.at / 1e9:.3f} s)" for f in world.watch.findings]
    if crashed:
        problems.append(crashed)
    else:
        world.settle()
        problems += [f"{v.kind}: {v.what}" for v in world.checker.finish()]
    for member in world.members.values():
        if member.node is not None:
            world.cover_refusals(member.node)
    return Result(
        seed=world.plan.seed,
        problems=tuple(problems),
        events=world.heap.happened,
        steps=len(world.traced),
        committed=world.watch.committed,
        acked=world.coverage["acked"],
        delivered=world.checker.delivered,
        simulated=world.heap.now,
        seconds=time.perf_counter() - began,
        trace_hash=world.trace_hash,
        coverage=dict(world.coverage),
    )


def _go(world: World, faults: Faults) -> str | None:
    """Until the calm, then until everything rests; what went wrong on the way."""
    heap, plan = world.heap, world.plan
    try:
        late = None
        for until in (*range(LOOK_EVERY, plan.calm, LOOK_EVERY), plan.calm):
            while heap.step(until) and not world.watch.findings:
                pass
            world.look()
            late = world.overdue()
            if late is not None:
                return f"service: {plan.bound / 1e9:.0f} s later, {late} (at {until / 1e9:.1f} s)"
        faults.heal()
        unrest: str | None = "it was never looked at"
        until = plan.calm
        while unrest is not None and not world.watch.findings:
            until += LOOK_EVERY
            while heap.step(until) and not world.watch.findings:
                pass
            world.look()
            unrest = world.at_rest()
            if unrest is not None and until > plan.resting_by:
                waited = (until - plan.calm) / 1e9
                return f"liveness: {waited:.0f} s after the last fault, {unrest}"
    except Exception as error:
        return f"exception: {sentence_of(error)} (at {heap.now / 1e9:.3f} s)"
    return None


def sentence_of(error: BaseException) -> str:
    """An exception that nobody expected, and where it came from."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{place.name}, {Path(place.filename).name}:{place.lineno}"
    return f"{type(error).__name__} in {where}: {error}"
