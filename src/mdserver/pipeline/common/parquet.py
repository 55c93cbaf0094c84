"""Parquet files of tables as frames: always with the columns of the table, never of the files.

Without a schema Spark takes the columns of the first file. Those that a later release added would
then be lost if that file is older than the others.
"""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from mdserver.pipeline.common import schema

SPARK_TYPES: dict[pa.DataType, t.DataType] = {
    pa.string(): t.StringType(),
    pa.int64(): t.LongType(),
    pa.float64(): t.DoubleType(),
    pa.bool_(): t.BooleanType(),
    pa.binary(): t.BinaryType(),
    schema.TIME: t.TimestampType(),
    pa.map_(pa.string(), pa.string()): t.MapType(t.StringType(), t.StringType()),
}


def read(spark: SparkSession, name: str, files: Sequence[str]) -> DataFrame:
    """Return the rows of some files of a table, with the columns that files hold.

    Columns that a file of an earlier release lacks are null. Values of partitions, which are in the
    paths alone, are no columns.
    """
    partitions = schema.PARTITIONS.get(name, [])
    columns = [field for field in schema.TABLES[name] if field.name not in partitions]
    row = t.StructType([t.StructField(field.name, SPARK_TYPES[field.type]) for field in columns])
    if not files:
        return spark.createDataFrame([], row)
    return spark.read.schema(row).option("recursiveFileLookup", "true").parquet(*files)
