"""One Spark session for all pipeline tests, and journals to read."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest
from pyspark.sql import SparkSession

from mdserver.core.message import Entry, Publication
from mdserver.journal.rows import checked, message_row
from mdserver.journal.segments import StreamWriter
from mdserver.limits import NS_PER_S
from mdserver.pipeline.archive import job as archive_job
from mdserver.pipeline.archive.batches import Archived
from mdserver.pipeline.common import object_store, requirements, session
from mdserver.pipeline.common.object_store import ObjectStore, RemoteStore
from mdserver.pipeline.common.places import RemoteTables
from mdserver.pipeline.common.sources import JournalSource
from tests.live_kafka import JARS, KafkaMissingError, LiveKafka, live_kafka
from tests.live_store import live_store

BASE = 1_764_000_000_000_000_000
QUICK_TO_START = {"spark.sql.codegen.wholeStage": "false"}
"""Queries of few rows take longer to compile than to run. Jobs in processes of their own have the
settings of users."""

CLASSES = JARS.parent / "classes" / "spark.jsa"
"""What `class_archive` makes. A JVM that starts before it is there does without it, in silence."""
JVM_VARIABLE = "SPARK_SUBMIT_OPTS"
"""Not a folder of Spark's settings: that would be a folder on the path of classes, and a JVM with
one that is not empty uses no archive of classes."""
QUICK_JVM = "-XX:TieredStopAtLevel=1 -Xlog:disable"
"""Each test is over before the JVM's second compiler has gained what it costs, and that is half of
the processor time. Nothing is logged of an archive of classes that does not fit."""

# Before the first session: Spark reads it when its JVM starts, also in processes of tests.
os.environ.setdefault(JVM_VARIABLE, f"{QUICK_JVM} -XX:SharedArchiveFile={CLASSES}")


def cannot_run(reason: object) -> NoReturn:
    """Skip loudly; where everything must have run (CI) that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(f"PIPELINE TESTS CANNOT RUN: {reason}")
    pytest.skip(f"PIPELINE TESTS SKIPPED: {reason}")


def needs_jars(connector: Sequence[Path]) -> None:
    """Skip loudly without the jars of Spark's Kafka connector."""
    if not connector:
        cannot_run("no jars of Spark's Kafka connector in build/jvm: run `make jars`")


@pytest.fixture(scope="session")
def connector() -> list[Path]:
    """The jars of Spark's Kafka connector."""
    return sorted((JARS / "spark").glob("*.jar"))


@pytest.fixture(scope="session")
def spark(connector: list[Path]) -> Iterator[SparkSession]:
    """The one session; it can read Kafka if the jars are there."""
    try:
        requirements.check_java(os.environ)
    except requirements.PipelineError as error:
        cannot_run(error)
    started = session.start("tests", jars=connector, given=QUICK_TO_START)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def kafka(connector: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveKafka]:
    """A broker for all tests; each has topics of its own."""
    needs_jars(connector)
    with contextlib.ExitStack() as stack:
        try:
            broker = stack.enter_context(live_kafka(tmp_path_factory.mktemp("kafka")))
        except KafkaMissingError as error:
            cannot_run(error)
        yield broker


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    """The URI of a bucket for all tests; each has a prefix of its own."""
    with contextlib.ExitStack() as stack:
        try:
            yield stack.enter_context(live_store())
        except ModuleNotFoundError as error:
            cannot_run(error)


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty store: a folder, and an object store."""
    if request.param == "folder":
        (tmp_path / "place").mkdir()
        return object_store.opened(str(tmp_path / "place"))
    bucket = request.getfixturevalue("bucket")
    return object_store.opened(f"{bucket}/{tmp_path.name}")


@pytest.fixture
def remote(bucket: str, tmp_path: Path) -> RemoteTables:
    """Tables in an object store; none is there yet."""
    store = object_store.opened(f"{bucket}/{tmp_path.name}/tables")
    assert isinstance(store, RemoteStore)
    return RemoteTables(store)


def write_messages(
    folder: Path, publications: Sequence[Publication], first_seq: int = 1, later_s: int = 0
) -> None:
    """A journal of these messages, in one segment; the first is `later_s` behind `BASE`."""
    write_lines(folder / "messages", message_lines(publications, first_seq, later_s))


def message_lines(
    publications: Sequence[Publication], first_seq: int = 1, later_s: int = 0, node: str = "n1"
) -> list[bytes]:
    """A line of the journal for each message; every subject's numbering begins at `first_seq`."""
    counts: dict[str, int] = {}
    lines = []
    for index, publication in enumerate(publications):
        seq = counts.get(publication.subject, first_seq - 1) + 1
        counts[publication.subject] = seq
        at = BASE + later_s * NS_PER_S + index * 1_000_000
        row = message_row(Entry(1, seq, publication), 0, "h1", node, at)
        lines.append(checked(msgspec.json.encode(row)))
    return lines


def write_lines(folder: Path, lines: Sequence[bytes]) -> None:
    with StreamWriter(folder, segment_bytes_max=1 << 20) as writer:
        for start in range(0, len(lines), 100):
            writer.append(lines[start : start + 100])


def run_archive(spark: SparkSession, journal: Path, folder: Path, **options: int) -> list[Archived]:
    """Archive what is sealed now; the reports of the batches."""
    reports: list[Archived] = []
    archive_job.run_archive(
        spark, JournalSource(journal, **options), folder, reports.append, once=True
    )
    return reports


def archived(spark: SparkSession, folder: Path, publications: Sequence[Publication]) -> Path:
    """A folder of tables that holds these messages, a millisecond apart."""
    write_messages(folder / "journal", publications)
    run_archive(spark, folder / "journal", folder / "tables")
    return folder / "tables"
