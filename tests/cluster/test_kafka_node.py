"""What a node whose log is Kafka does otherwise than a node with a log of its own."""

from mdserver.core.commands import PositionAfter, Resume
from mdserver.core.inputs import Received
from simulation.kafka_log import CLIENT, SimulatedLog, SimulatedMember


def member() -> SimulatedMember:
    log = SimulatedLog()
    log.create("t", partitions=1)
    made = SimulatedMember(log)
    made.read()
    made.connect()
    return made


def test_places_of_groups_say_nothing_so_a_reader_of_a_pattern_gets_snapshots() -> None:
    here = member()
    here.log.append("t", 0, b"k", b"1")
    here.read()
    resume = Resume(subjects=["/t/*"], known=here.node.history, places=[0] * 4)
    here.step(Received(CLIENT, [resume]))
    assert here.contents == ["1"]


def test_positions_of_other_histories_and_of_nonsense_are_passed_over() -> None:
    here = member()
    for subject, history in (("/t/k", "other"), ("/t/*", ""), ("nonsense", ""), ("/u/k", "")):
        after = PositionAfter(history or here.node.history, 1, 1)
        here.subscribe("/t/k", positions={subject: after})
    assert here.node.broker.subject_statistics("/t/k") is None


def test_a_session_opens_only_once_the_topics_were_read() -> None:
    log = SimulatedLog()
    log.create("t", partitions=1)
    log.append("t", 0, b"k", b"1")
    made = SimulatedMember(log)
    made.connect()
    assert made.sent == []
    made.read()
    made.connect()
    assert made.sent != []
