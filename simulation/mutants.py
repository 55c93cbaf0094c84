"""Deliberate bugs of the cluster, switched on in tests only: each must be found by a run.

A mutant replaces one function for as long as it is switched on, and names the faults that bring it
to light: a bug of recovery does not show where nothing crashes.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from attrs import evolve, frozen

from mdserver.cluster.coordinator import Coordinator, Phase
from mdserver.cluster.dedupe import FORGOTTEN, Publishers, Verdict
from mdserver.cluster.ground import Ground
from mdserver.cluster.learner import Learner
from mdserver.cluster.messages import Accept, Appended, Promised
from mdserver.cluster.seed import Seed, Standing, Step
from mdserver.cluster.votes import Vote, VoteRecord
from mdserver.core.message import Position
from mdserver.limits import NS_PER_MS, NS_PER_S
from simulation.plan import Fault, Plan, Sending, draw_faults, make
from simulation.run import Result, run

CRASHES = ("crash", "crash-coordinator", "crash-at-step")
SPLITS = ("cut", "one-way", "isolate", "isolate-seeds", "slow", "client-cut")


@frozen
class Mutant:
    """`owner.name` is replaced by `make(original)`."""

    title: str
    owner: type
    name: str
    make: Callable[[Any], Any]
    kinds: tuple[str, ...] = (*CRASHES, *SPLITS)


@contextmanager
def switched_on(mutant: Mutant) -> Iterator[None]:
    """The bug is there inside of this."""
    original = mutant.owner.__dict__[mutant.name]
    setattr(mutant.owner, mutant.name, mutant.make(original))
    try:
        yield
    finally:
        setattr(mutant.owner, mutant.name, original)


def plan(seed: int, kinds: tuple[str, ...]) -> Plan:
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
        kinds=kinds,
        careful=True,
        calm=calm,
        delay_max=rng.choice((1, 5, 30)) * NS_PER_MS,
        disk_max=rng.choice((1, 30)) * NS_PER_MS,
        patience=20 * NS_PER_S,
        publishers=2,
        log_kept=50,
        faults=tuple(closely(rng, kinds, members, calm)),
        sendings=tuple(
            Sending(at, rng.randrange(2), rng.randrange(2))
            for at in range(NS_PER_S // 2, calm, rng.choice((4, 10, 30)) * NS_PER_MS)
        ),
    )


def closely(rng: random.Random, kinds: tuple[str, ...], members: int, calm: int) -> Iterator[Fault]:
    """Partitions, each with a crash at about its end."""
    for fault in draw_faults(rng, kinds, members, calm):
        if fault.kind not in {"isolate", "isolate-seeds"}:
            yield fault
            continue
        lasting = rng.randint(700, 1500) * NS_PER_MS
        yield evolve(fault, lasting=lasting)
        end = fault.at + lasting + rng.randint(-100, 100) * NS_PER_MS
        for kind in rng.sample(("crash-coordinator", "crash-at-step", "cut"), 2):
            yield evolve(
                fault, at=end, kind=kind, lasting=rng.randint(20, 400) * NS_PER_MS,
                draw=rng.getrandbits(30),
            )  # fmt: skip


def hunt(mutant: Mutant, seeds: range) -> tuple[Result | None, int, float]:
    """The first run that finds the bug, how many were run, and in how many seconds."""
    began = time.perf_counter()
    with switched_on(mutant):
        for count, seed in enumerate(seeds, 1):
            result = run(plan(seed, mutant.kinds))[0]
            if result.problems:
                return result, count, time.perf_counter() - began
    return None, len(seeds), time.perf_counter() - began


# The bugs


def one_ack_is_enough(original: Callable[..., int | None]) -> Any:
    def ack(self: Coordinator, seed: str, incarnation: int, length: int) -> int | None:
        agreed = original(self, seed, incarnation, length)
        if self.phase is Phase.ACTIVE and length > self.log.committed:
            return length
        return agreed

    return ack


def longest_log(original: Callable[..., Promised | None]) -> Any:
    def promised(
        self: Coordinator, seed: str, incarnation: int, known: dict[str, int], item: Promised
    ) -> Promised | None:
        return original(self, seed, incarnation, known, msgspec.structs.replace(item, accepted=0))

    return promised


def no_recovery(original: Callable[..., None]) -> Any:
    def init(self: Seed, name: str, votes: VoteRecord, logs: list[Any]) -> None:
        original(self, name, votes, logs)
        if votes.admitted:
            self.standing = [Standing.NORMAL] * len(logs)

    return init


def forgotten_promises(original: Callable[[VoteRecord], bytes]) -> Any:
    def encode(self: VoteRecord) -> bytes:
        blank = [Vote()] * len(self.promised)
        return original(msgspec.structs.replace(self, promised=blank))

    return encode


def sent_before_the_disk(_: object) -> Any:
    def say_stored(self: Ground, peer: str, message: Any) -> None:
        self.store()
        self.say((peer,), message)

    return say_stored


def no_dedupe(original: Callable[..., tuple[Verdict, int, Position]]) -> Any:
    def verdict(self: Publishers, publisher: str, number: int) -> tuple[Verdict, int, Position]:
        found = original(self, publisher, number)
        return (Verdict.NEXT, number, FORGOTTEN) if found[0] is Verdict.TAKEN else found

    return verdict


def gaps_are_taken(original: Callable[..., tuple[Verdict, int, Position]]) -> Any:
    def verdict(self: Publishers, publisher: str, number: int) -> tuple[Verdict, int, Position]:
        found = original(self, publisher, number)
        return (Verdict.NEXT, number, FORGOTTEN) if found[0] is Verdict.GAP else found

    return verdict


def delivered_when_accepted(original: Callable[..., None]) -> Any:
    def extend(self: Learner, peer: str, item: Appended) -> None:
        original(self, peer, item)
        log = self.ground.logs[item.group]
        if log.epoch == item.epoch and log.length > log.committed:
            self.ground.learn(item.group, log.length)

    return extend


def unregistered_recovery(original: Callable[..., Step | None]) -> Any:
    def takes(self: Seed, group: int, epoch: int, register: int, cold: bool) -> Step | None:
        if self.standing[group] is Standing.RECOVERING and not cold:
            register = self.votes.incarnation
        return original(self, group, epoch, register, cold)

    return takes


def accepted_below_the_promise(_: object) -> Any:
    def accepts(self: Seed, group: int, epoch: int) -> bool:
        return self.may(group, Step.ACCEPT) and self.logs[group].epoch == epoch

    return accepts


def gap_is_skipped(original: Callable[..., None]) -> Any:
    def accept(self: Learner, peer: str, message: Accept) -> None:
        items = [
            msgspec.structs.replace(i, start=min(i.start, self.ground.logs[i.group].length))
            for i in message.items
        ]
        original(self, peer, Accept(items))

    return accept


MUTANTS = (
    Mutant("one acknowledgement commits", Coordinator, "ack", one_ack_is_enough),
    Mutant("the longest log is adopted", Coordinator, "promised", longest_log),
    Mutant("a restarted seed votes at once", Seed, "__init__", no_recovery),
    Mutant("promises are not in the vote file", VoteRecord, "encode", forgotten_promises),
    Mutant("answers leave before the vote file", Ground, "say_stored", sent_before_the_disk),
    Mutant("repeats are taken again", Publishers, "verdict", no_dedupe),
    Mutant("numbers may have gaps", Publishers, "verdict", gaps_are_taken),
    Mutant("delivered when accepted", Learner, "_extend", delivered_when_accepted),
    Mutant("recovery without registration", Seed, "takes", unregistered_recovery),
    Mutant("entries below the promise are taken", Seed, "accepts", accepted_below_the_promise),
    Mutant("a gap is skipped", Learner, "accept", gap_is_skipped),
)

SURVIVORS = (
    "the longest log is adopted",
    "promises are not in the vote file",
    "recovery without registration",
)
"""Not found by hundreds of runs; the models refute the first two (docs/verification.md)."""
