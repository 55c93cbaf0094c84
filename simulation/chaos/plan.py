"""What a chaos run will be, derived from its seed; its real processes then take their own time."""

import random
from collections.abc import Iterator, Sequence

from attrs import frozen

from mdserver.limits import NS_PER_S
from simulation.plan import Fault

PROCESS_KINDS = ("kill", "kill-coordinator", "restart-storm", "drain")
"""A process ends, and with it what it had in memory."""
LOSE_RESULTS = "lose-results"
"""A publisher's connection breaks after a time in which no result came to it: it has to repeat."""
OTHER_KINDS = (
    "partition",
    "one-way",
    "isolate-coordinator",
    "pause",
    "slow-link",
    "cut-link",
    "stall-clients",
    "delay-clients",
    "cut-clients",
    LOSE_RESULTS,
)
CLOCK = "clock-jump"
BLACKOUT = "blackout"
"""All members are killed at once: memory is lost, and clients have to be told so."""
HALF_CUT = "half-cut"
"""One or two links between members are cut, one way or both, and clients are served meanwhile.

It is only drawn where it is asked for, and then alone: with other faults clients may wait longer.
"""
SERVED_WITHIN_S = 5
HALF_CUT_S = 60
HALF_CUT_REST_S = 10.0  # until everything is back where it belongs
SPACING_MIN_S, SPACING_MAX_S = 2.0, 4.0
LASTING_S = (0.5, 1.5, 4.0)  # means
LASTING_MAX_S = 8.0
RECKLESS = 0.1
PAUSE_MIN_S = 1.0  # longer than the time after which a silent member is suspected


@frozen
class Plan:
    """A run. `faults` begin before `seconds`; each draws its victims when its time comes."""

    seed: int
    seconds: int
    members: int
    seeds: int
    publishers: int
    subscribers: int
    subjects: int
    per_second: float  # publications of one publisher
    reckless: bool
    faults: tuple[Fault, ...]
    journal: bool = False  # seeds ack what is on their disks: all of them may end at once
    ahead: tuple[int, ...] = ()  # of publishers: how far they are ahead of their results
    upgraded: bool = False  # members begin with the release before
    encrypted: bool = False  # clients and members speak TLS
    standard: bool = False  # ClusterDeliveryMode = Standard: members that end take messages along
    disks: bool = False  # each member's files are on a disk of its own
    settings: tuple[tuple[str, str], ...] = ()  # further parameters of members
    filling_bytes: int = 0  # of each publication, beside its name
    narrow: bool = False  # clients that read nothing are noticed soon

    @property
    def kinds(self) -> tuple[str, ...]:
        """What has to happen at least once."""
        return tuple(dict.fromkeys(fault.kind for fault in self.faults))

    def describe(self) -> str:
        """Every derived option."""
        care = "reckless" if self.reckless else "careful"
        size = (
            f"{self.members} members, {self.seeds} of them seeds, {self.publishers} publishers, "
            f"{self.subscribers} subscribers, {self.subjects} subjects"
        )
        care += ", with a journal" if self.journal else ""
        care += ", Standard" if self.standard else ""
        care += ", TLS" if self.encrypted else ""
        lines = [f"seed {self.seed}: {size}, {self.seconds} s, {care}"]
        lines += [
            f"  {f.at / NS_PER_S:7.2f} s {f.kind} {f.first}, {f.lasting / NS_PER_S:.2f} s"
            for f in self.faults
        ]
        return "\n".join(lines)


def make(seed: int, seconds: int, members: int, *, clocks: bool, only: Sequence[str] = ()) -> Plan:
    """The plan of a seed; `clocks`: wall clocks can be set; `only`: nothing but these kinds."""
    if HALF_CUT in only and len(only) > 1:
        raise ValueError(f"{HALF_CUT} is a fault of its own: no other kind goes with it")
    rng = random.Random(f"chaos {seed}")
    seeds = rng.choice((3, 5)) if members >= 5 else 3
    reckless = rng.random() < RECKLESS and not only
    kinds = [*PROCESS_KINDS, *OTHER_KINDS, *([CLOCK] if clocks else [])]
    return Plan(
        seed=seed,
        seconds=seconds,
        members=members,
        seeds=seeds,
        publishers=3,
        subscribers=5,
        subjects=rng.randint(3, 12),
        per_second=rng.choice((5.0, 20.0, 40.0)),
        reckless=reckless,
        faults=tuple(
            half_cuts(rng, seconds)
            if HALF_CUT in only
            else draw(rng, seconds, members, only or kinds, reckless)
        ),
    )


def half_cuts(rng: random.Random, seconds: int) -> Iterator[Fault]:
    """One after the other, for a minute each; for a third of a shorter run."""
    lasting = max(2.0 * SERVED_WITHIN_S, min(HALF_CUT_S, seconds / 3))
    at = 1.0
    while at < 2.0 or at + lasting <= seconds:
        draw = rng.getrandbits(30)
        yield Fault(int(at * NS_PER_S), HALF_CUT, 0, 0, int(lasting * NS_PER_S), draw)
        at += lasting + HALF_CUT_REST_S


def draw(
    rng: random.Random, seconds: int, members: int, kinds: Sequence[str], reckless: bool
) -> Iterator[Fault]:
    """Every kind before any comes again: a short run has a random subset of them."""
    mean = max(SPACING_MIN_S, min(SPACING_MAX_S, seconds / (1.5 * len(kinds))))
    deck: list[str] = []
    at = rng.uniform(0.5, mean)
    while at < seconds - 1:
        if not deck:
            deck = rng.sample(kinds, len(kinds))
            if reckless:
                deck[rng.randrange(len(deck))] = BLACKOUT
                reckless = False
        lasting = PAUSE_MIN_S + rng.expovariate(1 / rng.choice(LASTING_S))
        yield Fault(
            at=int(at * NS_PER_S),
            kind=deck.pop(),
            first=rng.randrange(members),
            second=0,
            lasting=int(min(lasting, LASTING_MAX_S) * NS_PER_S),
            draw=rng.getrandbits(30),
        )
        at += rng.uniform(0.5, 1.5) * mean
