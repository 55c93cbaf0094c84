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
from collections.abc import Iterator

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from mdserver.pipeline.common import places
from mdserver.pipeline.common import tables as archive
from mdserver.pipeline.common.places import Tables
from mdserver.pipeline.common.rewrite import files_of

SAME_MESSAGE = ["history", "subject", "epoch", "seq", "crc"]
"""The columns in which rows of the same message are equal, and of others are not."""
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
CUT_US = 1_000
"""Delta's log may have times cut to milliseconds."""


@contextlib.contextmanager
def one_row_each(messages: DataFrame, tables: Tables) -> Iterator[DataFrame]:
    """Yield those of the messages that are not in the table yet, each once.

    The frame can be used until the end of the block. No other process adds messages meanwhile.
    """
    found = messages.persist()
    with contextlib.ExitStack() as stack:
        stack.callback(found.unpersist)
        placed = found.where("seq > 0")
        times = placed.agg(
            f.unix_micros(f.min("ts_pub")).alias("first"),
            f.unix_micros(f.max("ts_pub")).alias("last"),
            f.count_if(f.col("ts_pub").isNull()).alias("untimed"),
            f.count("*").alias("rows"),
        ).first()
        assert times is not None
        files = files_of(archive.opened(tables, "messages")) if times["rows"] else []
        if not times["untimed"] and times["first"] is not None:
            first, last = (
                EPOCH + dt.timedelta(microseconds=us)
                for us in (times["first"] - CUT_US, times["last"])
            )
            files = [file for file in files if file.may_have("ts_pub", first, last)]
        once = placed.dropDuplicates(SAME_MESSAGE)
        if files:
            named = places.readable(tables, "messages", [file.path for file in files])
            paths = stack.enter_context(named)
            known = archive.read(messages.sparkSession, "messages", paths).select(*SAME_MESSAGE)
            once = once.join(known, SAME_MESSAGE, "left_anti")
        yield once.unionByName(found.where("seq <= 0")).select(*messages.columns)
