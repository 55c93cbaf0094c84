"""The job `archive`: every line of a source's streams in Delta tables, exactly once.

Journals are read in this thread; of Kafka each stream is a query of Spark's.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mdserver.pipeline.archive.batches import Archived, ArchiveRun
from mdserver.pipeline.archive.journal import run_journals
from mdserver.pipeline.archive.kafka import KafkaArchive
from mdserver.pipeline.common import checkpoints
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.sources import JournalSource, KafkaSource, Source
from mdserver.pipeline.common.spark_errors import reason_of

POLL_S = 1.0


def run_archive(
    spark: SparkSession,
    source: Source | Sequence[JournalSource],
    folder: Path,
    tell: Callable[[Archived], None],
    *,
    once: bool,
    new_source: bool = False,
) -> None:
    """Archive for ever, or with `once` until all there is has been archived.

    The source may be several journals, one of each member of a cluster.

    `folder` is that of the tables; `tell` gets the report of each batch. With `new_source` the
    archive begins at the source's beginning, whatever was archived before. Raises PipelineError if
    the source has no known stream or is not the one of before, or if a batch fails; BusyError if
    another process archives into the folder.
    """
    run = ArchiveRun(spark, folder, tell, new_source)
    with checkpoints.alone(folder, "archive"):
        if not isinstance(source, KafkaSource):
            journals = [source] if isinstance(source, JournalSource) else source
            run_journals(run, journals, once=once)
            return
        archive = KafkaArchive(run, source)
        queries = archive.start(once=once)
        if not queries:
            raise PipelineError(
                "there is nothing to archive: the source has none of the known streams"
            )
        try:
            while any(query.isActive for query in queries):
                _check(queries, archive.failures)
                time.sleep(POLL_S)  # Spark's own wait cannot be interrupted by Ctrl-C
            _check(queries, archive.failures)
        finally:
            for query in queries:
                query.stop()


def _check(queries: Sequence[StreamingQuery], failures: Mapping[str, str]) -> None:
    """Raise PipelineError if a query has failed.

    The job then ends as a whole, and not stream by stream.
    """
    for query in queries:
        if not query.isActive:
            failure = failures.get(query.name) or query.exception()
            if failure is not None:
                raise PipelineError(f"archiving {query.name} failed: {reason_of(failure)}")
