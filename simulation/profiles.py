"""Directed plans: faults in an order that brings one class of bugs to light.

The plans of `simulation.plan.make` draw everything at random; some bugs need a coincidence that
random faults make once in thousands of runs. Here the order is given and only the times are drawn.
"""

import random
from collections.abc import Callable, Iterator
from itertools import combinations

from attrs import evolve

from mdserver.cluster.placement import ranking
from mdserver.limits import NS_PER_MS, NS_PER_S, PEER_FORGOTTEN_S, PUBLISHER_NUMBERS_KEPT
from simulation import disk_profiles, seed_profiles
from simulation.plan import (
    CRASHES,
    FEW_NUMBERS,
    SPLITS,
    Fault,
    Plan,
    Sending,
    draw_faults,
    make,
    small,
)

DRAINED = 4 * NS_PER_S  # when the deaf leader is drained


def crowded(seed: int) -> Plan:
    """Few members, one group, dense publications, and faults that follow on each other closely.

    A partition of the coordinator is often ended by the crash of its successor: what the one had
    not replicated meets what the other had not spread.
    """
    rng = random.Random(f"directed {seed}")
    calm = 5 * NS_PER_S
    members = rng.choice((3, 3, 4, 5))
    return evolve(
        make(seed),
        members=members,
        groups=1,
        subjects=2,
        kinds=(*CRASHES, *SPLITS),
        careful=True,
        calm=calm,
        delay_max=rng.choice((1, 5, 30)) * NS_PER_MS,
        disk_max=rng.choice((1, 30)) * NS_PER_MS,
        patience=20 * NS_PER_S,
        publishers=2,
        cached=1000,
        log_kept=50,
        recorded=False,
        numbers_kept=PUBLISHER_NUMBERS_KEPT,
        habits=False,
        idle=0,
        faults=tuple(closely(rng, members, calm)),
        sendings=tuple(
            Sending(at, rng.randrange(2), rng.randrange(2))
            for at in range(NS_PER_S // 2, calm, rng.choice((4, 10, 30)) * NS_PER_MS)
        ),
    )


def hasty(seed: int) -> Plan:
    """Publishers that send far more numbers than are kept of them, to seeds that all die together.

    The seeds write their logs down, so that each begins with a tail that it takes back, or commits.
    """
    rng = random.Random(f"hasty {seed}")
    plan = crowded(seed)
    deaths = range(NS_PER_S, plan.calm, rng.choice((700, 1500)) * NS_PER_MS)
    lasting = rng.randint(1, 100) * NS_PER_MS
    return evolve(
        plan,
        recorded=True,
        patience=120 * NS_PER_S,
        numbers_kept=FEW_NUMBERS,
        faults=tuple(
            Fault(at, "crash", member, 0, lasting, rng.getrandbits(30))
            for at in deaths
            for member in range(plan.members)
        ),
        sendings=tuple(
            Sending(at, publisher, 0)
            for at in range(NS_PER_S // 2, plan.calm, 80 * NS_PER_MS)
            for publisher in [rng.randrange(2)] * rng.choice((1, 5, 20))
        ),
    )


def forgetful(seed: int) -> Plan:
    """Caches that keep few messages, and clients whose connections break again and again."""
    rng = random.Random(f"forgetful {seed}")
    plan = crowded(seed)
    cuts = (
        Fault(at, "client-cut", 0, 0, 0, rng.getrandbits(30))
        for at in range(NS_PER_S, plan.calm, 50 * NS_PER_MS)
    )
    faults = sorted([*plan.faults, *cuts], key=lambda fault: fault.at)
    return evolve(plan, cached=rng.choice((5, 20)), faults=tuple(faults))


def short_lived(seed: int) -> Plan:
    """Subjects that come, are forgotten, and come again, while coordinators die and clients leave.

    Everything is published in bursts, with more time between them than subjects are kept for.
    """
    rng = random.Random(f"short-lived {seed}")
    calm = 16 * NS_PER_S
    bursts = range(2 * NS_PER_S, calm, 4500 * NS_PER_MS)
    sendings = [
        Sending(burst + rng.randint(0, 900) * NS_PER_MS, rng.randrange(3), rng.randrange(4))
        for burst in bursts
        for _ in range(12)
    ]
    deaths = [
        Fault(burst + rng.randint(0, 4000) * NS_PER_MS, "crash-coordinator", 0, 0, NS_PER_S, 0)
        for burst in bursts
    ]
    cuts = [
        Fault(rng.randrange(calm), "client-cut", 0, 0, lasting * NS_PER_S, rng.getrandbits(30))
        for lasting in (0, 0, 0, 1, 3, 5, 5, 8)
        for _ in range(2)
    ]
    plan = small(seed, calm, [*deaths, *cuts], sendings)
    recorded = rng.random() < 0.5
    return evolve(plan, idle=NS_PER_S, subjects=4, subscribers=3, log_kept=4, recorded=recorded)


def first_messages(seed: int) -> Plan:
    """Subscribers lose their connections while subjects get their first messages, a few at once."""
    rng = random.Random(f"first messages {seed}")
    subjects = 12
    faults, sendings = [], []
    for subject in range(subjects):
        begins = 3 * NS_PER_S + subject * 400 * NS_PER_MS
        cut = begins - rng.randint(0, 100) * NS_PER_MS
        faults.append(Fault(cut, "client-cut", 0, 0, 0, 3 + rng.randrange(2)))
        sendings += [
            Sending(begins + rng.randint(0, 100) * NS_PER_MS, rng.randrange(3), subject)
            for _ in range(rng.choice((1, 3, 5)))
        ]
    plan = small(seed, 9 * NS_PER_S, faults, sendings)
    return evolve(plan, subjects=subjects, subscribers=2, groups=rng.choice((1, 4)))


def joining(seed: int) -> Plan:
    """A member that is no seed starts again and again, while every member coordinates groups.

    One of the others is slow, so its groups come long after those of the others.
    """
    rng = random.Random(f"joining {seed}")
    starts = range(3 * NS_PER_S, 9 * NS_PER_S, 1500 * NS_PER_MS)
    faults = [Fault(at, "crash", 3, 0, rng.randint(10, 300) * NS_PER_MS, 0) for at in starts]
    slow = [Fault(3 * NS_PER_S, "slow", rng.randrange(3), 0, 8 * NS_PER_S, rng.randint(5, 19))]
    sendings = [
        Sending(at, rng.randrange(3), rng.randrange(12))
        for at in range(2 * NS_PER_S, 10 * NS_PER_S, 20 * NS_PER_MS)
    ]
    plan = small(seed, 11 * NS_PER_S, [*faults, *slow], sendings)
    return evolve(plan, members=4, groups=8, subjects=12, delay_max=20 * NS_PER_MS)


def repeated(seed: int) -> Plan:
    """A publisher's connection breaks while its coordinator does not reach the other seeds.

    What it published last is repeated to a coordinator that has it and cannot commit it, and that
    soon has a successor which lacks it.
    """
    rng = random.Random(f"repeated {seed}")
    leader = first_leaders()[0]
    alone = 3 * NS_PER_S + rng.randint(0, 500) * NS_PER_MS
    broken = [
        Fault(alone + rng.randint(5, 300) * NS_PER_MS, "client-cut", 0, 0, 0, publisher)
        for publisher in range(3)
        for _ in range(2)
    ]
    faults = [Fault(alone, "isolate", leader, 0, rng.randint(900, 2500) * NS_PER_MS, 1), *broken]
    sendings = [
        Sending(at, rng.randrange(3), 0) for at in range(2 * NS_PER_S, 6 * NS_PER_S, 10 * NS_PER_MS)
    ]
    return small(seed, 8 * NS_PER_S, faults, sendings)


def closely(rng: random.Random, members: int, calm: int) -> Iterator[Fault]:
    """Partitions, each with a crash at about its end."""
    for fault in draw_faults(rng, (*CRASHES, *SPLITS), members, calm):
        if fault.kind not in {"isolate", "isolate-seeds"}:
            yield fault
            continue
        lasting = rng.randint(700, 1500) * NS_PER_MS
        yield evolve(fault, lasting=lasting)
        end = fault.at + lasting + rng.randint(-100, 100) * NS_PER_MS
        for kind in rng.sample(("crash-coordinator", "crash-at-step", "cut"), 2):
            yield evolve(
                fault,
                at=end,
                kind=kind,
                lasting=rng.randint(20, 400) * NS_PER_MS,
                draw=rng.getrandbits(30),
            )


def stale_tail(seed: int) -> Plan:
    """A long tail that is not committed meets a short log of a newer epoch that is.

    The coordinator loses the seeds while one publisher, which may be connected to it, publishes
    much: what came together during one round trip is in its log alone. Its successor commits a
    little and dies just before the first comes back, so the two that are left elect between their
    logs.
    """
    rng = random.Random(f"stale tail {seed}")
    alone = 2 * NS_PER_S + rng.randint(0, 500) * NS_PER_MS
    dead = alone + rng.randint(900, 1250) * NS_PER_MS
    back = dead + rng.randint(0, 150) * NS_PER_MS
    burst = [Sending(at, 0, 0) for at in range(alone - 100 * NS_PER_MS, alone, NS_PER_MS)]
    few = [Sending(alone + rng.randint(800, 900) * NS_PER_MS, publisher, 0) for publisher in (1, 2)]
    before = [Sending(at, rng.randrange(3), 0) for at in range(NS_PER_S, alone, 100 * NS_PER_MS)]
    faults = [
        Fault(alone, "isolate-seeds", 0, 0, back - alone, rng.getrandbits(30)),
        Fault(dead, "crash-coordinator", 0, 0, 4 * NS_PER_S, 0),
    ]
    plan = small(seed, 8 * NS_PER_S, faults, [*before, *burst, *few])
    return evolve(plan, delay_max=20 * NS_PER_MS)


def lagging_peer(seed: int) -> Plan:
    """A seed restarts where it meets only one that lacks what the two others committed.

    The coordinator reaches one seed, then none; that seed restarts meanwhile.
    """
    rng = random.Random(f"lagging peer {seed}")
    leader, lagging, restarted = first_leaders()
    deaf = 3 * NS_PER_S + rng.randint(0, 1000) * NS_PER_MS
    alone = deaf + rng.randint(100, 500) * NS_PER_MS
    restart = alone + rng.randint(-20, 20) * NS_PER_MS
    back = alone + rng.randint(1000, 3000) * NS_PER_MS
    faults = [
        Fault(deaf, "one-way", leader, lagging, back - deaf, 1),
        Fault(alone, "isolate", leader, 0, back - alone, 0),
        Fault(restart, "crash", restarted, 0, rng.randint(5, 60) * NS_PER_MS, 0),
    ]
    sendings = [
        Sending(at, rng.randrange(3), 0) for at in range(2 * NS_PER_S, 7 * NS_PER_S, 10 * NS_PER_MS)
    ]
    return small(seed, 8 * NS_PER_S, faults, sendings)


def half_cut(seed: int) -> Plan:
    """One or two links between members carry one way only, or nothing, until the end.

    Meanwhile every client is to be served: whatever is published has its result, and whatever was
    acknowledged comes to every subscriber, at most 5 s later.
    """
    rng = random.Random(f"half-cut {seed}")
    members = rng.choice((3, 3, 4, 5))
    calm = 20 * NS_PER_S
    pairs = list(combinations(range(members), 2))
    faults = []
    for one, other in rng.sample(pairs, rng.choice((1, 2))):
        first, second = rng.sample((one, other), 2)
        at = rng.randint(4000, 7000) * NS_PER_MS
        faults.append(Fault(at, "half-cut", first, second, calm, rng.getrandbits(30)))
    subjects = 6
    sendings = [
        Sending(at, rng.randrange(3), rng.randrange(subjects))
        for at in range(3 * NS_PER_S, calm, 60 * NS_PER_MS)
    ]
    return evolve(
        small(seed, calm, faults, sendings),
        members=members,
        groups=rng.choice((1, 4, 40)),
        subscribers=3,
        subjects=subjects,
        delay_max=rng.choice((1, 5, 20)) * NS_PER_MS,
        bound=5 * NS_PER_S,
    )


def disturbed_start(seed: int) -> Plan:
    """Links break while more groups than fit one message are started; then members restart."""
    rng = random.Random(f"disturbed start {seed}")
    broken = sorted(rng.randrange(200, 1500) * NS_PER_MS for _ in range(12))
    faults = [Fault(at, "cut", 0, rng.choice((1, 2)), 0, 0) for at in broken]
    for turn, member in enumerate(rng.sample(range(3), 3)):
        at = (3 + 2 * turn) * NS_PER_S + rng.randrange(500) * NS_PER_MS
        faults.append(Fault(at, "crash", member, 0, 300 * NS_PER_MS, 0))
    subjects = 30
    sendings = [
        Sending(at, rng.randrange(3), rng.randrange(subjects))
        for at in range(2 * NS_PER_S, 10 * NS_PER_S, 20 * NS_PER_MS)
    ]
    plan = small(seed, 12 * NS_PER_S, faults, sendings)
    return evolve(plan, groups=40, subjects=subjects, delay_max=50 * NS_PER_MS)


def elastic(seed: int) -> Plan:
    """Members that are no seeds come and go unlisted, lists change, and machines are replaced.

    Three seeds and two others, so that two members know of each other by hearsay alone. One of them
    stays away for longer than members that no list names are remembered.
    """
    rng = random.Random(f"elastic {seed}")
    calm = (PEER_FORGOTTEN_S + 20) * NS_PER_S
    members = 5
    long = (PEER_FORGOTTEN_S + rng.randint(2, 8)) * NS_PER_S
    faults = [Fault(4 * NS_PER_S, "crash", rng.choice((3, 4)), 0, long, 0)]
    for at in range(3 * NS_PER_S, calm - 5 * NS_PER_S, 3 * NS_PER_S):
        kind = rng.choice(("relist", "relist", "move", "crash", "cut", "client-cut"))
        first = rng.randrange(3 if kind == "move" else members)
        lasting = rng.randint(50, 2000) * NS_PER_MS
        draw = rng.getrandbits(30)
        faults.append(Fault(at, kind, first, rng.randrange(members), lasting, draw))
    sendings = [
        Sending(at, rng.randrange(3), rng.randrange(4))
        for at in range(2 * NS_PER_S, calm, 400 * NS_PER_MS)
    ]
    plan = small(seed, calm, faults, sendings)
    return evolve(
        plan, members=members, seeds=3, elastic=True, subjects=4, groups=rng.choice((1, 4))
    )


def habits(seed: int) -> Plan:
    """Clients that do more than publish and subscribe for good take part in a drawn plan."""
    return evolve(make(seed), habits=True)


def wavering(seed: int) -> Plan:
    """Clients hold, pause or leave and come back while messages are on a long way to them."""
    sendings = [
        Sending(at, number % 2, number % 2)
        for number, at in enumerate(range(NS_PER_S, 5 * NS_PER_S, 4 * NS_PER_MS))
    ]
    plan = small(seed, 5 * NS_PER_S, [], sendings)
    return evolve(
        plan,
        habits=True,
        subjects=2,
        publishers=2,
        delay_min=20 * NS_PER_MS,
        delay_max=100 * NS_PER_MS,
    )


def upgrade(seed: int, versions: tuple[str, str] = ("before", "this")) -> Plan:
    """Members of a version are upgraded to the next one and back, amid faults of all kinds.

    All begin with the older version. Most are upgraded once, in any order and some of them at the
    start already, and some go back, for good or not.
    """
    made = make(seed)
    made = evolve(made, members=max(3, made.members))
    rng = random.Random(f"upgrade {seed}")
    changes = []
    for member in range(made.members):
        at = rng.choice((0, rng.randrange(made.calm)))
        for kind in ("upgrade", "downgrade", "upgrade")[: rng.choice((0, 1, 1, 1, 2, 3))]:
            lasting = rng.randint(5, 500) * NS_PER_MS
            changes.append(Fault(at, kind, member, 0, lasting, rng.getrandbits(30)))
            at += rng.randrange(1, made.calm // 2)
    faults = [*made.faults, *(one for one in changes if one.at < made.calm)]
    return evolve(
        made,
        kinds=(*made.kinds, "upgrade", "downgrade"),
        versions=versions,
        # The release before knows nothing of forgotten subjects, and is refused once there are any.
        idle=0 if "before" in versions else made.idle,
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
    )


def upgrade_to_the_next(seed: int) -> Plan:
    """Members of this version are upgraded to one that says more, and back."""
    return upgrade(seed, ("this", "next"))


def standard(seed: int) -> Plan:
    """Members of `ClusterDeliveryMode = Standard` end, hang and are cut off, and clients move.

    So both sides of a cut serve, and publishers go from one of them to the other and back.
    """
    rng = random.Random(f"standard {seed}")
    members = rng.choice((2, 3, 3, 4))
    calm = 15 * NS_PER_S
    kinds = ("crash", "crash-coordinator", "pause", "isolate", "half-cut", "cut", "drain")
    faults = [
        evolve(fault, lasting=rng.randint(500, 3000) * NS_PER_MS)
        for fault in draw_faults(rng, kinds, members, calm)
        if fault.at > 3 * NS_PER_S
    ]
    cuts = [
        Fault(at, "client-cut", 0, 0, 0, rng.getrandbits(30))
        for at in range(3 * NS_PER_S, calm, rng.choice((100, 300)) * NS_PER_MS)
    ]
    sendings = [
        Sending(at, rng.randrange(3), rng.randrange(3))
        for at in range(3 * NS_PER_S, calm, rng.choice((20, 50)) * NS_PER_MS)
    ]
    return evolve(
        small(seed, calm, [*faults, *cuts], sendings),
        members=members,
        subjects=3,
        subscribers=2,
        groups=rng.choice((1, 4)),
        delay_max=rng.choice((1, 5, 20)) * NS_PER_MS,
        standard=True,
    )


def standard_apart(seed: int) -> Plan:
    """Two members of Standard mode lose sight of each other, and soon a coordinator ends.

    Others see both, so one of the two is to succeed it and the other one to leave it to that.
    """
    rng = random.Random(f"standard apart {seed}")
    members = rng.choice((3, 4, 4, 5))
    calm = 20 * NS_PER_S
    first, second, *others = rng.sample(range(members), members)
    apart = 10 * NS_PER_S + rng.randrange(NS_PER_S)
    faults = [Fault(apart, "half-cut", first, second, rng.randint(2, 8) * NS_PER_S, 3)]
    for member in others[: rng.choice((1, 1, 2))]:
        # Ended for longer than members wait for it, or back before they miss it.
        lasting = rng.choice((10, 50, 150, 250, 2000, 5000)) * NS_PER_MS
        at = apart + rng.randint(0, 2500) * NS_PER_MS
        faults.append(Fault(at, "crash", member, 0, lasting, rng.getrandbits(30)))
    sendings = [
        Sending(at, rng.randrange(3), rng.randrange(3))
        for at in range(3 * NS_PER_S, calm, rng.choice((20, 50)) * NS_PER_MS)
    ]
    return evolve(
        small(seed, calm, sorted(faults, key=lambda fault: fault.at), sendings),
        members=members,
        subjects=3,
        subscribers=2,
        groups=rng.choice((4, 12)),
        delay_max=rng.choice((1, 5, 20)) * NS_PER_MS,
        standard=True,
    )


def first_leaders() -> tuple[int, int, int]:
    """The members of a small plan in the order in which they should coordinate its group."""
    first, second, third = ranking(0, {f"m{member}": 1 for member in range(3)})
    return int(first[1:]), int(second[1:]), int(third[1:])


def deaf_leader(name: str, seed: int) -> tuple[random.Random, Plan]:
    """A coordinator gives its group away and does not hear its successor, who stands for it.

    Returns the plan, to which the caller adds what happens to the third seed or the successor, and
    what to draw that with.
    """
    rng = random.Random(f"{name} {seed}")
    leader, successor, _ = first_leaders()
    deaf = DRAINED + rng.randint(0, 1000) * NS_PER_MS
    faults = [
        Fault(DRAINED, "drain", leader, 0, 3 * NS_PER_S, 0),
        Fault(deaf, "one-way", successor, leader, rng.randint(800, 1400) * NS_PER_MS, 1),
    ]
    sendings = [
        Sending(at, rng.randrange(3), 0) for at in range(2 * NS_PER_S, 7 * NS_PER_S, 10 * NS_PER_MS)
    ]
    return rng, small(seed, 8 * NS_PER_S, faults, sendings)


def forgetful_voter(seed: int) -> Plan:
    """A voter dies right after its promise left, and meets the coordinator that it deposed.

    That one takes the voter back and goes on with it, unless the vote file says otherwise.
    """
    rng, plan = deaf_leader("forgetful voter", seed)
    lasting = rng.randint(5, 60) * NS_PER_MS
    death = Fault(DRAINED, "crash-once-promised", first_leaders()[2], 0, lasting, 0)
    plan = plan.with_parts([*plan.faults, death], list(plan.sendings))
    return evolve(plan, disk_max=6 * NS_PER_MS // 10)


def slow_successor(seed: int) -> Plan:
    """Between a voter's promise and the new log, the coordinator that was deposed goes on."""
    rng, plan = deaf_leader("slow successor", seed)
    slow = Fault(DRAINED, "slow", first_leaders()[1], 0, 3 * NS_PER_S, rng.randint(9, 19))
    return plan.with_parts([*plan.faults, slow], list(plan.sendings))


PROFILES: dict[str, Callable[[int], Plan]] = {
    "crowded": crowded,
    "half-cut": half_cut,
    "disturbed-start": disturbed_start,
    "put-back": disk_profiles.put_back,
    "lost-records": disk_profiles.lost_records,
    "slow-disks": disk_profiles.slow_disks,
    "habits": habits,
    "wavering": wavering,
    "upgrade": upgrade,
    "upgrade-to-the-next": upgrade_to_the_next,
    "elastic": elastic,
    "reseeded": seed_profiles.reseeded,
    "strays": seed_profiles.strays,
    "reseeded-at-once": seed_profiles.reseeded_at_once,
    "reseeded-amid-hand-overs": seed_profiles.reseeded_amid_hand_overs,
    "named-apart": seed_profiles.named_apart,
    "named-and-lost": seed_profiles.named_and_lost,
    "standard": standard,
    "standard-apart": standard_apart,
}
"""Those that a run can be asked for by name."""
