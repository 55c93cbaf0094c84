"""The history ids of a cold start that a broken link disturbed: every member tells one."""

from typing import Any

import pytest

from mdserver.core.commands import PositionAfter
from mdserver.core.events import Connected, Reset, StatusName
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster

GROUPS = 40  # of which not all fit one message
SUBJECTS = [f"/s/{number}" for number in range(120)]


def disturbed() -> Cluster:
    """A cluster whose groups began in two rounds: a link broke in the midst of the first."""
    for seed in range(5):
        for at in range(90, 200):
            cluster = Cluster(3, GROUPS, seed=seed)
            cluster.start()
            cluster.run(at * MS)
            cluster.disconnect("m1:1", "m3:1")
            cluster.connect_later(50 * MS, "m1:1", "m3:1")
            cluster.until(cluster.ready, limit=60 * S)
            if len({group.history for group in cluster.statistics("m2:1").groups}) > 1:
                return cluster
    raise AssertionError("nothing disturbed the cold start")


def told(cluster: Cluster, name: str, session: int, kind: type[Any]) -> list[Any]:
    return [e for e in cluster.members[name].inboxes.get(session, []) if isinstance(e, kind)]


@pytest.mark.parametrize("restarted", ["", "m1:1", "m2:1", "m3:1", "m9:1"])
def test_a_client_that_moves_is_not_reset_by_a_cold_start_in_two_rounds(restarted: str) -> None:
    cluster = disturbed()
    cluster.run(3 * S)
    if restarted in cluster.members:
        cluster.kill(restarted)
        cluster.run(S)
    if restarted:
        cluster.start(restarted)
        cluster.until(cluster.ready)
    cluster.open("m2:1", 1)
    for subject in SUBJECTS:
        cluster.publish("m2:1", 1, subject, subject)
    cluster.run(S)
    (connected,) = told(cluster, "m2:1", 1, Connected)
    positions = {
        str(status.id): PositionAfter(connected.history, status.epoch or 0, status.seq or 0)
        for status in cluster.members["m2:1"].statuses
        if status.status is StatusName.PUBLISH_OK
    }
    assert sorted(positions) == sorted(SUBJECTS)
    for name in cluster.members:
        cluster.open(name, 7)
        cluster.subscribe(name, 7, *SUBJECTS, positions=positions)
        cluster.run(S)
        assert told(cluster, name, 7, Reset) == [], name
        assert told(cluster, name, 7, Connected)[0].history == connected.history
