"""The archive of Kafka topics: one streaming query of Spark's for each stream.

Spark's checkpoint has the offsets of each batch, and numbers the batches. It repeats a batch with
the same number and the same records after a crash, and the table skips what it has. So numbers of
the checkpoint and of the table belong together: without the checkpoint Spark would begin with batch
0 again, which the table takes for one that it has.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from mdserver.journal.rows import NS_PER_US
from mdserver.pipeline.archive.batches import Archived, ArchiveRun, archive_batch
from mdserver.pipeline.common import checkpoints, delta, rows
from mdserver.pipeline.common.checkpoints import StreamCheckpoint
from mdserver.pipeline.common.delta import TableBatch
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.sources import KafkaSource
from mdserver.pipeline.common.spark_errors import reason_of
from mdserver.pipeline.common.spark_folders import SparkFolders, first_partitions


class KafkaArchive:
    """The streaming queries of a run, one for each stream, with the tables of one folder.

    `folders` is the place of their checkpoints.
    """

    def __init__(self, run: ArchiveRun, source: KafkaSource, folders: SparkFolders) -> None:
        self._run = run
        self._tables = run.tables
        self._source = source
        self._folders = folders
        self.failures: dict[str, str] = {}
        """The reasons of queries that failed, by their names."""

    def start(self, *, once: bool, trigger_s: float = 1.0) -> list[StreamingQuery]:
        """Start the queries and return them; with `once` each ends when it has caught up.

        `trigger_s` is the shortest time between two batches. Nothing is started until all streams
        are checked. Raises PipelineError if a topic is not the one of before, or if Spark's
        checkpoint is gone.
        """
        streams = [name for name in rows.STREAMS if self._source.has(name)]
        for table in (*(rows.STREAMS[name].table for name in streams), "quarantine"):
            delta.table(self._tables, table)
        opened = [
            checkpoints.opened(
                self._tables,
                name,
                self._source.identity(self._run.spark, name),
                new=self._run.new_source,
                spark=self._folders,
                held=self._run.held,
            )
            for name in streams
        ]
        for checkpoint in opened:
            target = delta.table(self._tables, rows.STREAMS[checkpoint.stream].table)
            if target.transaction_version(checkpoint.job) is not None:
                checkpoint.check_spark(self._folders)
        return [self._query(checkpoint, once, trigger_s) for checkpoint in opened]

    def _query(self, checkpoint: StreamCheckpoint, once: bool, trigger_s: float) -> StreamingQuery:
        writer = (
            self._source.stream(self._run.spark, checkpoint.stream)
            .writeStream.queryName(f"archive-{checkpoint.stream}")
            .option("checkpointLocation", self._folders.path(checkpoint.folder))
            .foreachBatch(self._sink(checkpoint))
        )
        if once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{trigger_s} seconds")
        return writer.start()

    def _sink(self, checkpoint: StreamCheckpoint) -> Callable[[DataFrame, int], None]:
        """Return the function that Spark calls with each batch of a stream."""
        stream = rows.STREAMS[checkpoint.stream]
        counts: dict[str, int] = {}

        def check() -> None:
            self._run.held()
            # Spark goes by names: a topic that was created again meanwhile is noticed only here.
            described = self._source.described(self._run.spark, stream.name)
            checkpoint.check(described.identity)
            counts.update(described.partitions)

        def sink(raw: DataFrame, batch_id: int) -> None:
            try:
                batch = TableBatch(checkpoint.job, batch_id, check, source=checkpoint.number)
                self._archive(raw, batch, checkpoint, counts)
            except Exception as error:
                # Spark cannot cope with a long text, such as a stack of Java within one of Python.
                reason = self.failures[f"archive-{stream.name}"] = reason_of(error)
                raise PipelineError(reason) from None

        return sink

    def _archive(
        self,
        raw: DataFrame,
        batch: TableBatch,
        checkpoint: StreamCheckpoint,
        counts: Mapping[str, int],
    ) -> None:
        """Archive a batch. Its check puts the numbers of partitions into `counts`."""
        began = time.monotonic()
        stream = rows.STREAMS[checkpoint.stream]
        # Several members may have written to the topics. Of plain records each is a message.
        shared = not self._source.plain
        written = archive_batch(raw, batch, stream, self._tables, shared=shared)
        if written.parts:
            known = checkpoint.reached(self._tables)
            later = {part: max(us, known.get(part, 0)) for part, us in written.parts.items()}
            self._run.held()
            # Clocks of members may be ahead of this one.
            newest_us = max(time.time_ns() // NS_PER_US, *later.values())
            first = partial(first_partitions, self._folders, checkpoint.folder)
            checkpoint.note_partitions(self._tables, counts, newest_us, first)
            checkpoint.note_reached(self._tables, known | later)
        seconds = time.monotonic() - began
        self._run.done(
            Archived(
                stream.name,
                batch.number,
                written.rows,
                written.bad,
                seconds,
                lag_s=written.lag_s(),
            )
        )
