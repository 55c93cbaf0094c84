"""Where rows come from: sealed journal segments, or Kafka topics. Both give the same columns.

A raw frame has `value` (one line of JSON as text), `ts_broker`, `src_kind`, `src_partition`
(segment number or Kafka partition) and `src_pos` (Kafka offset; null in the journal, where history,
subject, epoch and seq name a row).
"""

from collections.abc import Sequence
from pathlib import Path

from attrs import frozen
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from mdserver.pipeline import tail

SEGMENT_NUMBER = r"seg-(\d+)\.jsonl"


@frozen
class JournalSource:
    """The sealed segments of a journal folder that holds one folder a stream."""

    folder: Path
    files_per_batch: int = 16

    def stream(self, spark: SparkSession, stream: str) -> DataFrame:
        """The stream's lines, as they are sealed."""
        reader = spark.readStream.format("text").option("maxFilesPerTrigger", self.files_per_batch)
        return self._raw(reader.option("pathGlobFilter", "*.jsonl").load(self._path(stream)))

    def follow(self, spark: SparkSession, stream: str) -> DataFrame:
        """The stream's lines as they are written, also those of the open segment."""
        spark.dataSource.register(tail.JournalTail)
        lines = spark.readStream.format(tail.NAME).option("path", self._path(stream)).load()
        return lines.select(
            "value",
            f.lit(None).cast("timestamp").alias("ts_broker"),
            f.lit("journal").alias("src_kind"),
            "src_partition",
            f.lit(None).cast("bigint").alias("src_pos"),
        )

    def batch(self, spark: SparkSession, stream: str) -> DataFrame:
        """All sealed lines there are now."""
        reader = spark.read.format("text").option("pathGlobFilter", "*.jsonl")
        return self._raw(reader.load(self._path(stream)))

    def has(self, stream: str) -> bool:
        """Whether the journal has this stream at all."""
        return (self.folder / stream).is_dir()

    def _path(self, stream: str) -> str:
        return str(self.folder / stream)

    @staticmethod
    def _raw(lines: DataFrame) -> DataFrame:
        number = f.regexp_extract(f.col("_metadata.file_name"), SEGMENT_NUMBER, 1)
        return lines.select(
            "value",
            f.lit(None).cast("timestamp").alias("ts_broker"),
            f.lit("journal").alias("src_kind"),
            number.cast("bigint").alias("src_partition"),
            f.lit(None).cast("bigint").alias("src_pos"),
        )


@frozen
class KafkaSource:
    """Topics that hold journal lines as record values: `mdserver.<stream>` unless named."""

    servers: str
    topics: Sequence[str]
    records_per_batch: int = 500_000

    def stream(self, spark: SparkSession, stream: str) -> DataFrame:
        """The stream's records from the beginning of its topics."""
        reader = spark.readStream.format("kafka").options(**self._options(stream))
        return self._raw(reader.load())

    def follow(self, spark: SparkSession, stream: str) -> DataFrame:
        """The same: records are there as soon as they are written."""
        return self.stream(spark, stream)

    def batch(self, spark: SparkSession, stream: str) -> DataFrame:
        """All records there are now."""
        return self._raw(spark.read.format("kafka").options(**self._options(stream)).load())

    def has(self, stream: str) -> bool:
        """Whether a topic of this stream was named."""
        return bool(self._topics(stream))

    def _topics(self, stream: str) -> list[str]:
        return [topic for topic in self.topics if topic.rsplit(".", 1)[-1] == stream]

    def _options(self, stream: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": ",".join(self._topics(stream)),
            "startingOffsets": "earliest",
            "failOnDataLoss": "true",
            "maxOffsetsPerTrigger": str(self.records_per_batch),
            # The default makes each batch wait half a second at the end of a partition.
            "kafka.fetch.max.wait.ms": "20",
        }

    @staticmethod
    def _raw(records: DataFrame) -> DataFrame:
        return records.select(
            f.col("value").cast("string").alias("value"),
            f.col("timestamp").alias("ts_broker"),
            f.lit("kafka").alias("src_kind"),
            f.col("partition").cast("bigint").alias("src_partition"),
            f.col("offset").alias("src_pos"),
        )


Source = JournalSource | KafkaSource
