"""What an audit can judge yet: of topics that depends on the partition."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mdserver.pipeline.audit.archived import (
    BEHIND,
    MARGIN_S,
    UNPLACED,
    ArchivedUntil,
    with_reached,
)
from mdserver.pipeline.common.checkpoints import TopicPart, TopicPartitions

pytestmark = pytest.mark.pipeline

START = datetime(2026, 3, 1, tzinfo=UTC)
TOPIC = "fleet.messages"


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


def reached_after_a_change(
    spark: Any, seen: list[tuple[int, int]], at_s: int, parts: dict[int, int], count: int = 2
) -> tuple[bool, str | None]:
    """Whether a message of this time is judged, and why not.

    `seen` are times and partitions of the subject's archived messages, and `parts` how far the
    member is archived in each of the `count` partitions.
    """
    archived = [("/a", "n1", at(second), "kafka", part) for second, part in seen]
    columns = "subject string, node string, ts_server timestamp, src_kind string"
    messages = spark.createDataFrame(archived, f"{columns}, src_partition bigint")
    lacking = spark.createDataFrame(
        [("n1", "/a", at(at_s))], "node string, subject string, ts timestamp"
    )
    topics = {("n1", TOPIC, part): us(second) for part, second in parts.items()}
    changed = {TOPIC: TopicPartitions(count, us(CHANGED_S))}
    (row,) = with_reached(lacking, messages, ArchivedUntil({}, topics, changed)).collect()
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
    assert reached_after_a_change(spark, later, SETTLED_S - 50, behind) == (False, BEHIND)


def test_when_producers_know_of_a_change_the_newest_message_shows_the_partition(spark: Any) -> None:
    seen = [(-5, 0), (SETTLED_S + 5, 1)]
    parts = {0: -5, 1: SETTLED_S + 5}
    assert reached_after_a_change(spark, seen, SETTLED_S + 3, parts) == (True, None)
    assert reached_after_a_change(spark, seen, SETTLED_S + 9, parts) == (False, BEHIND)


def test_without_a_later_message_each_partition_that_there_is_counts(spark: Any) -> None:
    """A member may have no line in one of them: then nothing shows how far it is there."""
    seen, level = [(-5, 0)], {0: 20, 1: 20}
    assert reached_after_a_change(spark, seen, 10, level) == (True, None)
    assert reached_after_a_change(spark, seen, 10, level, count=3) == (False, UNPLACED)
    assert reached_after_a_change(spark, seen, 10, {0: 20, 1: 9}) == (False, UNPLACED)


def test_a_subject_that_stays_in_its_partition_is_judged_by_that(spark: Any) -> None:
    seen = [(-5, 0), (SETTLED_S + 5, 0)]
    parts = {0: SETTLED_S + 5}
    assert reached_after_a_change(spark, seen, 10, parts) == (True, None)


def test_a_change_of_another_topic_changes_nothing(spark: Any) -> None:
    here = {("n1", TOPIC, 0): us(20), ("n1", TOPIC, 1): us(20), ("n2", TOPIC, 0): us(20)}
    elsewhere = {"other.messages": TopicPartitions(3, us(10))}
    assert ("n1", "/unknown") in judged(spark, here, changed=elsewhere)
