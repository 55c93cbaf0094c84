"""Access to the archive: as Spark frames for jobs, and without a JVM for everything else."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from mdserver.pipeline.common import delta, parquet, places, schema
from mdserver.pipeline.common.places import Tables
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.rewrite import files_of

HISTORY = """
select epoch, seq, content, text, compressed, fields, ts_server
from messages where subject = '{subject}' order by epoch, seq
"""


def exists(tables: Tables, name: str) -> bool:
    """Return whether the archive has this table."""
    return DeltaTable.is_deltatable(str(tables / name))


def opened(tables: Tables, name: str) -> DeltaTable:
    """Return the table. Raises PipelineError if it does not exist, or what `delta.opened` does."""
    if not exists(tables, name):
        raise PipelineError(f"{tables} has no table {name}: run `mdserver pipeline archive` first")
    return delta.opened(tables, name)


def files_within(
    tables: Tables, name: str, within: Mapping[str, tuple[Any, Any]] | None = None
) -> list[str]:
    """Return the files of the table's present version that may have rows between the bounds.

    `within` has the least and the greatest value of columns, both included; times have a time zone.
    The paths are relative to the table. Raises what `opened` does.
    """
    return [
        file.path
        for file in files_of(opened(tables, name))
        if all(
            file.may_have(column, _before(least), greatest)
            for column, (least, greatest) in (within or {}).items()
        )
    ]


def frame(
    spark: SparkSession,
    tables: Tables,
    name: str,
    within: Mapping[str, tuple[Any, Any]] | None = None,
) -> DataFrame:
    """Return the table's present version as a frame.

    `within` has the least and the greatest value of columns, both included: only files that may
    have such rows are read, by the statistics in the table's log, and only such rows are returned.
    Times have a time zone.

    Spark reads the files that the log names, so it needs no jar for Delta. The partition column of
    `messages`, which files do not hold, follows from the time. `content_text` is the content of
    messages that were published as text, null for others. Tables in an object store are those of
    `places.at_hand`.
    """
    bounds = within or {}
    files = files_within(tables, name, bounds)
    rows = parquet.read(spark, name, places.paths(tables, name, files))
    for column, (least, greatest) in bounds.items():
        rows = rows.where(f.col(column).between(f.lit(least), f.lit(greatest)))
    if name == "messages":
        rows = rows.withColumn("dt", schema.day_of(f.col("ts_server")))
        rows = rows.withColumn("content_text", f.expr("if(text, cast(content as string), null)"))
    return rows


def _before(least: Any) -> Any:
    """Return a least value to compare with statistics, which may have times cut to milliseconds."""
    return least - dt.timedelta(milliseconds=1) if isinstance(least, dt.datetime) else least


def history(tables: Tables, subject: str) -> pa.Table:
    """Return the archived messages of one subject in order, read without a JVM.

    `content` is bytes; `content_text` is the same as text if it was published as text, else null.
    """
    # Arrow would read the files on threads of its own, through a file system in Python, and a
    # program that ends before them is aborted (apache/arrow #34314). DataFusion needs no Python.
    quoted = subject.replace("'", "''")
    found = pa.table(
        QueryBuilder()
        .register("messages", opened(tables, "messages"))
        .execute(HISTORY.format(subject=quoted))
        .read_all()
    )
    found = found.set_column(
        found.schema.get_field_index("content"), "content", found["content"].cast(pa.binary())
    )
    words = pc.if_else(found["text"], found["content"], pa.scalar(None, pa.binary()))
    return found.append_column("content_text", words.cast(pa.string()))
