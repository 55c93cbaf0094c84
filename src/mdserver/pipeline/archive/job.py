"""The job `archive`: every line of a source's streams in Delta tables, exactly once.

Journals are read in this thread; of Kafka each stream is a query of Spark's.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mdserver.pipeline.archive.batches import Archived, ArchiveRun
from mdserver.pipeline.archive.journal import run_journals
from mdserver.pipeline.archive.kafka import KafkaArchive
from mdserver.pipeline.common import checkpoints, session, spark_folders
from mdserver.pipeline.common import shipped as shipped_streams
from mdserver.pipeline.common.object_store import FolderStore, ObjectStore
from mdserver.pipeline.common.places import Tables
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.sources import JournalSource, KafkaSource, ShippedSource, Source
from mdserver.pipeline.common.spark_errors import reason_of

POLL_S = 1.0
STORE_POLL_S = 10.0
"""The pause between two looks into an object store, which has a price for each request."""


def run_archive(
    spark: SparkSession,
    source: Source | Sequence[JournalSource],
    folder: Tables,
    tell: Callable[[Archived], None],
    *,
    once: bool,
    new_source: bool = False,
    shipped: ObjectStore | None = None,
    spark_place: Path | str | None = None,
) -> None:
    """Archive for ever, or with `once` until all there is has been archived.

    The source may be several journals, one of each member of a cluster, and those in a place that
    they were `shipped` to.

    `folder` is that of the tables; `tell` gets the report of each batch. With `new_source` the
    archive begins at the source's beginning, whatever was archived before. Of Kafka, `spark_place`
    is the folder or the URI of Spark's checkpoints; None if they are beside the tables, which are
    in a folder then. Raises PipelineError if the source has no known stream or is not the one of
    before, or if a batch fails; BusyError if another process archives into the folder.
    """
    session.check_place(folder)
    with checkpoints.alone(folder, "archive") as held:
        run = ArchiveRun(spark, folder, tell, new_source, held)
        if not isinstance(source, KafkaSource):
            journals = [source] if isinstance(source, JournalSource) else source
            if shipped is None:
                run_journals(run, journals, once=once)
                return
            shipped.check()
            find = partial(_shipped_to, shipped)
            trigger_s = POLL_S if isinstance(shipped, FolderStore) else STORE_POLL_S
            run_journals(run, journals, find, once=once, trigger_s=trigger_s)
            return
        place = checkpoints.place_of(folder, spark_place)
        archive = KafkaArchive(run, source, spark_folders.opened(spark, place))
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


def _shipped_to(store: ObjectStore) -> list[ShippedSource]:
    """Return the streams that there are in a place."""
    return [
        ShippedSource(each, remote=session.submitted()) for each in shipped_streams.found(store)
    ]


def _check(queries: Sequence[StreamingQuery], failures: Mapping[str, str]) -> None:
    """Raise PipelineError if a query has failed.

    The job then ends as a whole, and not stream by stream.
    """
    for query in queries:
        if not query.isActive:
            failure = failures.get(query.name) or query.exception()
            if failure is not None:
                raise PipelineError(f"archiving {query.name} failed: {reason_of(failure)}")
