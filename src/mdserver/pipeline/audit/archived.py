"""How far the archive has come with each member's journal, and so what can be judged yet.

Lines of one journal have an order. If a line of a member is archived, so are all before it. A topic
has an order within each partition only: of a message that the archive lacks, it has come so far if
it has a later line of the same member from the partition of the message's subject. Which partition
that is shows in other messages of the subject; without any, all partitions in which the member has
lines have to be that far. A member of which both journal and topics were archived has come as far
as the one that is ahead.

If a topic got partitions, or there are other topics, a subject may be in another partition than
before. Producers notice that late, each at another time, so for a while a subject's messages are in
either (`MARGIN_S`). The newest message from after that time shows the partition in which the
subject is now, and what was acknowledged later is judged by that alone. What was acknowledged
before is judged by the old partitions of the subject as well: those in which it was seen, or all
that there were if it was not seen before. A line of any member from after that time shows that such
a partition was read beyond it, and that no message of the subject is still to be read from there:
producers write it elsewhere by then. It shows nothing in the subject's present partition, to which
a member's lines may come late. If there is no such message, the member has to be that far in each
partition that there is: a message may be the first one in its new partition.
"""

from collections.abc import Mapping

from attrs import field, frozen
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from mdserver.journal.rows import NS_PER_US
from mdserver.limits import NS_PER_S
from mdserver.pipeline.common.checkpoints import TopicPart, TopicPartitions

MARGIN_S = 600
"""How long after a change of partitions producers may write to the old ones. Kafka's clients ask
for partitions every five minutes (`metadata.max.age.ms`), and again if brokers did not answer;
and clocks of members may differ from that of the archive."""
MARGIN_US = MARGIN_S * NS_PER_S // NS_PER_US
BEHIND = "acknowledged, and the archive has not come so far"
UNPLACED = (
    "acknowledged, and partitions of its topic changed: no later message of the subject shows in"
    " which one it is; let the archive catch up, and publish to the subject if that is not enough"
)
OLD_PART = (
    "acknowledged, and may be in an old partition of its subject, of which nothing is archived from"
    " after partitions changed; let the archive catch up, and publish to subjects of the old"
    " partition if that is not enough"
)


@frozen
class ArchivedUntil:
    """The times (us) up to which members' journals are archived, as the archive noted them.

    `journals` is by member, for journals that were archived together. Their rows do not show it if
    other journals brought the messages before. `topics` is by member, topic and partition.
    `changed` has the topics whose number of partitions has changed.
    """

    journals: Mapping[str, int] = field(factory=dict)
    topics: Mapping[TopicPart, int] = field(factory=dict)
    changed: Mapping[str, TopicPartitions] = field(factory=dict)


def with_reached(lacking: DataFrame, messages: DataFrame, until: ArchivedUntil) -> DataFrame:
    """Return rows with `node`, `subject`, `ts`, and two columns more.

    `reached` is whether the archive came that far, and `waiting` says why not, null otherwise. A
    member without any archived line, and that is in no topic, has come to its end.
    """
    told: Column = f.lit(None).cast("timestamp")
    for node, us in until.journals.items():
        told = f.when(f.col("node") == node, f.timestamp_micros(f.lit(us))).otherwise(told)
    newest = {"in_any": f.max("ts_server")}
    if until.topics:
        newest["in_journal"] = f.max(f.when(f.col("src_kind") == "journal", f.col("ts_server")))
    lines = messages.groupBy("node").agg(*(each.alias(name) for name, each in newest.items()))
    found = lacking.join(lines, "node", "left")
    found = found.withColumns({name: f.greatest(name, told) for name in newest})
    by_journal = f.col("in_any").isNull() | (f.col("ts") <= f.col("in_any"))
    if not until.topics:
        return _judged(found, lacking, by_journal, f.lit(BEHIND))
    placed = _placed(found, messages, until)
    by_topics = f.coalesce(f.col("ts") <= f.greatest("there", "in_journal"), f.lit(False))
    reached = f.when(f.col("in_topics").isNotNull(), by_topics).otherwise(by_journal)
    unplaced = f.lit(bool(until.changed)) & f.col("in_topics") & f.col("parts").isNull()
    waiting = f.when(unplaced, UNPLACED).when(f.col("ts") <= f.col("in_now"), OLD_PART)
    return _judged(placed, lacking, reached, waiting.otherwise(BEHIND))


def _judged(found: DataFrame, lacking: DataFrame, reached: Column, waiting: Column) -> DataFrame:
    return found.select(
        *lacking.columns,
        reached.alias("reached"),
        f.when(~reached, waiting).alias("waiting"),
    )


def _placed(found: DataFrame, messages: DataFrame, until: ArchivedUntil) -> DataFrame:
    """Return rows with `in_topics`, `parts`, `there` and `in_now`.

    `parts` are the partitions in which the message may be, null if that is not known; `there` is
    how far the member is archived in all of those, or in all that there are; `in_now` is how far
    it is archived in the present partition of the subject.
    """
    here = messages.where("src_kind = 'kafka'").groupBy("subject")
    placed = found.join(f.broadcast(_in_all(messages, until)), "node", "left")
    since = [each.since_us for each in until.changed.values() if each.since_us is not None]
    if since:
        begun = f.timestamp_micros(f.lit(min(since)))
        over = f.timestamp_micros(f.lit(max(since) + MARGIN_US))
        part = f.col("src_partition")
        now = f.when(f.col("ts_server") > over, part)
        subjects = here.agg(
            f.max_by(now, f.when(now.isNotNull(), f.col("ts_server"))).alias("now"),
            f.collect_set(f.when(f.col("ts_server") <= begun, part)).alias("at_first"),
            f.collect_set(part).alias("ever"),
        )
        placed = placed.join(subjects, "subject", "left")
        either = f.array_union(f.array("now"), _old_parts())
        parts = f.when(f.col("ts") > over, f.array("now")).otherwise(either)
    else:
        subjects = here.agg(f.max_by("src_partition", "ts_server").alias("now"))
        placed = placed.join(subjects, "subject", "left")
        parts = f.array("now")
    placed = placed.withColumn("parts", f.when(f.col("now").isNotNull(), parts))
    # Of a partition in which the member has no line nothing is known.
    each = f.transform(
        "parts", lambda part: f.coalesce(f.try_element_at("by_part", part), f.lit(0))
    )
    in_parts = f.timestamp_micros(f.array_min(each))
    there = f.when(f.col("parts").isNull(), f.col("all_reached")).otherwise(in_parts)
    in_now = f.timestamp_micros(f.try_element_at("by_part", f.col("now")))
    return placed.withColumns({"there": there, "in_now": in_now})


def _old_parts() -> Column:
    """Return the partitions but the present one from which a message may still have to be read.

    Messages of earlier sources show numbers of partitions that say nothing of the present topics.
    """
    none = f.array().cast("array<bigint>")
    numbers = f.sequence(f.lit(0).cast("bigint"), f.col("before") - 1)
    all_old = f.when(f.col("before") > 0, numbers).otherwise(none)
    seen_before = f.exists("at_first", lambda part: part < f.col("before"))
    old = f.when(seen_before, f.array_intersect("ever", all_old)).otherwise(all_old)
    return f.array_except(old, "read_beyond")


def _in_all(messages: DataFrame, until: ArchivedUntil) -> DataFrame:
    """Return how far topics are archived of each member.

    Columns: node, in_topics, and

    - all_reached: how far all partitions are archived, null if the member has no line in a
      partition of a topic that has changed.
    - by_part: the time (us) of each partition. Rows of messages do not say their topic, so of
      topics that a member shares the one that is behind counts.
    - before: the number of partitions in which its subjects may have been before the change.
    - read_beyond: partitions of its topics that were read beyond the time of the change.
    """
    members: dict[str, dict[tuple[str, int], int]] = {}
    newest: dict[tuple[str, int], int] = {}
    for (node, topic, partition), us in until.topics.items():
        members.setdefault(node, {})[topic, partition] = us
        newest[topic, partition] = max(us, newest.get((topic, partition), us))
    since = [each.since_us for each in until.changed.values() if each.since_us is not None]
    over_us = max(since, default=0) + MARGIN_US
    most = max((each.before for each in until.changed.values()), default=0)
    rows = []
    for node, reached in members.items():
        topics = {topic for topic, _ in reached}
        changed = topics & until.changed.keys()
        whole = all(
            (topic, partition) in reached
            for topic in changed
            for partition in range(until.changed[topic].partitions)
        )
        least: dict[int, int] = {}
        for (_, partition), us in reached.items():
            least[partition] = min(us, least.get(partition, us))
        # A member may begin with a further topic that has no line of it yet.
        before = max((until.changed[topic].before for topic in changed), default=most)
        beyond = [
            partition
            for partition in range(before)
            if all(newest.get((topic, partition), 0) > over_us for topic in topics)
        ]
        rows.append((node, True, min(reached.values()) if whole else None, least, before, beyond))
    spark = messages.sparkSession
    columns = (
        "node string, in_topics boolean, us bigint, by_part map<bigint, bigint>, before bigint,"
        " read_beyond array<bigint>"
    )
    made = spark.createDataFrame(rows, columns)
    return made.withColumn("all_reached", f.timestamp_micros("us")).drop("us")
