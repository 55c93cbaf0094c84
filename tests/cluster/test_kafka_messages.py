"""What Kafka says to a member is taken by its mode, whatever it is about."""

from typing import get_args

import pytest

from mdserver.cluster.kafka_messages import (
    KafkaInput,
    ProductionReport,
    ProductionReports,
    Reachability,
    ReadingBegun,
    RecordsLost,
    RecordsRead,
    RecordsRemoved,
    TopicsSeen,
)
from simulation.kafka_log import SimulatedLog, SimulatedMember

OF_NOTHING_KNOWN = (
    TopicsSeen("cluster", ()),
    ReadingBegun({("gone", 0): (0, 1)}),
    RecordsRead([], {("gone", 0): 7}),
    RecordsRemoved(("gone", 0), 7),
    RecordsLost(("gone", 0), 7),
    ProductionReports([ProductionReport(99)]),
    Reachability(None),
)


def test_these_are_all() -> None:
    assert {type(one) for one in OF_NOTHING_KNOWN} == set(get_args(KafkaInput))


@pytest.mark.parametrize("given", OF_NOTHING_KNOWN, ids=lambda one: type(one).__name__)
def test_what_concerns_nothing_known_changes_nothing(given: KafkaInput) -> None:
    """Threads may speak of topics and publications that the member has given up meanwhile."""
    log = SimulatedLog()
    log.create("t")
    member = SimulatedMember(log)
    member.read()
    before = member.node.mode.counts()
    assert member.step(given) == []
    assert member.node.mode.counts() == before
    assert member.node.unready() is None
