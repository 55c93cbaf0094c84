"""The runs of a command: one, or one after the other over all profiles for as long as was asked."""

from collections.abc import Callable, Iterator
from itertools import count

from attrs import frozen

from simulation.chaos import disks, releases
from simulation.chaos.plan import CLOCK, HALF_CUT, Plan, make
from simulation.chaos.profiles import CLOCK_SET, PROFILES, SHUFFLE, make_rounds
from simulation.chaos.wall_clock import fake_clock
from simulation.chaos.wire import Wire

MIXED, ALL = "mixed", "all"
ROUNDS_EACH = 6
MIXED_S, HALF_CUT_S = 60, 30


@frozen
class Part:
    """One run, and the name of its profile."""

    name: str
    plan: Plan

    @property
    def folder(self) -> str:
        """What its files are called where they are kept."""
        plan = self.plan
        return f"{'' if self.name == MIXED else self.name + '-'}seed-{plan.seed}-{plan.members}"


def over_all(seed: int) -> Iterator[Part]:
    """All profiles, with one seed after the other, without end."""
    clocks = fake_clock() is not None
    for at in count(seed):
        yield Part(MIXED, make(at, MIXED_S, 3, clocks=clocks))
        for name in PROFILES:
            yield Part(name, make_rounds(name, at, ROUNDS_EACH))
        yield Part(HALF_CUT, make(at, HALF_CUT_S, 3, clocks=clocks, only=[HALF_CUT]))


def possible(
    parts: Iterator[Part], wire: Callable[[int], Wire], told: Callable[[str], None]
) -> Iterator[Part]:
    """Those that can be made here; each profile that cannot is told of once."""
    left_out: dict[str, None] = {}
    for part in parts:
        why = unable(part.plan, wire(part.plan.members))
        if why is None:
            yield part
        elif part.name not in left_out:
            left_out[part.name] = None
            told(f"NOT RUN, profile {part.name}: {why}")


def less(plan: Plan, wire: Wire) -> str | None:
    """Return what a run that can be made here leaves out, or None if it is nothing."""
    if plan.encrypted and wire.reads:
        return "TLS for clients only: members speak without it through a proxy that has to read"
    return None


def unable(plan: Plan, wire: Wire) -> str | None:
    """Return why this run cannot be made here, or None if it can."""
    if plan.upgraded and (why := releases.missing()) is not None:
        return f"no upgrade: {why}"
    if plan.disks and not wire.alters:
        return "no disks: members have some only in namespaces, which are thrown away (--network)"
    if plan.disks and (why := disks.missing()) is not None:
        return f"no disks: {why}"
    if SHUFFLE in plan.kinds and not wire.alters:
        return "no packets out of order: a proxy sees what TCP has put in order (--network)"
    if {CLOCK, CLOCK_SET} & set(plan.kinds) and fake_clock() is None:
        return "no clock jumps: libfaketime is missing (package libfaketime)"
    return None
