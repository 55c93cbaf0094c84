"""Access to the archive: as Spark frames for jobs, and without a JVM for everything else."""

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from mdserver.pipeline.common import delta, schema
from mdserver.pipeline.common.places import Tables
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.rewrite import files_of

SPARK_TYPES: dict[pa.DataType, t.DataType] = {
    pa.string(): t.StringType(),
    pa.int64(): t.LongType(),
    pa.float64(): t.DoubleType(),
    pa.bool_(): t.BooleanType(),
    pa.binary(): t.BinaryType(),
    schema.TIME: t.TimestampType(),
    pa.map_(pa.string(), pa.string()): t.MapType(t.StringType(), t.StringType()),
}
HISTORY_COLUMNS = ["epoch", "seq", "content", "text", "compressed", "fields", "ts_server"]


def exists(tables: Tables, name: str) -> bool:
    """Return whether the archive has this table."""
    return DeltaTable.is_deltatable(str(tables / name))


def opened(tables: Tables, name: str) -> DeltaTable:
    """Return the table. Raises PipelineError if it does not exist, or what `delta.opened` does."""
    if not exists(tables, name):
        raise PipelineError(f"{tables} has no table {name}: run `mdserver pipeline archive` first")
    return delta.opened(tables, name)


def frame(
    spark: SparkSession,
    tables: Path,
    name: str,
    within: Mapping[str, tuple[Any, Any]] | None = None,
) -> DataFrame:
    """Return the table's present version as a frame.

    `within` has the least and the greatest value of columns, both included: only files that may
    have such rows are read, by the statistics in the table's log, and only such rows are returned.
    Times have a time zone.

    Spark reads the files that the log names, so it needs no jar for Delta. The partition column of
    `messages`, which files do not hold, follows from the time. `content_text` is the content of
    messages that were published as text, null for others.
    """
    found = opened(tables, name)
    bounds = within or {}
    uris = found.file_uris()
    if bounds:
        files = [
            file
            for file in files_of(found)
            if all(
                file.may_have(column, _before(least), greatest)
                for column, (least, greatest) in bounds.items()
            )
        ]
        uris = [str(tables / name / file.path) for file in files]
    rows = read(spark, name, uris)
    for column, (least, greatest) in bounds.items():
        rows = rows.where(f.col(column).between(f.lit(least), f.lit(greatest)))
    if name == "messages":
        rows = rows.withColumn("dt", schema.day_of(f.col("ts_server")))
        rows = rows.withColumn("content_text", f.expr("if(text, cast(content as string), null)"))
    return rows


def _before(least: Any) -> Any:
    """Return a least value to compare with statistics, which have times cut to milliseconds."""
    return least - dt.timedelta(milliseconds=1) if isinstance(least, dt.datetime) else least


def read(spark: SparkSession, name: str, files: Sequence[str]) -> DataFrame:
    """Return the rows of some files of a table, with the columns that files hold."""
    partitions = schema.PARTITIONS.get(name, [])
    columns = [field for field in schema.TABLES[name] if field.name not in partitions]
    row = t.StructType([t.StructField(field.name, SPARK_TYPES[field.type]) for field in columns])
    if not files:
        return spark.createDataFrame([], row)
    return spark.read.schema(row).option("recursiveFileLookup", "true").parquet(*files)


def history(tables: Tables, subject: str) -> pa.Table:
    """Return the archived messages of one subject in order, read without a JVM.

    `content` is bytes; `content_text` is the same as text if it was published as text, else null.
    """
    found = opened(tables, "messages").to_pyarrow_table(
        columns=HISTORY_COLUMNS,
        filters=[("subject", "=", subject)],
    )
    words = pc.if_else(found["text"], found["content"], pa.scalar(None, pa.binary()))
    found = found.append_column("content_text", words.cast(pa.string()))
    return found.sort_by([("epoch", "ascending"), ("seq", "ascending")])
