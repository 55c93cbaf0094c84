"""How far the archive has come with each member's journal, and so what can be judged yet.

Lines of one journal have an order. If a line of a member is archived, so are all before it. A topic
has an order within each partition only: of a message that the archive lacks, it has come so far if
it has a later line of the same member from the partition of the message's subject. Which partition
that is shows in other messages of the subject; without any, all partitions in which the member has
lines have to be that far. A member of which both journal and topics were archived has come as far
as the one that is ahead.
"""

from collections.abc import Mapping

from attrs import field, frozen
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from mdserver.pipeline.common.checkpoints import TopicPart


@frozen
class ArchivedUntil:
    """The times (us) up to which members' journals are archived, as the archive noted them.

    `journals` is by member, for journals that were archived together. Their rows do not show it if
    other journals brought the messages before. `topics` is by member, topic and partition.
    """

    journals: Mapping[str, int] = field(factory=dict)
    topics: Mapping[TopicPart, int] = field(factory=dict)


def with_reached(lacking: DataFrame, messages: DataFrame, until: ArchivedUntil) -> DataFrame:
    """Return rows with `node`, `subject` and `ts`, and in `reached` whether the archive is so far.

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
    least = parts.groupBy("node").agg(f.min("part_reached").alias("all_reached"))
    partitions = (
        messages.where("src_kind = 'kafka'")
        .groupBy("subject")
        .agg(f.max_by("src_partition", "ts_server").alias("part"))
    )
    placed = found.join(partitions, "subject", "left").join(f.broadcast(least), "node", "left")
    placed = placed.join(f.broadcast(parts), ["node", "part"], "left")
    there = f.when(f.col("part").isNull(), f.col("all_reached")).otherwise(f.col("part_reached"))
    by_topics = f.coalesce(f.col("ts") <= f.greatest(there, "in_journal"), f.lit(False))
    of_topics = f.col("all_reached").isNotNull()
    reached = f.when(of_topics, by_topics).otherwise(by_journal)
    return placed.select(*lacking.columns, reached.alias("reached"))


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
