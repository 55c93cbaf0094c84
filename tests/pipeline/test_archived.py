"""What an audit can judge yet: of topics that depends on the partition."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mdserver.pipeline.audit.archived import (
    BEHIND,
    MARGIN_S,
    OLD_PART,
    UNPLACED,
    ArchivedUntil,
    with_reached,
)
from mdserver.pipeline.common.checkpoints import TopicPart, TopicPartitions

pytestmark = pytest.mark.pipeline

START = datetime(2026, 3, 1, tzinfo=UTC)
TOPIC = "fleet.messages"
DAY_S = 24 * 3600


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def us(second: int) -> int:
    return round(at(second).timestamp()) * 1_000_000


def judged(
    spark: Any,
    topics: dict[TopicPart, int],
    journals: dict[str, int] | None = None,
    changed: dict[str, TopicPartitions] | None = None,
) -> list[tuple[str, str]]:
    """Which of six lacking messages are judged; two subjects are in partitions that are known."""
    archived = [
        ("/a/0", "n1", at(20), "kafka", 0),
        ("/a/1", "n1", at(5), "kafka", 1),
        ("/j", "n3", at(9), "journal", 77),
    ]
    columns = "subject string, node string, ts_server timestamp, src_kind string"
    messages = spark.createDataFrame(archived, f"{columns}, src_partition bigint")
    lacking = [
        ("n1", "/a/0", at(10)),
        ("n1", "/a/1", at(10)),
        ("n1", "/unknown", at(10)),
        ("n2", "/a/0", at(10)),
        ("n3", "/j", at(9)),
        ("n3", "/k", at(10)),
    ]
    frame = spark.createDataFrame(lacking, "node string, subject string, ts timestamp")
    found = with_reached(frame, messages, ArchivedUntil(journals or {}, topics, changed or {}))
    rows = found.select(*frame.columns, "reached").collect()
    assert len(rows) == len(lacking)
    return sorted((row.node, row.subject) for row in rows if row.reached)


def test_a_partition_that_is_behind_is_waited_for(spark: Any) -> None:
    """A member that is ahead in one partition is not in another one."""
    ahead = {("n1", TOPIC, 0): us(20), ("n1", TOPIC, 1): us(5), ("n2", TOPIC, 0): us(5)}
    assert judged(spark, ahead) == [("n1", "/a/0"), ("n3", "/j")]
    level = ahead | {("n1", TOPIC, 1): us(11), ("n2", TOPIC, 0): us(11)}
    assert judged(spark, level) == [
        ("n1", "/a/0"),
        ("n1", "/a/1"),
        ("n1", "/unknown"),
        ("n2", "/a/0"),
        ("n3", "/j"),
    ]


def test_a_partition_in_which_a_member_has_no_line_says_nothing(spark: Any) -> None:
    only = {("n1", TOPIC, 0): us(20), ("n2", TOPIC, 3): us(20)}
    assert judged(spark, only) == [("n1", "/a/0"), ("n1", "/unknown"), ("n3", "/j")]


def test_of_two_topics_the_one_that_is_behind_counts(spark: Any) -> None:
    both = {("n1", TOPIC, 0): us(20), ("n1", "other.messages", 0): us(5), ("n2", TOPIC, 0): us(1)}
    assert judged(spark, both) == [("n3", "/j")]


def test_without_topics_a_member_is_as_far_as_its_last_line(spark: Any) -> None:
    assert judged(spark, {}) == [
        ("n1", "/a/0"),
        ("n1", "/a/1"),
        ("n1", "/unknown"),
        ("n2", "/a/0"),
        ("n3", "/j"),
    ]


def test_a_member_whose_journal_is_archived_after_its_topics_is_judged_by_that(spark: Any) -> None:
    """No line of it comes to the topics any more, so it would never be judged there."""
    before = {(node, TOPIC, part): us(1) for node in ("n1", "n2", "n3") for part in (0, 1)}
    assert judged(spark, before) == [("n3", "/j")]
    assert judged(spark, before, {"n1": us(9), "n3": us(10)}) == [("n3", "/j"), ("n3", "/k")]
    assert judged(spark, before, {"n1": us(10)}) == [
        ("n1", "/a/0"),
        ("n1", "/a/1"),
        ("n1", "/unknown"),
        ("n3", "/j"),
    ]


def test_of_a_member_whose_topics_were_not_noted_the_last_line_counts(spark: Any) -> None:
    """A run that was killed behind its first commit has not noted them."""
    assert judged(spark, {("n2", TOPIC, 0): us(1)}) == [
        ("n1", "/a/0"),
        ("n1", "/a/1"),
        ("n1", "/unknown"),
        ("n3", "/j"),
    ]


CHANGED_S = 0
SETTLED_S = CHANGED_S + MARGIN_S
"""From when on (s) producers know the partitions after a change at CHANGED_S."""
GREW = TopicPartitions(2, us(CHANGED_S), before=1)


def reached_after_a_change(
    spark: Any,
    seen: list[tuple[int, int]],
    at_s: int,
    parts: dict[int, int],
    changed: TopicPartitions = GREW,
    further: dict[TopicPart, int] | None = None,
    further_changed: dict[str, TopicPartitions] | None = None,
) -> tuple[bool, str | None]:
    """Whether a message of this time is judged, and why not.

    `seen` are times and partitions of the subject's archived messages, and `parts` how far the
    member is archived in each partition; `further` (us) is of other members and topics.
    """
    archived = [("/a", "n1", at(second), "kafka", part) for second, part in seen]
    columns = "subject string, node string, ts_server timestamp, src_kind string"
    messages = spark.createDataFrame(archived, f"{columns}, src_partition bigint")
    lacking = spark.createDataFrame(
        [("n1", "/a", at(at_s))], "node string, subject string, ts timestamp"
    )
    topics = {("n1", TOPIC, part): us(second) for part, second in parts.items()}
    until = ArchivedUntil({}, topics | (further or {}), {TOPIC: changed} | (further_changed or {}))
    (row,) = with_reached(lacking, messages, until).collect()
    return row.reached, row.waiting


def test_while_producers_may_not_know_of_a_change_both_partitions_count(spark: Any) -> None:
    """One that knows nothing yet still writes to partition 0, and others to partition 1."""
    seen = [(-5, 0), (SETTLED_S - 10, 0)]
    parts = {0: SETTLED_S + 9, 1: SETTLED_S - 100}
    assert reached_after_a_change(spark, seen, SETTLED_S - 50, parts) == (False, UNPLACED)
    later = [*seen, (SETTLED_S + 5, 1)]
    assert reached_after_a_change(spark, later, SETTLED_S - 50, parts) == (False, BEHIND)
    level = parts | {1: SETTLED_S + 5}
    assert reached_after_a_change(spark, later, SETTLED_S - 50, level) == (True, None)
    # Old lines of partition 0 may be behind as well, although the subject is in partition 1 now.
    behind = {0: SETTLED_S - 60, 1: SETTLED_S + 5}
    assert reached_after_a_change(spark, later, SETTLED_S - 50, behind) == (False, OLD_PART)


def test_of_a_partition_without_a_line_of_the_member_nothing_is_known(spark: Any) -> None:
    seen = [(-5, 0), (SETTLED_S + 5, 1)]
    only = {1: SETTLED_S + 5}
    assert reached_after_a_change(spark, seen, 10, only) == (False, OLD_PART)
    # A run that was killed behind a commit has not noted the line in partition 1.
    assert reached_after_a_change(spark, seen, 10, {0: 20}) == (False, BEHIND)


def test_an_old_partition_that_was_read_beyond_the_change_is_done(spark: Any) -> None:
    """A member with one subject writes no more to it, so a line of any other member shows that."""
    seen, parts = [(-5, 0), (60, 0), (SETTLED_S + 5, 1)], {0: 60, 1: SETTLED_S + DAY_S}
    other, topic = ("n2", TOPIC, 0), "other.messages"

    def found(further: dict[TopicPart, int]) -> tuple[bool, str | None]:
        return reached_after_a_change(spark, seen, 120, parts, further=further)

    assert found({other: us(SETTLED_S)}) == (False, OLD_PART)
    assert found({other: us(SETTLED_S + 1)}) == (True, None)
    shared = {other: us(SETTLED_S + 1), ("n1", topic, 0): us(60), ("n1", topic, 1): us(DAY_S)}
    assert found(shared) == (False, OLD_PART)


def test_in_the_present_partition_lines_of_another_member_show_nothing(spark: Any) -> None:
    """Lines of a member that ships its journal late are still to come there."""
    seen = [(-5, 0), (SETTLED_S + 5, 0)]
    further = {("n2", TOPIC, 0): us(SETTLED_S + 5)}
    assert reached_after_a_change(spark, seen, 10, {0: 5}, further=further) == (False, BEHIND)


def test_each_old_partition_counts_for_a_subject_that_was_not_seen_before(spark: Any) -> None:
    three = TopicPartitions(3, us(CHANGED_S), before=2)
    seen, parts = [(100, 1), (SETTLED_S + 5, 1)], {0: -10, 1: SETTLED_S + 5}
    assert reached_after_a_change(spark, seen, 50, parts, three) == (False, OLD_PART)
    assert reached_after_a_change(spark, seen, 50, parts | {0: 50}, three) == (True, None)
    # The archive may notice a change late: a partition that was not there before shows it too.
    early = [(-100, 1), (SETTLED_S + 5, 1)]
    assert reached_after_a_change(spark, early, -50, parts | {0: -200}) == (False, OLD_PART)
    assert reached_after_a_change(spark, early, -50, parts) == (True, None)


def test_partitions_of_an_earlier_source_are_no_old_ones(spark: Any) -> None:
    """Nothing is read from them any more."""
    seen, parts = [(-DAY_S, 2), (SETTLED_S + 5, 1)], {1: SETTLED_S + 5}
    further = {("n2", TOPIC, 2): us(5)}
    for before, expected in ((0, (True, None)), (2, (False, OLD_PART)), (3, (False, OLD_PART))):
        changed = TopicPartitions(3, us(CHANGED_S), before)
        assert reached_after_a_change(spark, seen, -50, parts, changed, further) == expected
    seen = [(-DAY_S, 2), (-5, 0), (SETTLED_S + 5, 1)]
    assert reached_after_a_change(spark, seen, -50, parts | {0: -50}) == (True, None)


def test_of_two_topics_that_changed_the_later_one_counts(spark: Any) -> None:
    seen, later_s = [(-5, 0), (SETTLED_S + 300, 1)], SETTLED_S + 250
    other = {"other.messages": TopicPartitions(2, us(CHANGED_S + 100), before=1)}
    parts = {0: SETTLED_S, 1: SETTLED_S + 300}

    def found(seen: list[tuple[int, int]], at_s: int) -> tuple[bool, str | None]:
        return reached_after_a_change(spark, seen, at_s, parts, further_changed=other)

    assert found(seen, later_s) == (True, None)
    assert found(seen, SETTLED_S + 50) == (False, OLD_PART)
    assert found([(-5, 0), (SETTLED_S + 90, 1)], SETTLED_S + 50) == (False, UNPLACED)


def test_when_producers_know_of_a_change_the_newest_message_shows_the_partition(spark: Any) -> None:
    seen = [(-5, 0), (SETTLED_S + 5, 1)]
    parts = {0: -5, 1: SETTLED_S + 5}
    assert reached_after_a_change(spark, seen, SETTLED_S + 3, parts) == (True, None)
    assert reached_after_a_change(spark, seen, SETTLED_S + 9, parts) == (False, BEHIND)


def test_without_a_later_message_each_partition_that_there_is_counts(spark: Any) -> None:
    """A member may have no line in one of them: then nothing shows how far it is there."""
    seen, level = [(-5, 0)], {0: 20, 1: 20}
    assert reached_after_a_change(spark, seen, 10, level) == (True, None)
    three = TopicPartitions(3, us(CHANGED_S), before=1)
    assert reached_after_a_change(spark, seen, 10, level, three) == (False, UNPLACED)
    assert reached_after_a_change(spark, seen, 10, {0: 20, 1: 9}) == (False, UNPLACED)


def test_a_subject_that_stays_in_its_partition_is_judged_by_that(spark: Any) -> None:
    seen = [(-5, 0), (SETTLED_S + 5, 0)]
    parts = {0: SETTLED_S + 5}
    assert reached_after_a_change(spark, seen, 10, parts) == (True, None)


def test_a_change_of_another_topic_changes_nothing(spark: Any) -> None:
    here = {("n1", TOPIC, 0): us(20), ("n1", TOPIC, 1): us(20), ("n2", TOPIC, 0): us(20)}
    elsewhere = {"other.messages": TopicPartitions(3, us(10))}
    assert ("n1", "/unknown") in judged(spark, here, changed=elsewhere)
