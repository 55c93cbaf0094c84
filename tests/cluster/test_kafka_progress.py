"""What metadata mean for the numbering, and what a member may say of offsets it has not seen."""

from mdserver.cluster.kafka_progress import (
    Change,
    Consumption,
    Span,
    TopicSeen,
    change,
    history_of,
    position_of,
)
from mdserver.core.message import Position

A, B = TopicSeen("a", "id-a", 4), TopicSeen("b", "id-b", 1)


def by_name(*topics: TopicSeen) -> dict[str, TopicSeen]:
    return {topic.name: topic for topic in topics}


def test_a_further_topic_renumbers_nothing() -> None:
    assert change(by_name(A), by_name(A)) is Change.NONE
    assert change(by_name(A), by_name(A, B)) is Change.ADDED


def test_another_id_or_more_partitions_renumber() -> None:
    assert change(by_name(A), by_name(TopicSeen("a", "other", 4))) is Change.RENUMBERED
    assert change(by_name(A), by_name(TopicSeen("a", "id-a", 6), B)) is Change.RENUMBERED


def test_a_topic_that_is_missing_for_a_moment_is_no_change() -> None:
    assert change(by_name(A, B), by_name(A)) is Change.NONE


def test_members_agree_on_the_history_without_contact() -> None:
    assert history_of("c", [A, B]) == history_of("c", [B, A])
    others = [
        history_of("other", [A, B]),
        history_of("c", [A]),
        history_of("c", [TopicSeen("a", "id-a", 6), B]),
        history_of("c", [TopicSeen("a", "new", 4), B]),
    ]
    assert len({history_of("c", [A, B]), *others}) == 5


def test_a_position_names_the_record() -> None:
    assert position_of(3, 0) == Position(4, 1)


def test_a_member_is_ready_once_it_read_what_was_there_at_its_start() -> None:
    consumption = Consumption()
    consumption.expect([("a", 0), ("a", 1)])
    consumption.begin(("a", 0), 10, 20)
    consumption.begin(("a", 1), 7, 7)
    assert consumption.lag() == 10
    assert "0 of a" in str(consumption.behind())
    consumption.reach(("a", 0), 20)
    assert consumption.behind() is None


def test_what_retention_removed_is_not_waited_for() -> None:
    consumption = Consumption()
    consumption.expect([("a", 0)])
    consumption.begin(("a", 0), 0, 20)
    consumption.reach(("a", 0), 5)
    assert consumption.overtake(("a", 0), 5) is None
    assert consumption.overtake(("a", 0), 30) == Span(30, 30, 20)
    assert consumption.behind() is None


def test_a_client_may_be_ahead_behind_or_before_the_first_offset_that_was_read() -> None:
    span = Span(100, 200, 200)
    assert span.known_up_to(201) is None  # ahead: the member still has to read it
    assert span.known_up_to(200) == 200
    assert span.known_up_to(150) == 150  # nothing came after it, or it would be known
    assert span.known_up_to(100) == 100
    assert span.known_up_to(40) == 100  # what is between was never seen
