"""Directed plans of what happens to disks: put back, lost in part, or slow."""

import random

from attrs import evolve

from mdserver.limits import NS_PER_MS, NS_PER_S
from simulation.plan import CRASHES, Fault, Plan, Sending, draw_faults, make, small


def put_back(seed: int, *, majority: bool = True) -> Plan:
    """Disks of seeds are put back to an earlier state, those of a majority at once or one by one.

    Whoever was spared is whole and in contact then; an operator gives the orders that seeds wait
    for. With disks of a majority members crash and stop, too.
    """
    made = make(seed)
    if majority:
        made = evolve(made, members=max(3, made.members))
    rng = random.Random(f"{seed} put back")
    kinds: tuple[str, ...] = ("put-back", "client-cut")
    if majority:
        kinds = ("put-back-majority", "client-cut", "cut", *rng.choice(((), (*CRASHES, "pause"))))
    faults = [
        evolve(fault, lasting=min(fault.lasting, 2 * NS_PER_S))
        for _ in range(3 if majority else 2)
        for fault in draw_faults(rng, kinds, made.members, made.calm)
    ]
    return evolve(
        # A publisher far beyond the numbers that are kept comes to rest by slow retries.
        made,
        kinds=kinds,
        recorded=True,
        habits=False,
        idle=0,
        patience=4 * made.patience,
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
    )


def lost_records(seed: int) -> Plan:
    """One seed loses its vote record again and again, while others stop, are cut, or lose theirs.

    An operator has it taken back as soon as somebody can: often before all have noted the loss.
    """
    rng = random.Random(f"lost records {seed}")
    calm = rng.choice((8, 16)) * NS_PER_S
    members = rng.choice((3, 3, 3, 5))
    unlucky = rng.randrange(members)
    kinds = ("crash", "lose-vote", "lose-vote", "lose-vote", "pause", "pause", "cut", "isolate")
    at = NS_PER_S
    faults = []
    while at < calm:
        lasting = int(rng.expovariate(1 / rng.choice((0.05, 0.5, 3.0))) * NS_PER_S)
        kind, second = rng.choice(kinds), rng.randrange(members)
        first = rng.choice((unlucky, unlucky, rng.randrange(members)))
        if kind == "pause":
            first = (unlucky + rng.randrange(1, members)) % members
        faults.append(Fault(at, kind, first, second, lasting, rng.getrandbits(30)))
        at += 1 + int(rng.expovariate(1 / rng.choice((0.1, 0.5, 1.5))) * NS_PER_S)
    every = range(NS_PER_S // 2, calm, 150 * NS_PER_MS)
    sendings = [Sending(at, rng.randrange(3), 0) for at in every]
    return evolve(
        small(seed, calm, faults, sendings),
        members=members,
        groups=rng.choice((1, 1, 4)),
        delay_max=rng.choice((5, 100)) * NS_PER_MS,
        disk_max=rng.choice((1, 50)) * NS_PER_MS,
        patience=120 * NS_PER_S,
        recorded=rng.random() < 0.3,
    )


def slow_disks(seed: int) -> Plan:
    """Disks stop for seconds, one at a time or overlapping, and take a few records a write.

    Little may be on its way to them: coordinators hold publications back, and seeds take none.
    """
    made = make(seed)
    made = evolve(made, members=max(3, made.members))
    rng = random.Random(f"slow disks {seed}")
    some = ("crash", "crash-coordinator", "crash-at-step", "pause", "cut", "client-cut", "drain")
    kinds = ("stall-disk", *rng.choice(((), rng.sample(some, 3))))
    stalls = [
        Fault(at, "stall-disk", rng.randrange(made.members), 0, rng.randint(1, 5) * NS_PER_S, 0)
        for at in sorted(rng.randrange(made.calm) for _ in range(rng.randint(1, 6)))
    ]
    others = draw_faults(rng, kinds[1:], made.members, made.calm)
    faults = [
        *stalls,
        *(evolve(fault, lasting=min(fault.lasting, 2 * NS_PER_S)) for fault in others),
    ]
    return evolve(
        # A publisher far beyond the numbers that are kept comes to rest by slow retries.
        made,
        kinds=kinds,
        recorded=True,
        patience=4 * made.patience,
        portion=rng.choice((1, 1, 3, 10)),
        hold_bytes=rng.choice((4, 30, 300)),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
    )
