"""Workers and members die at random, and publishers repeat what they have no result of.

Whatever happens, each publication has one place in the log, each acknowledged one is where its
publisher was told, and subscribers at workers get subjects in order, without gaps and repeats.
"""

import os
import random
from typing import Any

import pytest

from mdserver.core.events import Delivery, Reset, StatusName
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster, Member

STEP = 20 * MS
PATIENCE = 3 * S
FAULTS = 8
SEEDS = int(os.environ.get("SEEDS", "1"))
MODES: dict[str, dict[str, Any]] = {
    "memory": {"log_kept": 4},
    "written down": {"writes_wal": True, "acks_wait_for_wal": True, "log_kept": 4},
}


class Run:
    """A cluster of three members with two workers each, its publishers and its subscribers."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self.rng = random.Random(seed)
        self.cluster = Cluster(3, seed=seed, workers=True, **settings)
        self.cluster.start()
        self.sessions = 0
        self.down: str | None = None
        self.cut: str | None = None
        self.subscribers: list[tuple[Member, int]] = []
        kind = Publisher if self.cluster.settings.get("guaranteed", True) else PublisherOnce
        self.publishers = [kind(self, f"p{number}") for number in range(3)]

    def next_session(self) -> int:
        """A number for a session."""
        self.sessions += 1
        return self.sessions

    def serving(self) -> list[str]:
        """The workers that take clients."""
        cluster = self.cluster
        return [
            name
            for name in cluster.members
            if "/" in name and cluster.members[name].running.members.joined and cluster.ready(name)
        ]

    def step(self) -> None:
        """Let a little time go by, in which everybody does what there is to do."""
        cluster = self.cluster
        for name in cluster.names:
            while name in cluster.members and len(cluster.workers_of(name)) < 2:
                cluster.start_worker(name)
        listening = {member.name for member, _ in self.subscribers if cluster.alive(member)}
        for name in self.serving():
            if name not in listening:
                session = self.next_session()
                cluster.open(name, session)
                cluster.subscribe(name, session, "/s/*")
                self.subscribers.append((cluster.members[name], session))
        for publisher in self.publishers:
            publisher.step()
        cluster.run(STEP)

    def fault(self) -> None:
        """Do something bad, or take back what was done to a member: one at a time."""
        rng, cluster = self.rng, self.cluster
        workers = [name for name in cluster.members if "/" in name]
        what = rng.choice(("worker", "worker", "worker", "member", "cut"))
        if what == "worker" and workers:
            cluster.kill(rng.choice(workers))
        elif self.down is not None or self.cut is not None:
            self.repair()
        elif what == "member":
            self.down = rng.choice(cluster.names)
            cluster.kill(self.down)
        else:
            self.cut = rng.choice(cluster.names)
            cluster.partition(self.cut)

    def repair(self) -> None:
        """Start the member that is down, and heal the cut."""
        if self.down is not None:
            self.cluster.start(self.down)
        if self.cut is not None:
            self.cluster.heal()
        self.down = self.cut = None

    def whole(self) -> bool:
        """Whether all members, and two workers of each, serve."""
        return len(self.serving()) == 6 and self.cluster.ready(*self.cluster.names)


class Publisher:
    """Publishes one number after the other, each again elsewhere until it has a result.

    `told` are the numbers with the positions that it was told.
    """

    def __init__(self, run: Run, name: str) -> None:
        self.run = run
        self.name = name
        self.subject = f"/s/{name}"
        self.number = 0
        self.told: dict[int, tuple[int, int]] = {}
        self.member: Member | None = None
        self.session = 0
        self.since = 0
        self.ended = False

    def step(self) -> None:
        """Look for the result; go to another worker if there is none."""
        cluster = self.run.cluster
        now = cluster.heap.now
        if self.member is not None and not cluster.alive(self.member):
            self.member = None
        if self.member is not None and self.number and self.number not in self.told:
            for status in self.member.statuses:
                if status.id != self.content(self.number):
                    continue
                if status.status is StatusName.PUBLISH_OK:
                    assert status.epoch is not None
                    assert status.seq is not None
                    self.told[self.number] = status.epoch, status.seq
            gone = any(closed.session == self.session for closed in self.member.closed)
            if gone or now - self.since > PATIENCE:
                self.member = None
        if self.number in self.told or not self.number:
            if self.ended:
                return
            self.number += 1
            self.say()
        elif self.member is None:
            self.say_again()

    def say(self) -> None:
        """Publish the number at the worker, or at another one."""
        cluster, serving = self.run.cluster, self.run.serving()
        if self.member is None:
            if not serving:
                return
            name = self.run.rng.choice(serving)
            self.member, self.session = cluster.members[name], self.run.next_session()
            cluster.open(name, self.session, self.name)
        self.since = cluster.heap.now
        self.publish(self.member.name, self.content(self.number))

    @property
    def quiet(self) -> bool:
        """Whether nothing is to be published any more."""
        return self.number in self.told

    def say_again(self) -> None:
        """Publish the number elsewhere: there is no result of it."""
        self.say()

    def publish(self, name: str, content: str) -> None:
        """Publish at a worker."""
        cluster = self.run.cluster
        cluster.publish(name, self.session, self.subject, content, number=self.number)

    def content(self, number: int) -> str:
        """What is published under a number."""
        return f"{self.name}-{number}"


class PublisherOnce(Publisher):
    """Publishes each content once and without a number, by which nobody could know a repeat."""

    @property
    def quiet(self) -> bool:
        """Whether nothing is to be published any more."""
        return self.ended

    def say_again(self) -> None:
        """Go on with the next one instead."""
        if not self.ended:
            self.number += 1
            self.say()

    def publish(self, name: str, content: str) -> None:
        """Publish at a worker."""
        self.run.cluster.publish(name, self.session, self.subject, content)


def run_with_faults(seed: int, **settings: Any) -> Run:
    """Return a run at its end, with everybody back and nobody publishing."""
    run = Run(seed, **settings)
    cluster = run.cluster
    for _ in range(FAULTS):
        for _ in range(run.rng.randrange(10, 120)):
            run.step()
        run.fault()
    run.repair()
    for publisher in run.publishers:
        publisher.ended = True
    for _ in range(3000):
        run.step()
        if run.whole() and all(one.quiet for one in run.publishers):
            break
    assert run.whole()
    cluster.run(3 * S)
    assert all(len(one.told) > FAULTS for one in run.publishers), "little was published"
    return run


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_without_votes_nothing_comes_twice_in_a_history(seed: int) -> None:
    """What was acknowledged may be lost then; what was published once comes once at most."""
    run = run_with_faults(seed, guaranteed=False, log_kept=4)
    every = histories(run)
    assert all(held == every[0] for held in every)
    for member, session in run.subscribers:
        last: dict[str, tuple[int, int]] = {}
        seen: set[bytes] = set()
        for one in member.inboxes.get(session, []):
            if isinstance(one, Reset):
                last.clear()
                seen.clear()
            if isinstance(one, Delivery):
                subject, content = one.entry.publication.subject, one.entry.publication.content
                position = one.entry.epoch, one.entry.seq
                assert content not in seen, "it came twice"
                assert position > last.get(subject, (0, 0)), "it came out of order"
                seen.add(content)
                last[subject] = position


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_publication_has_one_place_whoever_dies(seed: int, mode: str) -> None:
    run = run_with_faults(seed, **MODES[mode])
    positions = held_by_all(run)
    for publisher in run.publishers:
        assert sorted(publisher.told) == list(range(1, publisher.number + 1))
        for number, position in publisher.told.items():
            assert positions[publisher.content(number)] == position
    for member, session in run.subscribers:
        got: dict[str, list[int]] = {}
        inbox = member.inboxes.get(session, [])
        for entry in [one.entry for one in inbox if isinstance(one, Delivery)]:
            publication = entry.publication
            assert positions[publication.content.decode()] == (entry.epoch, entry.seq)
            got.setdefault(publication.subject, []).append(entry.seq)
        for row in got.values():
            assert row == list(range(row[0], row[0] + len(row)))


def held_by_all(run: Run) -> dict[str, tuple[int, int]]:
    """The positions of all publications, which all members and workers hold alike, each once."""
    every = histories(run)
    assert all(held == every[0] for held in every)
    positions: dict[str, tuple[int, int]] = {}
    for epoch, seq, content in every[0]:
        assert content not in positions, "it was taken twice"
        positions[content] = epoch, seq
    return positions


def histories(run: Run) -> list[list[tuple[int, int, str]]]:
    """What each member and worker has in its cache, in the order of positions."""
    return [
        sorted(
            (entry.epoch, entry.seq, entry.publication.content.decode())
            for group in range(run.cluster.groups)
            for row in member.running.broker.export_group(group).subjects
            for entry in row.entries
        )
        for member in run.cluster.members.values()
    ]
