"""Directed plans of clusters whose seeds change: names of lists, and what happens meanwhile."""

import random

from attrs import evolve

from mdserver.limits import NS_PER_MS, NS_PER_S
from simulation.plan import CRASHES, SPLITS, Fault, Plan, Sending, draw_faults, small
from simulation.strays import STRAYS

STRAYS_EACH = 4
"""How often members of such a plan say each thing that none says."""


def reseeded(seed: int) -> Plan:
    """Three seeds become five, one after the other, and three again, amid faults of all kinds.

    Two operators at two members want different things at about the same time.
    """
    rng = random.Random(f"reseeded {seed}")
    calm = 26 * NS_PER_S
    wishes = [(3, 0), (4, 0), *((member, 1) for member in rng.sample(range(5), 2))]
    orders = []
    for turn, (member, removed) in enumerate(wishes):
        at = (2 + 6 * turn) * NS_PER_S + rng.randrange(NS_PER_S)
        orders.append(Fault(at, "reseed", rng.randrange(5), member, 5 * NS_PER_S, removed))
        if rng.random() < 0.5:
            late = at + rng.randrange(NS_PER_S)
            other, kind = rng.randrange(5), rng.randrange(2)
            orders.append(Fault(late, "reseed", rng.randrange(5), other, NS_PER_S // 2, kind))
    kinds = (*CRASHES, *SPLITS, "lose-vote", "lose-vote", "pause", "drain")
    faults = [
        evolve(fault, lasting=min(fault.lasting, 3 * NS_PER_S))
        for fault in draw_faults(rng, kinds, 5, calm)
    ]
    sendings = [
        Sending(at, rng.randrange(3), rng.randrange(4))
        for at in range(NS_PER_S, calm, rng.choice((20, 60)) * NS_PER_MS)
    ]
    plan = small(seed, calm, [*orders, *faults], sendings)
    return evolve(
        plan,
        members=5,
        seeds=3,
        groups=rng.choice((1, 2, 4)),
        subjects=4,
        kinds=("reseed", *kinds),
        delay_max=rng.choice((1, 5, 20)) * NS_PER_MS,
        disk_max=rng.choice((1, 10)) * NS_PER_MS,
        patience=120 * NS_PER_S,
    )


def strays(seed: int) -> Plan:
    """Meanwhile members say what no member says (simulation/strays.py)."""
    rng, plan = random.Random(f"strays {seed}"), reseeded(seed)
    said = [
        Fault(rng.randrange(plan.calm), kind, rng.randrange(5), rng.randrange(5), 0, 0)
        for kind in STRAYS
        for _ in range(STRAYS_EACH)
    ]
    faults = sorted((*plan.faults, *said), key=lambda fault: fault.at)
    return evolve(plan, faults=tuple(faults), kinds=(*plan.kinds, *STRAYS))


def named_apart(seed: int) -> Plan:
    """Two seeds name two lists at about the same time, and one is cut off as its list begins."""
    rng = random.Random(f"named apart {seed}")
    calm = 8 * NS_PER_S
    # Only the first of the list that a seed has in sight names: so it takes these two.
    first, second = rng.sample(range(2), 2)
    third = 2
    named = 2 * NS_PER_S + rng.randrange(NS_PER_S)

    def later(least: int, most: int) -> int:
        return named + rng.randint(least, most) * NS_PER_MS

    faults = [
        # The two that name a list each have no link to each other, and the third one decides.
        Fault(later(-600, -300), "half-cut", first, second, 5 * NS_PER_S, 3),
        Fault(named, "reseed-apart", first, 3, 0, 0),
        Fault(later(-100, 500), "reseed-apart", second, 4, 0, 0),
        Fault(later(100, 900), "isolate", first, 0, 3 * NS_PER_S, 3),
    ]
    if rng.random() < 0.6:
        lasting, draw = rng.randint(20, 200) * NS_PER_MS, rng.getrandbits(30)
        faults.append(Fault(later(100, 900), "crash", third, 0, lasting, draw))
    sendings = [Sending(at, 0, 0) for at in range(NS_PER_S, calm, 200 * NS_PER_MS)]
    plan = small(seed, calm, faults, sendings)
    return evolve(
        plan,
        members=5,
        seeds=3,
        kinds=("reseed-apart",),
        delay_max=rng.choice((1, 20, 100)) * NS_PER_MS,
        disk_max=rng.choice((1, 50, 200)) * NS_PER_MS,
        patience=60 * NS_PER_S,
    )


def reseeded_at_once(seed: int) -> Plan:
    """Operators want two of five seeds to be none at the same time, and say so again and again."""
    rng = random.Random(f"reseeded at once {seed}")
    calm = 8 * NS_PER_S
    begun = 2 * NS_PER_S + rng.randrange(NS_PER_S)
    orders = [
        Fault(begun + turn * 30 * NS_PER_MS, "reseed", rng.randrange(3), 3 + turn % 2, NS_PER_S, 1)
        for turn in range(20)
    ]
    sendings = [Sending(at, 0, 0) for at in range(NS_PER_S, calm, 100 * NS_PER_MS)]
    plan = small(seed, calm, orders, sendings)
    return evolve(
        plan,
        members=5,
        seeds=5,
        groups=4,
        kinds=("reseed",),
        delay_max=rng.choice((5, 20, 50)) * NS_PER_MS,
        disk_max=rng.choice((1, 10, 50)) * NS_PER_MS,
        patience=60 * NS_PER_S,
    )


def reseeded_amid_hand_overs(seed: int) -> Plan:
    """Groups are handed over again and again while a list begins, of which members hear late."""
    rng = random.Random(f"reseeded amid hand-overs {seed}")
    plan = reseeded_at_once(seed)
    begun = min(fault.at for fault in plan.faults)
    drains = [
        Fault(begun + turn * 40 * NS_PER_MS, "drain", rng.randrange(5), 0, 150 * NS_PER_MS, 0)
        for turn in range(75)
    ]
    return evolve(
        plan,
        faults=tuple(sorted([*plan.faults, *drains], key=lambda fault: fault.at)),
        groups=8,
        delay_max=rng.choice((20, 50, 100)) * NS_PER_MS,
    )


def named_and_lost(seed: int) -> Plan:
    """A seed names a list that begins at one member, which is cut off; it loses its record then.

    Two of five seeds do not hear two others, who know nothing of the list, and one that named it
    does not hear this seed. Members that are no seeds hear all, so one of them can take it back.
    """
    rng = random.Random(f"named and lost {seed}")
    calm = 14 * NS_PER_S
    named = 3 * NS_PER_S + rng.randrange(NS_PER_S)

    def later(least: int, most: int) -> int:
        return named + rng.randint(least, most) * NS_PER_MS

    apart = ((0, 3), (0, 4), (1, 3), (1, 4), (1, 2))
    cuts = [Fault(later(-300, -200), "half-cut", *pair, 12 * NS_PER_S, 3) for pair in apart]
    cuts += [Fault(later(-300, -200), "half-cut", 2, one, 1500 * NS_PER_MS, 3) for one in (3, 4)]
    first = [
        # After a change it does not matter of which version seeds are that are out of sight.
        Fault(1500 * NS_PER_MS, "reseed", 0, 5, NS_PER_S, 1),
        Fault(named, "reseed-apart", 0, 3, 0, 1),
        # What it hears of the names of others it notes, and cannot tell yet.
        Fault(later(20, 300), "stall-disk", 0, 0, 3 * NS_PER_S, 0),
        Fault(later(400, 700), "isolate", 0, 0, 9 * NS_PER_S, 3),
        Fault(later(800, 900), "lose-vote", 2, 0, 20 * NS_PER_MS, rng.choice((5, 7))),
    ]
    second = [
        Fault(later(at, at + 500), "reseed-apart", 2, 6, 0, 0) for at in range(2000, 7000, 500)
    ]
    sendings = [Sending(at, 0, 0) for at in range(NS_PER_S, calm, 500 * NS_PER_MS)]
    plan = small(seed, calm, [*cuts, *first, *second], sendings)
    return evolve(
        plan,
        members=8,
        seeds=6,
        kinds=("reseed-apart",),
        delay_max=rng.choice((1, 5)) * NS_PER_MS,
        disk_max=rng.choice((1, 20)) * NS_PER_MS,
        patience=60 * NS_PER_S,
    )
