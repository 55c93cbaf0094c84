"""Profiles whose faults come in rounds: what happens in one, and to which cluster."""

import random
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from mdserver.limits import NS_PER_S
from simulation.chaos.plan import LOSE_RESULTS, Plan
from simulation.plan import Fault

TOGETHER = ("kill-all", "stop-all")
"""All members end at once and start again in any order: where seeds write their logs down."""
ANOTHER_IDENTITY = ("another-identity-one", "another-identity-all")
"""One member, or all of them, started with a parameter of another identity, and set back."""
UPGRADE = "upgrade"
"""A member that runs the release before is stopped and started with this one."""
CHANGES = ("move", "leave", "kill")
"""A seed moves to another address; a member that is no seed leaves the lists and comes back."""
AHEAD = (1000,)
"""How far one publisher is ahead of its results: as far as it may."""
JOURNAL_AHEAD = (*AHEAD, 5000)
"""The same of two publishers: one is farther ahead than it may."""
SHUFFLE = "shuffle-packets"
"""A member's packets overtake each other, and some come twice."""
CLOCK_SET = "clock-set"
"""The wall clock of a member that runs is set, and is right again a round or two later."""
DISK_FULL = "disk-full"
"""A member's disk takes no byte more, for a while."""
POWER_CUT, POWER_CUT_ALL = "power-cut", "power-cut-all"
"""A member, or all of them, are killed, and their disks lose what was not synced."""
SLOW_CONSUMERS = "slow-consumers"
"""A member's clients read nothing, for so long that more waits for them than it keeps."""
CHANGE_SEEDS = "change-seeds"
"""A member becomes a seed by an operator's order, or a seed is one no more."""
CUT_OFF = "cut-off"
"""A seed is out of contact with all others until its clients have to be elsewhere."""


@frozen
class Profile:
    """Three seeds, and the faults of their rounds.

    `kinds` take turns, in any order if `shuffled`. A fault begins in the first `spread` of its
    round. `counting`: its draw counts rounds, so that each change comes before any comes again.
    """

    about: str
    kinds: tuple[str, ...]
    round_s: int
    members: int = 3
    subscribers: int = 3
    spread: float = 1.0
    lasting_s: float = 1.0
    shuffled: bool = False
    counting: bool = False
    plan: Mapping[str, Any] = field(factory=dict)  # fields of `Plan` with other values


PROFILES = {
    "journal": Profile(
        "all three end together",
        TOGETHER,
        round_s=4,
        shuffled=True,
        plan={"journal": True, "ahead": JOURNAL_AHEAD},
    ),
    "configuration": Profile(
        "they are started with a parameter of another identity, and it is set back",
        ANOTHER_IDENTITY,
        round_s=5,
        counting=True,
        plan={"journal": True, "ahead": AHEAD},
    ),
    "upgrade": Profile(
        "they begin with the release before, and one after the other is stopped and started with "
        "this one; one that is drawn is killed between two of these",
        ("kill", UPGRADE),
        round_s=6,
        spread=0.5,
        plan={"journal": True, "upgraded": True},
    ),
    "members": Profile(
        "without a journal, and with a fourth member: seeds move to other addresses, the fourth "
        "comes and goes, others are killed",
        CHANGES,
        round_s=4,
        members=4,
        subscribers=4,
        lasting_s=2.0,
    ),
    "seeds": Profile(
        "without a journal, and with five members: seeds become five and three again, by order, "
        "while members are killed and cut off, and publishers have to repeat",
        (
            CHANGE_SEEDS,
            "kill",
            CHANGE_SEEDS,
            "one-way",
            CHANGE_SEEDS,
            LOSE_RESULTS,
            CHANGE_SEEDS,
            "pause",
        ),
        round_s=4,
        members=5,
        subscribers=5,
        lasting_s=3.0,
    ),
    "standard": Profile(
        "ClusterDeliveryMode = Standard: members end, hang, and are cut off",
        ("kill", "cut-link", "pause", "drain", "partition"),
        round_s=5,
        lasting_s=3.0,
        plan={"standard": True},
    ),
    "cut-off": Profile(
        "one seed after the other loses contact with all others, for so long that its clients have "
        "to be told, and be served elsewhere",
        (CUT_OFF,),
        round_s=16,
        lasting_s=3.0,
    ),
    "tls": Profile(
        "all speak TLS: members end, are cut off, and links break",
        ("kill", "cut-clients", "one-way", "cut-link", "drain", "partition"),
        round_s=4,
        lasting_s=3.0,
        plan={"encrypted": True},
    ),
    "slow-consumers": Profile(
        "clients read nothing for seconds, and one member is killed now and then",
        (SLOW_CONSUMERS, SLOW_CONSUMERS, "kill"),
        round_s=8,
        plan={
            "narrow": True,
            "filling_bytes": 4000,
            "settings": (("BufferLimit.Send", "64 KB"),),
        },
    ),
    "packets": Profile(
        "packets overtake each other and come twice, members are killed and cut off meanwhile",
        (SHUFFLE, "kill", SHUFFLE, "one-way"),
        round_s=4,
        lasting_s=8.0,
    ),
    "clocks": Profile(
        "with a journal: wall clocks are set while members run, some of which are killed then",
        (CLOCK_SET, "kill", CLOCK_SET),
        round_s=4,
        lasting_s=6.0,
        plan={"journal": True},
    ),
    "disks": Profile(
        "with a journal on a disk of their own: it is full for a while, or loses power",
        (DISK_FULL, POWER_CUT_ALL, POWER_CUT),
        round_s=3,
        lasting_s=2.0,
        plan={"journal": True, "disks": True},
    ),
}


def make_rounds(name: str, seed: int, rounds: int) -> Plan:
    """Return the plan of a profile and a seed."""
    profile = PROFILES[name]
    rng = random.Random(f"{name} {seed}")
    first = rng.getrandbits(16) if profile.counting else 0
    kinds = [profile.kinds[number % len(profile.kinds)] for number in range(rounds)]
    if profile.shuffled:
        rng.shuffle(kinds)
    return Plan(
        seed=seed,
        seconds=rounds * profile.round_s,
        members=profile.members,
        seeds=3,
        publishers=3,
        subscribers=profile.subscribers,
        subjects=6,
        per_second=20.0,
        reckless=False,
        faults=tuple(
            Fault(
                at=int((number + rng.random() * profile.spread) * profile.round_s * NS_PER_S),
                kind=kind,
                first=rng.randrange(profile.members),
                second=0,
                lasting=int(rng.random() * profile.lasting_s * NS_PER_S),
                draw=first + number // len(profile.kinds)
                if profile.counting
                else rng.getrandbits(30),
            )
            for number, kind in enumerate(kinds)
        ),
        **profile.plan,
    )
