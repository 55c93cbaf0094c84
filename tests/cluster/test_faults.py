"""Random faults on members in memory: what is acknowledged stays, and nothing forks.

Restarts lose all memory but the vote record, links lose what is on its way, members are cut off;
a majority of seeds stays NORMAL. Afterwards everything heals and has to work again.
"""

import random

import pytest

from mdserver.core.events import StatusName
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster

SUBJECTS = [f"/s/{index}" for index in range(6)]


class Run:
    """One run, its publishers and what was acknowledged to them."""

    def __init__(self, seed: int, members: int, *, records_go: bool = False) -> None:
        self.rng = random.Random(seed)
        self.records_go = records_go
        self.cluster = Cluster(members, groups=3, seed=seed, log_kept=self.rng.choice([2, 8, 512]))
        self.members = members
        self.sessions = 0
        self.published = 0
        self.places: dict[tuple[str, str, int], tuple[int, bytes]] = {}
        self.acked: list[tuple[str, str, int, int, str]] = []
        self.numbers: dict[int, int] = {}
        self.open: dict[str, int] = {}

    def start(self) -> None:
        self.cluster.start()
        self.cluster.until(self.cluster.ready)

    def subject(self, name: str) -> str:
        return SUBJECTS[int(name.split("-", maxsplit=1)[0]) % len(SUBJECTS)]

    def publish(self) -> None:
        ready = [name for name in self.cluster.members if self.cluster.ready(name)]
        if not ready:
            return
        name = self.rng.choice(ready)
        session = self.open.get(name)
        if session is None:
            self.sessions += 1
            session = self.open[name] = self.sessions
            self.cluster.open(name, session)
        for _ in range(self.rng.randrange(1, 6)):
            self.published += 1
            content = f"{self.published}-{name}"
            self.cluster.publish(name, session, self.subject(content), content)

    def fault(self) -> None:
        cluster, rng = self.cluster, self.rng
        names = list(cluster.members)
        what = rng.choice(["cut", "cut", "kill", "partition", "operate", "one-way"])
        if what == "cut":
            first, second = rng.sample(names, 2)
            cluster.disconnect(first, second)
            cluster.connect_later(rng.randrange(400) * MS, first, second)
        elif what == "operate":
            cluster.operate(rng.choice(names), rng.choice(["drain", "undrain"]), force=True)
        elif what == "one-way":
            cluster.loss.add((names[0], names[1]))
        elif self.spare() > 0:
            name = rng.choice(names)
            if what == "partition":
                cluster.partition(name)
            else:
                self.collect()
                cluster.kill(name)
                self.open.pop(name, None)
                if self.records_go and rng.random() < 0.6:
                    cluster.lose_votes(name)

    def readmit(self) -> bool:
        """An operator takes back all that wait for it, at any member; whether some did."""
        lost = [
            name
            for name, member in self.cluster.members.items()
            if member.node.statistics().record_lost
        ]
        for name in lost:
            self.cluster.operate(self.rng.choice(list(self.cluster.members)), "readmit", name)
        return bool(lost)

    def spare(self) -> int:
        """How many seeds may still go while a majority votes."""
        cluster = self.cluster
        seeds = cluster.names[: 5 if self.members >= 5 else 3]
        voting = [
            name
            for name in seeds
            if name in cluster.members
            and not cluster.statistics(name).not_voting
            and not any(name in pair for pair in cluster.cut)
        ]
        return len(voting) - (len(seeds) // 2 + 1)

    def back(self) -> None:
        missing = [name for name in self.cluster.names if name not in self.cluster.members]
        if missing:
            self.cluster.start(self.rng.choice(missing))
        else:
            self.heal()

    def heal(self) -> None:
        # A link that swallowed messages is a broken one: it has to be a new one afterwards.
        for first, second in sorted(self.cluster.loss):
            self.cluster.disconnect(first, second)
        self.cluster.heal()

    def collect(self) -> None:
        """Check what was committed and acknowledged since the last time."""
        for name, member in self.cluster.members.items():
            histories = member.node.statistics().histories
            for group, entries in member.committed.items():
                history = histories[group]
                for entry in entries:
                    key = (history, entry.publication.subject, entry.seq)
                    place = (entry.epoch, entry.publication.content)
                    assert self.places.setdefault(key, place) == place, (name, key, place)
            member.committed.clear()
            for status in member.statuses:
                if status.status is StatusName.PUBLISH_OK:
                    subject = self.subject(str(status.id))
                    history = histories[self.cluster.group(subject)]
                    self.acked.append(
                        (history, subject, status.seq or 0, status.epoch or 0, str(status.id))
                    )
            member.statuses.clear()
            for disconnected in member.closed:
                self.open = {n: s for n, s in self.open.items() if s != disconnected.session}

    def play(self, steps: int) -> None:
        for _ in range(steps):
            choice = self.rng.random()
            if choice < 0.7:
                self.publish()
            elif choice < 0.85:
                self.fault()
            elif not self.records_go or not self.readmit():
                self.back()
            self.cluster.run(self.rng.randrange(400) * MS)
            self.collect()
        self.heal()
        missing = [name for name in self.cluster.names if name not in self.cluster.members]
        if missing:
            self.cluster.start(*missing)

    def check(self) -> None:
        cluster = self.cluster
        if self.records_go:
            cluster.run(2 * S)
            cluster.until(lambda: not self.readmit())
        cluster.until(cluster.ready, limit=30 * S)
        for name in cluster.names:
            cluster.operate(name, "undrain")
        self.published += 1
        before = len(self.acked)
        self.open.clear()
        for _ in range(10):
            self.publish()
        cluster.run(3 * S)
        self.collect()
        assert len(self.acked) > before
        contents = [content for _, content in self.places.values()]
        assert len(contents) == len(set(contents)), "a publication was committed twice"
        for history, subject, seq, epoch, content in self.acked:
            assert self.places[history, subject, seq] == (epoch, content.encode())
        assert len({key[0] for key in self.places}) == 1, "a history ended while seeds were NORMAL"
        for group in range(cluster.groups):
            logs = [member.node.group_statistics(group) for member in cluster.members.values()]
            assert len({(log.length, log.committed) for log in logs}) == 1


@pytest.mark.parametrize("seed", [66, 67, *range(10)])
def test_three_members_under_faults(seed: int) -> None:
    run = Run(seed, 3)
    run.start()
    run.play(60)
    run.check()


@pytest.mark.parametrize("seed", range(5))
def test_five_seeds_and_another_member_under_faults(seed: int) -> None:
    run = Run(seed, 6)
    run.start()
    run.play(60)
    run.check()


@pytest.mark.parametrize("members", [3, 5, 6])
@pytest.mark.parametrize("seed", range(5))
def test_members_whose_vote_records_go_with_them(seed: int, members: int) -> None:
    run = Run(seed, members, records_go=True)
    run.start()
    run.play(60)
    run.check()


@pytest.mark.parametrize("seed", range(30))
def test_a_cluster_starts_under_faults_without_an_operator(seed: int) -> None:
    """Members come up one by one, links break and members restart; no record is lost."""
    rng = random.Random(seed)
    cluster = Cluster(rng.choice([3, 5, 6]), groups=rng.choice([1, 4]), seed=seed)
    for name in rng.sample(cluster.names, len(cluster.names)):
        cluster.disk_delays[name] = rng.choice([1, 2, 10, 50, 200]) * MS
        cluster.start(name)
        cluster.run(rng.choice([0, 0, 20, 300]) * MS)
    for _ in range(rng.randrange(1, 8)):
        name, other = rng.sample(cluster.names, 2)
        match rng.choice(["cut", "cut", "restart", "partition"]):
            case "cut":
                cluster.disconnect(name, other)
                cluster.connect_later(rng.randrange(500) * MS, name, other)
            case "restart":
                cluster.kill(name)
                cluster.run(rng.randrange(100) * MS)
                cluster.start(name)
            case _:
                cluster.partition(name)
                cluster.run(rng.randrange(600) * MS)
                cluster.heal()
        cluster.run(rng.randrange(250) * MS)
    cluster.heal()
    cluster.until(cluster.ready)
