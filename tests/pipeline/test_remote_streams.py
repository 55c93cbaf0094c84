"""Topics archived into an object store: Spark's checkpoint is in a folder, the tables are not."""

import signal
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from mdserver.cli.main import mdserver
from mdserver.core.message import Publication
from mdserver.pipeline.archive import job as archive_job
from mdserver.pipeline.archive.batches import Archived
from mdserver.pipeline.common import leases, spark_folders
from mdserver.pipeline.common.places import RemoteTables
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.sources import KafkaSource
from tests.live_kafka import LiveKafka

from . import killed_driver
from .conftest import message_lines
from .killed_driver import RECORDS

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]

SUBJECTS = 6
BATCHES = 4


def produce(kafka: LiveKafka, topic: str) -> int:
    """So many messages as batches have records, and a line that cannot be used in each of them."""
    kafka.create(topic, partitions=1)
    publications = [
        Publication(f"/a/{n % SUBJECTS}", b"%d" % n) for n in range(BATCHES * (RECORDS - 1))
    ]
    keys = [each.subject for each in publications]
    records = list(zip(keys, message_lines(publications), strict=True))
    for number in range(BATCHES):
        records.insert(number * RECORDS + RECORDS // 2, ("", b"{no row"))
    kafka.produce(topic, records)
    return len(publications)


def archive(spark: Any, source: KafkaSource, tables: RemoteTables, place: Path) -> list[Archived]:
    told: list[Archived] = []
    archive_job.run_archive(spark, source, tables, told.append, once=True, spark_place=place)
    return told


def numbers(tables: RemoteTables) -> list[int]:
    found = DeltaTable(tables / "messages").to_pyarrow_table(columns=["content"])
    return sorted(int(content) for content in found["content"].to_pylist())


@pytest.mark.soak
@pytest.mark.parametrize(
    ("point", "batches"),
    [("before the commit", 2), ("between two tables", 2), ("after the commit", 3)],
)
def test_a_kill_and_a_restart(
    spark: Any,
    kafka: LiveKafka,
    connector: list[Path],
    remote: RemoteTables,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    batches: int,
) -> None:
    monkeypatch.setenv("MDSERVER_SPARK_JARS", str(connector[0].parent))
    topic, place = f"{tmp_path.name}.messages", tmp_path / "checkpoints"
    count = produce(kafka, topic)
    source = f"kafka://{kafka.servers}/{topic}"
    killed = killed_driver.run(point, source, str(remote), str(place))
    assert killed.returncode == -signal.SIGKILL, killed.stdout
    assert numbers(remote) == list(range(batches * (RECORDS - 1)))
    topics = KafkaSource(kafka.servers, [topic], records_per_batch=RECORDS)
    # The lock of the process that was killed is watched for so long.
    monkeypatch.setattr(leases, "LeaseTimes", partial(leases.LeaseTimes, renew_s=1.0, watch_s=5.0))
    with pytest.raises(
        PipelineError, match=r"is gone, so nobody knows .* the --checkpoints of bef"
    ):
        archive(spark, topics, remote, tmp_path / "others")
    archive(spark, topics, remote, place)
    assert archive(spark, topics, remote, place) == []
    assert numbers(remote) == list(range(count))
    aside = DeltaTable(remote / "quarantine").to_pyarrow_table().to_pylist()
    assert Counter(row["line"] for row in aside) == {b"{no row": BATCHES}
    assert len({row["src_pos"] for row in aside}) == BATCHES


@pytest.mark.soak
def test_checkpoints_by_a_uri_of_spark(
    spark: Any, kafka: LiveKafka, tmp_path: Path, remote: RemoteTables
) -> None:
    """`file://` stands for each of the file systems: all are asked in the same way."""
    topic, place = f"{tmp_path.name}.messages", f"file://{tmp_path}/checkpoints"
    count = produce(kafka, topic)
    source = KafkaSource(kafka.servers, [topic], records_per_batch=RECORDS)
    for _ in range(2):
        archive_job.run_archive(spark, source, remote, lambda _: None, once=True, spark_place=place)
        assert numbers(remote) == list(range(count))
    (name,) = (path.name for path in (tmp_path / "checkpoints").iterdir())
    assert not spark_folders.RemoteFolders(spark, place).is_empty(name)
    with pytest.raises(PipelineError, match=r"is gone, so nobody knows"):
        archive_job.run_archive(
            spark, source, remote, lambda _: None, once=True, spark_place=f"{place}-others"
        )
    assert numbers(remote) == list(range(count))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("archive",), "s3://mdserver/t is an object store, in which a stream of Spark's cannot"),
        (("archive", "--checkpoints", "hdfs://u:p@n/c"), "an address with a password would be"),
        (("derive", "--rules", "r"), "give --checkpoints, a folder of this computer or one that"),
        (("derive", "--rules", "r", "--checkpoints", "s3a://b/c"), "is a URI, and this takes a"),
    ],
)
def test_a_place_that_cannot_have_a_checkpoint(
    bucket: str, words: tuple[str, ...], line: str
) -> None:
    source = ("--kafka", "127.0.0.1:1", "--topics", "a.messages")
    result = CliRunner().invoke(mdserver, ["pipeline", *words, *source, "--tables", f"{bucket}/t"])
    said = " ".join(f"{result.output} {result.exception}".replace("\u2502", " ").split())
    assert line in said


def test_checkpoints_of_journals_are_in_the_tables(tmp_path: Path) -> None:
    words = ["--journal", str(tmp_path), "--tables", str(tmp_path), "--checkpoints", str(tmp_path)]
    result = CliRunner().invoke(mdserver, ["pipeline", "archive", *words])
    assert "--checkpoints is for --kafka" in " ".join(result.output.split())
