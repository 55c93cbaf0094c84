"""Work on all subjects of a partition or topic, some of them a step."""

import pytest

from mdserver.limits import KAFKA_GONE_S, NS_PER_S, SUBJECTS_PER_STEP
from simulation.kafka_log import PARTITIONS, SimulatedLog
from tests.cluster.test_kafka_mode import HOME, KEY, SUBJECT, home_of, ready


@pytest.fixture
def log() -> SimulatedLog:
    made = SimulatedLog()
    made.create("t")
    return made


def test_a_partition_that_retention_overtakes_takes_several_steps(log: SimulatedLog) -> None:
    """No step looks at more subjects than a step may, however many there are."""
    count = 3 * SUBJECTS_PER_STEP
    here = ready(log)
    for number in range(count):
        log.append("t", home_of(f"{number}"), f"{number}".encode(), b"1")
    here.read()
    here.subscribe("/t/*")
    here.delivered.clear()
    for partition in range(PARTITIONS):
        for _ in range(2):
            log.append("t", partition, None if partition == 0 else b"other", b"-")
        log.retain(("t", partition), log.ends["t", partition] - 1)
    here.read()
    steps = told = 0
    while here.sweeping:
        here.sweep(1)
        found = len([one for one in here.statuses if one.missing is not None])
        assert found - told <= SUBJECTS_PER_STEP
        told, steps = found, steps + 1
    assert steps >= 3
    assert told == count


def test_members_agree_on_the_history_after_a_topic_was_deleted(log: SimulatedLog) -> None:
    log.create("u", "second", 1)
    log.append("u", 0, b"k", b"u1")
    log.append("t", HOME, KEY, b"1")
    here = ready(log)
    here.subscribe(SUBJECT, "/u/k")
    log.delete("u")
    here.look()
    assert here.node.history != ready(log).node.history  # it may be a broker that just started
    here.now += KAFKA_GONE_S * NS_PER_S
    here.look()
    here.sweep()
    there = ready(log)
    assert here.node.history == there.node.history
    assert here.node.broker.subject_statistics("/u/k") is None
    assert here.node.unready() is None
    log.create("u", "third", 1)
    log.append("u", 0, b"k", b"another")
    for member in (here, there):
        member.look()
        member.read()
    assert here.contents[-1] == "another"
    assert here.node.history == there.node.history


def test_a_topic_that_comes_back_was_not_deleted(log: SimulatedLog) -> None:
    log.create("u", "second", 1)
    here = ready(log)
    before, gone = here.node.history, log.topics.pop("u")
    here.look()
    log.topics["u"] = gone
    here.look()
    here.now += KAFKA_GONE_S * NS_PER_S
    here.look()
    assert not here.sweeping
    assert here.node.history == before
