"""Plans guided by what they reach: one that reaches something new is kept, and changed further.

Seeds draw each plan from nothing, so a situation that needs three coincidences is drawn once in
thousands of runs. Here each coincidence is kept as it is found (Zalewski's afl does so with the
inputs of a parser): a run is known by its *features*, and a plan with a feature that no plan before
had becomes one of those that are changed. Features are how often something happened, to the next
power of two: refusals of each guard, what `World.cover` counts, and which step followed on which at
a member.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator

from attrs import define, evolve, field, frozen

from mdserver.cluster.guards import Guard
from mdserver.limits import NS_PER_MS, NS_PER_S, PUBLISHER_NUMBERS_KEPT
from simulation.chaos import releases
from simulation.guards import PREFIX
from simulation.plan import FEW_NUMBERS, KINDS, Fault, Plan, Sending, make
from simulation.processes import pool
from simulation.profiles import PROFILES
from simulation.run import run
from simulation.stored import load

PALETTE = (*KINDS, "drain", "pause", "stall-disk")
OWN_PALETTE = ("put-back", "put-back-majority")
"""With faults of these kinds a plan keeps to its own kinds: others would break its assumptions."""

LASTING_MAX = 2 * NS_PER_S
CHANGES_MAX = 4
Features = frozenset[tuple[str, int]]


@frozen
class Explored:
    """A run: its plan, what it reached, and what failed in it."""

    plan: Plan
    features: Features
    problems: tuple[str, ...]

    @property
    def guards(self) -> list[Guard]:
        """Return the guards that refused something."""
        names = {name for name, _ in self.features}
        return [guard for guard in Guard if PREFIX + guard.value in names]


def explored(plan: Plan) -> Explored:
    """Run a plan; at module level, so that another process can do it."""
    result, world = run(plan)
    counted = Counter(result.coverage)
    last: dict[tuple[str, int], str] = {}
    for line in world.traced:
        at = line["node"], line.get("group") or 0
        counted[f"{last.get(at, '')} then {line['name']}"] += 1
        last[at] = line["name"]
    features = frozenset((name, count.bit_length()) for name, count in counted.items() if count)
    return Explored(plan, features, result.problems)


def beginnings() -> list[Plan]:
    """Return the plans to begin with: stored ones, drawn ones, and some of each profile."""
    plans = [stored.plan for stored in load().values()]
    plans += [make(seed) for seed in range(1, 41)]
    plans += [profile(seed) for profile in PROFILES.values() for seed in range(1, 9)]
    return [
        plan
        for plan in plans
        if not plan.bound
        and plan.members > 1
        and not plan.led
        and not plan.standard
        and not ("before" in plan.versions and releases.missing())
    ]


@define
class Explorer:
    """Plans that are worth changing, and everything that was reached so far."""

    rng: random.Random
    kept: list[Plan] = field(factory=list)
    reached: set[tuple[str, int]] = field(factory=set)

    def note(self, one: Explored) -> bool:
        """Keep the plan of a run that reached something new; return whether it did."""
        new = one.features - self.reached
        self.reached |= new
        if new:
            self.kept.append(one.plan)
        return bool(new)

    def next(self) -> Plan:
        """Return a plan that was kept, changed in a few places; later ones are taken more often."""
        at = max(self.rng.randrange(len(self.kept)), self.rng.randrange(len(self.kept)))
        plan = self.kept[at]
        for _ in range(self.rng.randint(1, CHANGES_MAX)):
            plan = self._changed(plan)
        return evolve(
            plan,
            seed=self.rng.randrange(2**31),
            faults=tuple(sorted(plan.faults, key=lambda fault: fault.at)),
            sendings=tuple(sorted(plan.sendings, key=lambda sending: sending.at)),
        )

    def _changed(self, plan: Plan) -> Plan:
        """Return a plan with one change."""
        rng = self.rng
        faults = list(plan.faults)
        match rng.randrange(8):
            case 0 | 1:
                faults.append(self._fault(plan))
            case 2 if faults:
                faults.pop(rng.randrange(len(faults)))
            case 3 | 4 if faults:
                # Close to another fault, or a little earlier or later than it was.
                at = rng.randrange(len(faults))
                near = rng.choice((faults[at], rng.choice(faults))).at
                moved = near + rng.randint(-200, 200) * NS_PER_MS
                faults[at] = evolve(faults[at], at=min(max(0, moved), plan.calm - 1))
            case 5 if faults:
                at = rng.randrange(len(faults))
                drawn = self._fault(plan)
                part = rng.choice(("lasting", "first", "second", "draw"))
                faults[at] = evolve(faults[at], **{part: getattr(drawn, part)})
            case 6:
                return self._sized(plan)
            case _:
                at, publisher = rng.randrange(plan.calm), rng.randrange(plan.publishers)
                subject = rng.randrange(plan.subjects)
                burst = [Sending(at, publisher, subject)] * rng.choice((1, 5, 20))
                return evolve(plan, sendings=(*plan.sendings, *burst))
        return evolve(plan, faults=tuple(faults))

    def _fault(self, plan: Plan) -> Fault:
        """Draw a fault of a kind that the plan may have."""
        rng = self.rng
        own = any(kind in plan.kinds for kind in OWN_PALETTE)
        return Fault(
            at=rng.randrange(plan.calm),
            kind=rng.choice(plan.kinds if own else PALETTE),
            first=rng.randrange(plan.members),
            second=rng.randrange(plan.members),
            lasting=min(
                int(rng.expovariate(1 / rng.choice((0.05, 0.5, 2.0))) * NS_PER_S), LASTING_MAX
            ),
            draw=rng.getrandbits(30),
        )

    def _sized(self, plan: Plan) -> Plan:
        """Return a plan with another bound or duration."""
        rng = self.rng
        match rng.randrange(5):
            case 0:
                return evolve(plan, delay_max=rng.choice((1, 5, 20, 100)) * NS_PER_MS)
            case 1:
                return evolve(plan, disk_max=rng.choice((1, 10, 50, 200)) * NS_PER_MS)
            case 2:
                return evolve(plan, log_kept=rng.choice((4, 50, 1000)))
            case 3:
                return evolve(plan, numbers_kept=rng.choice((FEW_NUMBERS, PUBLISHER_NUMBERS_KEPT)))
            case _:
                return evolve(plan, groups=rng.choice((1, 2, 4)))


def explore(
    rng: random.Random, jobs: int, plans: Iterable[Plan]
) -> Iterator[tuple[Explored, bool]]:
    """Run plans and then ever more that are made of them; each run, and whether it was new."""
    explorer, waiting = Explorer(rng), list(plans)
    size = 4 * jobs
    with pool(jobs) as workers:
        while True:
            batch, waiting = waiting[:size], waiting[size:]
            for one in workers.map(explored, batch or [explorer.next() for _ in range(size)]):
                yield one, explorer.note(one)
