"""A majority of seeds dies at once; operators order cold starts while seeds come back at random."""

import random

import pytest

from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from tests.cluster.test_faults import Run


class Disaster(Run):
    """Some seeds die, some of them without their records; a few come back before the order."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, random.Random(seed).choice([3, 5, 6]), records_go=True)
        self.seeds = list(self.cluster.names[: 5 if self.members >= 5 else 3])
        for name in self.cluster.names:
            self.cluster.disk_delays[name] = self.rng.choice([1, 2, 10, 50, 200]) * MS

    def strike(self) -> None:
        """A majority of seeds goes; so many come back that a majority is in sight again."""
        cluster, rng, majority = self.cluster, self.rng, len(self.seeds) // 2 + 1
        self.collect()
        victims = rng.sample(self.seeds, rng.randrange(majority, len(self.seeds) + 1))
        for name in victims:
            cluster.kill(name)
            self.open.pop(name, None)
            if rng.random() < 0.3:
                cluster.lose_votes(name)
        cluster.run(rng.choice([0, 300, 3000]) * MS)
        enough = majority - (len(self.seeds) - len(victims))
        cluster.start(*victims[: enough + rng.randrange(len(victims) - enough + 1)])
        cluster.run(rng.choice([0, 500, 3000]) * MS)

    def order(self) -> None:
        """One or two operators order a cold start, and a link breaks for a while."""
        cluster, rng = self.cluster, self.rng
        alive = [name for name in self.seeds if name in cluster.members]
        for name in rng.sample(alive, rng.randrange(1, 3)):
            cluster.operate(name, "cold-start", force=True)
            cluster.run(rng.randrange(200) * MS)
        first, second = rng.sample(alive, 2)
        cluster.disconnect(first, second)
        cluster.run(rng.randrange(2000) * MS)
        cluster.connect(first, second)
        cluster.run(rng.choice([0, 500, 10_000]) * MS)

    def check_cold(self) -> None:
        """All come back; what was committed under one history id is the same everywhere."""
        cluster = self.cluster
        missing = [name for name in cluster.names if name not in cluster.members]
        if missing:
            cluster.start(*missing)
        cluster.run(2 * S)
        cluster.until(lambda: not self.readmit())
        cluster.until(cluster.ready, limit=60 * S)
        before = len(self.acked)
        self.open.clear()
        for _ in range(10):
            self.publish()
        cluster.run(3 * S)
        self.collect()
        assert len(self.acked) > before
        for group in range(cluster.groups):
            held = [member.node.group_statistics(group) for member in cluster.members.values()]
            assert len({one.history for one in held}) == 1
            assert len({(one.length, one.committed) for one in held}) == 1


@pytest.mark.parametrize("seed", range(20))
def test_ordered_cold_starts_come_to_an_end_and_fork_nothing(seed: int) -> None:
    run = Disaster(seed)
    run.start()
    for _ in range(10):
        run.publish()
        run.cluster.run(run.rng.randrange(100) * MS)
    run.strike()
    run.order()
    run.check_cold()
