"""The sources of rows: segments of a journal, or topics of Kafka. Both give the same columns.

A raw frame has `value` (one line of JSON as text), `ts_broker`, `src_kind`, `src_topic` (Kafka's
topic; null in the journal), `src_partition` (the number of the segment, or Kafka's partition, which
is only unique within its topic) and `src_pos` (Kafka's offset; null in the journal, where history,
subject, epoch and seq identify a row). A row of a journal without a value stands for
the segments from `src_partition` to `src_pos`, which are missing.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen
from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from mdserver.journal import segments
from mdserver.limits import MB
from mdserver.pipeline.common import plain, tail
from mdserver.pipeline.common.checkpoints import PLACE
from mdserver.pipeline.common.kafka_errors import kafka_reason
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.shipped import ShippedStream
from mdserver.pipeline.common.stream_segments import (
    FolderSegments,
    StreamSegments,
    of_shipped,
)

BATCH_BYTES = 512 * MB
"""The most bytes of a batch of the archive, which has one segment at least."""
API_TIMEOUT_MS = "30000"
TIMED_EVERY = 16
"""Of so many records of a partition one is read for its time, even if no rule watches it."""
SEGMENT_NUMBER = (5, 12)
"""The place of the number in the name of a segment's file, counted from 1, and its digits."""


def name_of(stream: str) -> str:
    """Return the name of the part of a source's identity that is a stream's identifier."""
    return f"the stream {stream}"


@frozen
class JournalSource:
    """The segments of a journal, whose folder holds one folder for each stream."""

    folder: Path
    batch_bytes: int = BATCH_BYTES

    def __str__(self) -> str:
        return str(self.folder)

    def streams(self, names: Iterable[str]) -> list[str]:
        """Return those of the streams that the journal has."""
        return [name for name in names if self.has(name)]

    def segments(self, stream: str) -> StreamSegments:
        """Return the sealed segments of a stream."""
        return FolderSegments(self.folder / stream)

    def follow(self, spark: SparkSession, stream: str) -> DataFrame:
        """Return the stream's lines as they are written, also those of the open segment.

        A column `last` is true for the last one of each segment, or of what is read of it.
        """
        spark.dataSource.register(tail.JournalTail)
        lines = spark.readStream.format(tail.NAME).option("path", self._path(stream)).load()
        return lines.select(
            "value",
            f.lit(None).cast("timestamp").alias("ts_broker"),
            f.lit("journal").alias("src_kind"),
            f.lit(None).cast("string").alias("src_topic"),
            "src_partition",
            "src_pos",
            "last",
        )

    def has(self, stream: str) -> bool:
        """Return whether the journal has this stream."""
        return (self.folder / stream).is_dir()

    def done(self, stream: str, segment: int, source: Mapping[str, str]) -> None:
        """Note in the journal that the archive no longer needs this segment and those before it.

        `source` is the identity of what was read. The server may then delete them. If the folder
        cannot be written to, only the limits of the server decide how long they are kept.
        """
        if segment:
            identifier = source.get(name_of(stream))
            with contextlib.suppress(OSError):
                segments.set_position(self.folder / stream, "archive", segment, identifier)

    def identity(self, spark: SparkSession, stream: str) -> dict[str, str]:  # noqa: ARG002
        """Return what tells this stream from another one in the same place.

        A stream that a server of an earlier version made has no identifier until a newer server
        opens it. Until then only its folder identifies it.
        """
        identifier = self.identifier(stream)
        found = {PLACE: str(self.folder)}
        return found if identifier is None else found | {name_of(stream): identifier}

    def identifier(self, stream: str) -> str | None:
        """Return the identifier of a stream, None if it has none yet."""
        known = segments.identified(self.folder / stream)
        return None if known is None else known.identifier

    def last(self, stream: str, read: int = 0) -> int | None:  # noqa: ARG002
        """Return the number of the stream's last segment, None if `stream.id` does not say it."""
        known = segments.identified(self.folder / stream)
        return None if known is None else known.number

    def _path(self, stream: str) -> str:
        return str(self.folder / stream)


@frozen
class ShippedSource:
    """One stream of a member's journal, in the place that `mdserver ship` sent it to.

    With `remote` Spark reads it from there, and not copies of it.
    """

    of: ShippedStream
    batch_bytes: int = BATCH_BYTES
    remote: bool = False

    def __str__(self) -> str:
        return str(self.of)

    def streams(self, names: Iterable[str]) -> list[str]:
        """Return the stream, if it is one of these."""
        return [name for name in names if name == self.of.stream]

    def segments(self, stream: str) -> StreamSegments:  # noqa: ARG002
        """Return the segments of the stream."""
        return of_shipped(self.of, remote=self.remote)

    def done(self, stream: str, segment: int, source: Mapping[str, str]) -> None:
        """Do nothing: the place keeps segments as long as its owner says."""

    def identity(self, spark: SparkSession, stream: str) -> dict[str, str]:  # noqa: ARG002
        """Return the stream's identifier, which is part of its name there."""
        return {name_of(stream): self.of.identifier}

    def identifier(self, stream: str) -> str | None:  # noqa: ARG002
        """Return the stream's identifier."""
        return self.of.identifier

    def last(self, stream: str, read: int = 0) -> int | None:  # noqa: ARG002
        """Return the greatest number of a segment, None if there is none.

        If there is one from `read` on, those before it are not listed.
        """
        return self.of.last(read) or self.of.last(0)


def segment_lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the lines of sealed segments, whose files have the names of segments."""
    # By default Spark also ends a line at a carriage return.
    lines = spark.read.option("lineSep", "\n").text(list(paths))
    number = f.substring(f.col("_metadata.file_name"), *SEGMENT_NUMBER)
    return lines.select(
        "value",
        f.lit(None).cast("timestamp").alias("ts_broker"),
        f.lit("journal").alias("src_kind"),
        f.lit(None).cast("string").alias("src_topic"),
        number.cast("bigint").alias("src_partition"),
        f.lit(None).cast("bigint").alias("src_pos"),
    )


@frozen
class DescribedTopics:
    """Topics as Kafka describes them: what identifies them, and their numbers of partitions."""

    identity: dict[str, str]
    partitions: dict[str, int]


@frozen
class KafkaSource:
    """Topics whose record values are lines of the journal.

    The part after the last dot of a topic's name is its stream. With `plain` each record is a
    message itself, as for members whose log is Kafka, and all topics are of the stream of messages.
    `settings` are further ones of the Kafka client, such as `security.protocol`.
    `records_per_batch` is None in real-time mode, which has no batches.
    """

    servers: str
    topics: Sequence[str]
    settings: Mapping[str, str] = field(factory=dict, repr=False)
    records_per_batch: int | None = 500_000
    plain: bool = False

    def stream(self, spark: SparkSession, stream: str) -> DataFrame:
        """Return the stream's records, from the beginning of its topics."""
        records = spark.readStream.format("kafka").options(**self._options(stream)).load()
        if not self.plain:
            return self._raw(records, f.col("value").cast("string"))
        known = self.identity(spark, stream)
        histories = {topic: known[_identified(topic)] for topic in self._topics(stream)}
        return self._raw(records, plain.lines(records, histories))

    def follow(self, spark: SparkSession, stream: str) -> DataFrame:
        """Return the same as `stream`: Kafka has records as soon as they are written.

        What is the last record is not known, so `last` is true for every `TIMED_EVERY`th of a
        partition.
        """
        is_timed = f.col("src_pos") % TIMED_EVERY == 0
        return self.stream(spark, stream).withColumn("last", is_timed)

    def has(self, stream: str) -> bool:
        """Return whether one of the topics is of this stream."""
        return bool(self._topics(stream))

    def identity(self, spark: SparkSession, stream: str) -> dict[str, str]:
        """Return what tells these topics from others of the same names: Kafka's identifiers.

        Raises PipelineError as `described` does.
        """
        return self.described(spark, stream).identity

    def described(self, spark: SparkSession, stream: str) -> DescribedTopics:
        """Return what Kafka says of the stream's topics.

        Raises PipelineError if Kafka does not answer, or refuses, or lacks one of the topics, or
        if its client can do nothing with the settings.
        """
        jvm: Any = spark._jvm  # the connector's own client: nothing else to install or configure
        settings = jvm.java.util.HashMap()
        for name, value in self._client().items():
            settings.put(name, value)
        topics = jvm.java.util.ArrayList()
        for topic in self._topics(stream):
            topics.add(topic)
        admin: Any = None
        try:
            # It looks at all settings, and into the stores of keys, before it asks anybody.
            admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
            cluster = admin.describeCluster().clusterId().get()
            described = admin.describeTopics(topics).allTopicNames().get()
            identity = {"the Kafka cluster": cluster}
            for topic in topics:
                identity[_identified(topic)] = described[topic].topicId().toString()
            counts = {str(topic): described[topic].partitions().size() for topic in topics}
            return DescribedTopics(identity, counts)
        except Py4JJavaError as error:
            names = ", ".join(self._topics(stream))
            reason = kafka_reason(error)
            raise PipelineError(f"Kafka at {self.servers}, topics {names}: {reason}") from None
        finally:
            if admin is not None:
                admin.close()

    def _client(self) -> dict[str, str]:
        """Return the settings of Kafka's client, with a bound on the time of each request."""
        return {"default.api.timeout.ms": API_TIMEOUT_MS, **self.settings} | {
            "bootstrap.servers": self.servers
        }

    def _topics(self, stream: str) -> list[str]:
        streams = {t: "messages" if self.plain else t.rsplit(".", 1)[-1] for t in self.topics}
        return [topic for topic in self.topics if streams[topic] == stream]

    def _options(self, stream: str) -> dict[str, str]:
        most = {"maxOffsetsPerTrigger": str(self.records_per_batch)}
        return {
            **(most if self.records_per_batch is not None else {}),
            **{f"kafka.{name}": value for name, value in self._client().items()},
            # What a producer did not finish, such as `ship` that was killed, is not there.
            "kafka.isolation.level": "read_committed",
            "subscribe": ",".join(self._topics(stream)),
            "startingOffsets": "earliest",
            "failOnDataLoss": "true",
            **({"includeHeaders": "true"} if self.plain else {}),
            # With the default each batch waits half a second at the end of a partition.
            "kafka.fetch.max.wait.ms": "20",
        }

    @staticmethod
    def _raw(records: DataFrame, line: Column) -> DataFrame:
        return records.select(
            line.alias("value"),
            f.col("timestamp").alias("ts_broker"),
            f.lit("kafka").alias("src_kind"),
            f.col("topic").alias("src_topic"),
            f.col("partition").cast("bigint").alias("src_partition"),
            f.col("offset").alias("src_pos"),
        )


def _identified(topic: str) -> str:
    """Return the name of the part of a source's identity that is a topic's identifier."""
    return f"topic {topic}"


MemberSource = JournalSource | ShippedSource
"""Streams of one member's journal, wherever their segments are."""
Source = JournalSource | KafkaSource
