"""One row for each message, although several members of a cluster journal it.

Every member writes a row for each message that it learns is committed, and a message is committed
at one place: history, subject, epoch and seq. Its checksum (`crc`) is over subject, epoch, seq and
content, which are the same at every member. So two rows with the same place and checksum are of the
same message, and the one that is archived first stays. If members disagree about the content of a
place, which is a fault, all their rows stay as evidence.

Rows of a message have the time of its publication, which the first member gave it, so only files of
the table that have such times are compared with a batch.

Messages without a place (seq 0) are not compared.
"""

import contextlib
import datetime as dt
from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from mdserver.pipeline.common import parquet, places
from mdserver.pipeline.common import tables as archive
from mdserver.pipeline.common.checkpoints import TopicPart
from mdserver.pipeline.common.places import Tables

SAME_MESSAGE = ["history", "subject", "epoch", "seq", "crc"]
"""The columns in which rows of the same message are equal, and of others are not."""
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
PARTS_MAX = 10_000
"""Of more members, times partitions, the times are not told apart. No cluster has so many."""


@frozen
class NewMessages:
    """Messages of a batch that the table does not have yet, each once.

    `reached` is the time of the last row of each member in the batch (us); of topics `parts` has
    it, for each partition.
    """

    rows: DataFrame
    reached: Mapping[str, int]
    parts: Mapping[TopicPart, int]


@contextlib.contextmanager
def one_row_each(messages: DataFrame, tables: Tables) -> Iterator[NewMessages]:
    """Yield those of the messages that are not in the table yet, each once.

    The frame can be used until the end of the block. No other process adds messages meanwhile.
    """
    found = messages.persist()
    with contextlib.ExitStack() as stack:
        stack.callback(found.unpersist)
        is_placed = f.col("seq") > 0
        # That of a journal is the number of a segment.
        partition = f.when(f.col("src_topic").isNotNull(), f.col("src_partition")).alias("part")
        members = (
            found.groupBy("node", "src_topic", partition)
            .agg(
                f.unix_micros(f.min(f.when(is_placed, f.col("ts_pub")))).alias("first"),
                f.unix_micros(f.max(f.when(is_placed, f.col("ts_pub")))).alias("last"),
                f.count_if(is_placed & f.col("ts_pub").isNull()).alias("untimed"),
                f.count_if(is_placed).alias("rows"),
                f.unix_micros(f.max("ts_server")).alias("reached"),
            )
            .limit(PARTS_MAX + 1)
            .collect()
        )
        placed = found.where(is_placed)
        once = placed.dropDuplicates(SAME_MESSAGE)
        files = _to_compare(members, tables)
        if files:
            paths = stack.enter_context(places.readable(tables, "messages", files))
            known = parquet.read(messages.sparkSession, "messages", paths).select(*SAME_MESSAGE)
            once = once.join(known, SAME_MESSAGE, "left_anti")
        rows = once.unionByName(found.where(~is_placed)).select(*messages.columns)
        named = [each for each in members if each["node"] is not None]
        yield NewMessages(
            rows.drop("src_topic"),
            {each["node"]: each["reached"] for each in named if each["src_topic"] is None},
            {
                (each["node"], each["src_topic"], each["part"]): each["reached"]
                for each in named
                if each["src_topic"] is not None
            },
        )


def _to_compare(members: Sequence[Row], tables: Tables) -> list[str]:
    """Return the files of the table that may have messages of a batch."""
    if not any(each["rows"] for each in members):
        return []
    timed = [each for each in members if each["first"] is not None]
    if timed and len(members) <= PARTS_MAX and not any(each["untimed"] for each in members):
        first, last = (
            EPOCH + dt.timedelta(microseconds=us)
            for us in (min(each["first"] for each in timed), max(each["last"] for each in timed))
        )
        return archive.files_within(tables, "messages", {"ts_pub": (first, last)})
    return archive.files_within(tables, "messages")
