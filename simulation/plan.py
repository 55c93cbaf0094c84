"""What a run will be: derived from its seed alone, and printed in full.

A plan names every fault and every publication with its time, so that a failing run can be made
smaller by leaving some of them out (simulation/minimise.py). Each run draws its own subset of
fault kinds (Groce et al., "Swarm testing", 2012): a run with every kind at once seldom gets
anywhere.
"""

import random
from collections.abc import Iterable, Iterator

from attrs import evolve, frozen

from mdserver.limits import (
    JOURNAL_HOLD_BYTES,
    NS_PER_MS,
    NS_PER_S,
    PEER_SUSPECT_MS,
    PUBLISHER_NUMBERS_KEPT,
)
from simulation.led import LedStep

KINDS = (
    "crash",
    "crash-coordinator",
    "crash-at-step",
    "restart-storm",
    "cut",
    "one-way",
    "isolate",
    "isolate-seeds",
    "slow",
    "clock-jump",
    "clock-rate",
    "client-cut",
    "lose-vote",
)

FEW_NUMBERS = 4  # as many numbers of a publisher are kept in some runs
CRASHES = ("crash", "crash-coordinator", "crash-at-step")
SPLITS = ("cut", "one-way", "isolate", "isolate-seeds", "slow", "client-cut")
BURST = 60  # publications at once of a publisher that takes no notice of that


@frozen
class Fault:
    """One fault. `first` and `second` number members; `lasting` is in ns, 0 for a moment."""

    at: int
    kind: str
    first: int
    second: int
    lasting: int
    draw: int  # for whatever else the fault has to choose


@frozen
class Sending:
    """One publication of a publisher to a subject."""

    at: int
    publisher: int
    subject: int


@frozen
class Plan:
    """A run. Durations in nanoseconds; faults and publications end before `calm`."""

    seed: int
    members: int
    groups: int
    publishers: int
    subscribers: int
    subjects: int
    delay_min: int
    delay_max: int
    disk_min: int
    disk_max: int
    encoding: str
    kinds: tuple[str, ...]
    careful: bool  # no fault may take the majority of normal seeds away
    calm: int
    patience: int  # after `calm`, until everything must have come to rest (`resting_by`)
    cached: int  # messages kept a subject
    log_kept: int  # committed entries kept a group, for members that were away
    faults: tuple[Fault, ...]
    sendings: tuple[Sending, ...]
    recorded: bool = False  # seeds write their logs down, so any number of them may crash
    bound: int = 0  # from the last fault on, how late anything may be while it lasts; 0: any time
    numbers_kept: int = PUBLISHER_NUMBERS_KEPT  # where it is small, bursts go beyond it
    portion: int = 0  # records that one write takes to the disk; 0: all that came at once
    habits: bool = (
        False  # clients that hold, leave, conflate, or do not number (simulation/habits.py)
    )
    idle: int = 0  # after which messages, snapshots and then subjects are forgotten; 0: never
    hold_bytes: int = JOURNAL_HOLD_BYTES  # on their way to a disk; a seed takes ten times as many
    seeds: int = 0  # 0: as many as a server of so many members has
    suspect: int = PEER_SUSPECT_MS * NS_PER_MS
    led: tuple[LedStep, ...] = ()
    versions: tuple[str, str] = ("this", "this")  # the one members begin with, and the newer one
    elastic: bool = False  # members that are no seeds are in no list but their own
    standard: bool = False  # ClusterDeliveryMode = Standard: nobody votes, and there are no seeds

    @property
    def resting_by(self) -> int:
        """The time at which everything must have come to rest (ns).

        A publisher has so many numbers without a result, and a round of them takes up to a second.
        """
        rounds = len(self.sendings) // self.numbers_kept
        return self.calm + self.patience + rounds * NS_PER_S

    def describe(self) -> str:
        """Every derived option, in one line each."""
        care = "careful" if self.careful else "reckless"
        if self.standard:
            care = "Standard mode"
        if self.recorded:
            care += ", recorded"
        if self.numbers_kept != PUBLISHER_NUMBERS_KEPT:
            care += f", {self.numbers_kept} numbers kept"
        if self.idle:
            care += f", subjects forgotten after {self.idle / 1e9:g} s"
        if self.habits:
            care += ", clients with habits"
        if len(set(self.versions)) > 1:
            care += f", versions {' and '.join(self.versions)}"
        if self.elastic:
            care += f", {self.seeds} seeds, others in no list"
        if self.portion:
            care += f", {self.portion} records a write, held at {self.hold_bytes} bytes"
        size = (
            f"{self.members} members, {self.groups} groups, {self.publishers} publishers, "
            f"{self.subscribers} subscribers, {self.subjects} subjects, {self.encoding}"
        )
        times = (
            f"delay {self.delay_min / 1e6:g}-{self.delay_max / 1e6:g} ms, "
            f"disk {self.disk_min / 1e6:g}-{self.disk_max / 1e6:g} ms"
        )
        lines = [
            f"seed {self.seed}: {size}",
            f"{times}, {care}, cache {self.cached}, kinds: {', '.join(self.kinds) or 'none'}",
            f"{len(self.sendings)} publications, {len(self.faults)} faults:",
        ]
        lines += [
            f"  {one.action} in epoch {one.epoch} of seed {one.seed}, counting {one.counted}"
            for one in self.led
        ]
        lines += [
            f"  {f.at / 1e9:8.3f} s {f.kind} {f.first} {f.second} for {f.lasting / 1e9:.3f} s"
            for f in self.faults
        ]
        return "\n".join(lines)

    def with_parts(self, faults: list[Fault], sendings: list[Sending]) -> "Plan":
        """The same run with fewer faults and publications."""
        return evolve(self, faults=tuple(faults), sendings=tuple(sendings))


def make(seed: int) -> Plan:
    """The plan of a seed."""
    rng = random.Random(seed)
    members = rng.choice((1, 3, 3, 3, 3, 4, 5, 5, 7))
    calm = rng.choice((5, 10, 20)) * NS_PER_S
    delay_max = rng.choice((1, 5, 5, 20, 100)) * NS_PER_MS
    kinds = tuple(kind for kind in KINDS if rng.random() < 0.3)
    publishers, subjects = rng.randint(1, 3), rng.randint(1, 4)
    numbers = random.Random(f"numbers {seed}")
    numbers_kept = numbers.choice((PUBLISHER_NUMBERS_KEPT, PUBLISHER_NUMBERS_KEPT, FEW_NUMBERS))
    hostile = draw_bursts(numbers, publishers, calm) if numbers_kept == FEW_NUMBERS else ()
    return Plan(
        seed=seed,
        members=members,
        groups=draw_groups(seed, rng.choice((1, 2, 4))),
        publishers=publishers,
        subscribers=rng.randint(1, 3),
        subjects=subjects,
        delay_min=NS_PER_MS // 5,
        delay_max=delay_max,
        disk_min=NS_PER_MS // 2,
        disk_max=rng.choice((1, 10, 50)) * NS_PER_MS,
        encoding=rng.choice(("json", "binary")),
        kinds=kinds,
        careful=rng.random() < 0.85,
        calm=calm,
        patience=120 * NS_PER_S,
        cached=random.Random(f"cache {seed}").choice((1000, 1000, 20, 2)),
        log_kept=rng.choice((4, 50, 1000)),
        recorded=random.Random(f"{seed} journal").random() < 0.2,
        faults=tuple(
            sorted(
                [
                    *draw_faults(rng, kinds, members, calm),
                    *draw_some(random.Random(f"{seed} hand-overs"), "drain", members, calm),
                    *draw_some(random.Random(f"stops {seed}"), "pause", members, calm),
                ],
                key=lambda fault: fault.at,
            )
        ),
        sendings=tuple(
            sorted(
                [*draw_sendings(rng, publishers, subjects, calm), *hostile],
                key=lambda sending: sending.at,
            )
        ),
        numbers_kept=numbers_kept,
        idle=random.Random(f"idle {seed}").choice((0, 0, 1, 2)) * NS_PER_S,
    )


def small(seed: int, calm: int, faults: Iterable[Fault], sendings: Iterable[Sending]) -> Plan:
    """A quick network of three members, one group and as many publishers, and these faults."""
    return evolve(
        make(seed),
        members=3,
        groups=1,
        publishers=3,
        subjects=1,
        kinds=(),
        careful=True,
        calm=calm,
        delay_max=NS_PER_MS,
        disk_max=NS_PER_MS,
        patience=30 * NS_PER_S,
        cached=1000,
        log_kept=50,
        recorded=False,
        numbers_kept=PUBLISHER_NUMBERS_KEPT,
        habits=False,
        idle=0,
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        sendings=tuple(sorted(sendings, key=lambda sending: sending.at)),
    )


def draw_groups(seed: int, few: int) -> int:
    """How many groups: in some runs more than fit one message."""
    return 40 if random.Random(f"groups {seed}").random() < 0.1 else few


def draw_some(rng: random.Random, kind: str, members: int, calm: int) -> Iterator[Fault]:
    """In some runs a few faults of a kind: a member drained by an operator, or stopped a while."""
    for _ in range(rng.choice((0, 0, 0, 1, 3))):
        lasting = rng.randint(100, 5000) * NS_PER_MS
        yield Fault(rng.randrange(calm), kind, rng.randrange(members), 0, lasting, 0)


def draw_faults(
    rng: random.Random, kinds: tuple[str, ...], members: int, calm: int
) -> Iterator[Fault]:
    """Faults at random times, more of them in some runs than in others."""
    if not kinds:
        return
    mean = calm / rng.choice((2, 5, 10, 20))
    at = int(rng.expovariate(1 / mean))
    while at < calm:
        yield Fault(
            at=at,
            kind=rng.choice(kinds),
            first=rng.randrange(members),
            second=rng.randrange(members),
            lasting=int(rng.expovariate(1 / rng.choice((0.2, 1.0, 4.0))) * NS_PER_S),
            draw=rng.getrandbits(30),
        )
        at += int(rng.expovariate(1 / mean)) + 1


def draw_bursts(rng: random.Random, publishers: int, calm: int) -> Iterator[Sending]:
    """Far more publications to one subject than may be without a result, a few times."""
    for _ in range(rng.choice((0, 1, 3))):
        at, publisher = rng.randrange(calm), rng.randrange(publishers)
        yield from [Sending(at, publisher, 0)] * BURST


def draw_sendings(
    rng: random.Random, publishers: int, subjects: int, calm: int
) -> Iterator[Sending]:
    """Publications one by one and in bursts."""
    mean = calm / rng.choice((5, 30, 100))
    at = int(rng.expovariate(1 / mean))
    while at < calm:
        for _ in range(rng.choice((1, 1, 1, 5, 20))):
            yield Sending(at, rng.randrange(publishers), rng.randrange(subjects))
        at += int(rng.expovariate(1 / mean)) + 1
