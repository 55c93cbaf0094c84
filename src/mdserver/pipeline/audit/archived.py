"""How far the archive has come with each member's journal, and so what can be judged yet.

Lines of one journal have an order. If a line of a member is archived, so are all before it. A topic
has an order within each partition only: of a message that the archive lacks, it has come so far if
it has a later line of the same member from the partition of the message's subject. Which partition
that is shows in other messages of the subject; without any, all partitions in which the member has
lines have to be that far. If a topic got partitions, or there are other topics, messages from
before that show nothing, and the member has to be that far in each partition that there is: a
message may be the first one in its new partition. A member of which both journal and topics were
archived has come as far as the one that is ahead.
"""

from collections.abc import Mapping

from attrs import field, frozen
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from mdserver.pipeline.common.checkpoints import TopicPart, TopicPartitions


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
    """Return rows with `node`, `subject`, `ts`, and `reached`: whether the archive came that far.

    A member without any archived line, and that is in no topic, has come to its end.
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
        return found.select(*lacking.columns, by_journal.alias("reached"))
    parts = _parts(messages, until.topics)
    least = _in_all(messages, until)
    since = [each.since_us for each in until.changed.values() if each.since_us is not None]
    here = messages.where("src_kind = 'kafka'")
    if since:
        here = here.where(f.col("ts_server") > f.timestamp_micros(f.lit(max(since))))
    partitions = here.groupBy("subject").agg(f.max_by("src_partition", "ts_server").alias("part"))
    placed = found.join(partitions, "subject", "left").join(f.broadcast(least), "node", "left")
    placed = placed.join(f.broadcast(parts), ["node", "part"], "left")
    there = f.when(f.col("part").isNull(), f.col("all_reached")).otherwise(f.col("part_reached"))
    by_topics = f.coalesce(f.col("ts") <= f.greatest(there, "in_journal"), f.lit(False))
    of_topics = f.col("in_topics").isNotNull()
    reached = f.when(of_topics, by_topics).otherwise(by_journal)
    return placed.select(*lacking.columns, reached.alias("reached"))


def _in_all(messages: DataFrame, until: ArchivedUntil) -> DataFrame:
    """Return how far all partitions are archived of each member: node, in_topics, all_reached.

    That is null if the member has no line in a partition of a topic that has changed.
    """
    members: dict[str, dict[tuple[str, int], int]] = {}
    for (node, topic, partition), us in until.topics.items():
        members.setdefault(node, {})[topic, partition] = us
    rows = []
    for node, reached in members.items():
        topics = {topic for topic, _ in reached}
        whole = all(
            (topic, partition) in reached
            for topic in topics & until.changed.keys()
            for partition in range(until.changed[topic].partitions)
        )
        rows.append((node, True, min(reached.values()) if whole else None))
    spark = messages.sparkSession
    made = spark.createDataFrame(rows, "node string, in_topics boolean, us bigint")
    return made.select("node", "in_topics", f.timestamp_micros("us").alias("all_reached"))


def _parts(messages: DataFrame, topics: Mapping[TopicPart, int]) -> DataFrame:
    """Return how far each partition is archived of each member: node, part, part_reached.

    Rows of messages do not say their topic. Of topics that a member shares, the one that is behind
    counts.
    """
    least: dict[tuple[str, int], int] = {}
    for (node, _, partition), us in topics.items():
        least[node, partition] = min(us, least.get((node, partition), us))
    rows = [(node, partition, us) for (node, partition), us in least.items()]
    spark = messages.sparkSession
    made = spark.createDataFrame(rows, "node string, part bigint, us bigint")
    return made.select("node", "part", f.timestamp_micros("us").alias("part_reached"))
