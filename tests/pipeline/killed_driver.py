"""Archives a journal, or a topic, in a process of its own that ends itself at a named point.

    python killed_driver.py POINT JOURNAL TABLES
    python killed_driver.py POINT kafka://SERVERS/TOPIC TABLES CHECKPOINTS

The points are set here, around the functions of the product, which has no switch for them. The
process ends with status 0 only if it never came to its point.
"""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deltalake import DeltaTable

from mdserver.pipeline.archive import job as archive_job
from mdserver.pipeline.common import (
    compaction,
    delta,
    maintenance,
    object_store,
    requirements,
    session,
)
from mdserver.pipeline.common.delta import TableBatch
from mdserver.pipeline.common.object_store import RemoteStore
from mdserver.pipeline.common.places import RemoteTables
from mdserver.pipeline.common.sources import JournalSource, KafkaSource

BATCH = 2
"""The batch that is hit, by its last segment: each has one. The one before comes through. Batches
of a topic are counted from 0, so two come through."""
RECORDS = 100
"""The most records of a batch of a topic."""
TIMEOUT_S = 900


def run(point: str, *places: str) -> "subprocess.CompletedProcess[str]":
    """Run this program until it ends; `places` are its arguments after the point."""
    return subprocess.run(
        [sys.executable, __file__, point, *places],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def around(
    module: Any, name: str, chosen: Callable[..., bool], *, before: Callable[[], None] | None = None
) -> None:
    """Before a call that is chosen by its arguments do something, or else die after it."""
    function = getattr(module, name)

    def wrapped(*args: Any) -> Any:
        here = chosen(*args)
        if here and before is not None:
            before()
        result = function(*args)
        if here:
            die()
        return result

    setattr(module, name, wrapped)


def staged(target: DeltaTable, __: object, batch: TableBatch, ___: object) -> bool:
    """Of `commit_staged`: the batch of messages, which comes after what was set aside of it."""
    return batch.number == BATCH and target.table_uri.rstrip("/").endswith("messages")


def set_aside(_: object, name: str, batch: TableBatch, __: object) -> bool:
    """Of `commit_batch`: what was set aside of the batch."""
    return name == "quarantine" and batch.number == BATCH


def joinable(_: object, tables: Path, name: str) -> bool:
    """Of `compact`: there is more than one batch to join."""
    return name == "messages" and len(delta.table(tables, name).file_uris()) > 1


def always(*_: object) -> bool:
    """Of `commit_joined`: the first one, when the joined file is written."""
    return True


POINTS: dict[str, Callable[[], None]] = {
    "before the commit": lambda: around(delta, "commit_staged", staged, before=die),
    "between two tables": lambda: around(delta, "commit_batch", set_aside),
    "after the commit": lambda: around(delta, "commit_staged", staged),
    "while compacting": lambda: around(compaction, "commit_joined", always, before=die),
    "after compacting": lambda: around(delta, "compact", joinable),
}


def main(point: str, source: str, tables: str, checkpoints: str = "") -> None:
    POINTS[point]()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if point.endswith("compacting"):
        maintenance.COMPACT_EVERY_S = 0.0
    if source.startswith("kafka://"):
        archive_topic(source, tables, checkpoints)
        return
    spark = session.start("killed")
    journal = JournalSource(Path(source), batch_bytes=1)
    archive_job.run_archive(spark, journal, Path(tables), lambda _: None, once=True)
    spark.stop()


def archive_topic(source: str, tables: str, checkpoints: str) -> None:
    spark = session.start("killed", jars=requirements.spark_jars(os.environ))
    parts = urlsplit(source)
    topic = KafkaSource(parts.netloc, [parts.path[1:]], records_per_batch=RECORDS)
    store = object_store.opened(tables)
    assert isinstance(store, RemoteStore)
    place = checkpoints if object_store.is_uri(checkpoints) else Path(checkpoints)
    archive_job.run_archive(
        spark, topic, RemoteTables(store), lambda _: None, once=True, spark_place=place
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
