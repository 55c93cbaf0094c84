"""Kafka as the source of the archive: the same rows as from the journal, and only of its topic."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from mdserver.core.message import Publication
from mdserver.pipeline.archive import job as archive_job
from mdserver.pipeline.archive.batches import Archived
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.sources import DescribedTopics, JournalSource, KafkaSource
from tests.live_kafka import SILENT, LiveKafka

from .conftest import message_lines, needs_jars, write_lines

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]

TIMEOUT_S = 60
OWN_COLUMNS = ["src_kind", "src_partition", "src_pos", "ts_broker", "batch_id"]


def records(count: int, first_seq: int = 1) -> list[tuple[str, bytes]]:
    subjects = [f"/ü{n % 3}/key/{n % 7}" for n in range(count)]
    publications = [Publication(subject, b"%d" % n) for n, subject in enumerate(subjects)]
    return list(zip(subjects, message_lines(publications, first_seq), strict=True))


def archive(spark: Any, source: Any, tables: Path, *, new_source: bool = False) -> list[Archived]:
    told: list[Archived] = []
    archive_job.run_archive(spark, source, tables, told.append, once=True, new_source=new_source)
    return told


def rows(tables: Path) -> list[dict[str, Any]]:
    table = DeltaTable(tables / "messages").to_pyarrow_table().drop_columns(OWN_COLUMNS)
    return sorted(table.to_pylist(), key=lambda row: (row["subject"], row["epoch"], row["seq"]))


def test_the_same_rows_as_from_the_journal(spark: Any, kafka: LiveKafka, tmp_path: Path) -> None:
    lines = [*records(1000), ("/x/y", b"{no row")]
    write_lines(tmp_path / "journal" / "messages", [line for _, line in lines])
    kafka.create("same.messages", partitions=3)
    kafka.produce("same.messages", lines)
    archive(spark, JournalSource(tmp_path / "journal"), tmp_path / "from journal")
    source = KafkaSource(kafka.servers, ["same.messages"], records_per_batch=400)
    told = archive(spark, source, tmp_path / "from kafka")
    assert len(told) >= 2
    assert archive(spark, source, tmp_path / "from kafka") == []
    assert len(rows(tmp_path / "from kafka")) == 1000
    assert rows(tmp_path / "from kafka") == rows(tmp_path / "from journal")
    places = DeltaTable(tmp_path / "from kafka" / "messages").to_pyarrow_table(
        columns=["src_partition", "src_pos"]
    )
    assert len({tuple(row.values()) for row in places.to_pylist()}) == 1000
    (bad,) = DeltaTable(tmp_path / "from kafka" / "quarantine").to_pyarrow_table().to_pylist()
    assert (bad["line"], bad["src_kind"]) == (b"{no row", "kafka")


def test_plain_records_are_archived(spark: Any, kafka: LiveKafka, tmp_path: Path) -> None:
    kafka.create("vehicles", partitions=1)
    kafka.produce("vehicles", [("car66/speed", b"95"), ("a//b", b"poison"), ("car66/speed", None)])
    archive(spark, KafkaSource(kafka.servers, ["vehicles"], plain=True), tmp_path)
    assert [
        (row["subject"], row["seq"], row["content"], row["retained"]) for row in rows(tmp_path)
    ] == [("/vehicles/car66/speed", 1, b"95", True), ("/vehicles/car66/speed", 3, b"", False)]
    (bad,) = DeltaTable(tmp_path / "quarantine").to_pyarrow_table().to_pylist()
    assert (bad["reason"], bad["src_pos"]) == ("subject is missing", 1)


def test_what_a_producer_took_back_is_not_archived(
    spark: Any, kafka: LiveKafka, tmp_path: Path
) -> None:
    """Not even with properties of a client that reads everything."""
    kafka.create("aborted.messages", partitions=1)
    properties = {"bootstrap.servers": kafka.servers, "transactional.id": "t"}
    producer = Producer(properties, logger=SILENT)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for _, line in records(5):
        producer.produce("aborted.messages", line)
    producer.flush(TIMEOUT_S)
    producer.abort_transaction(TIMEOUT_S)
    kafka.produce("aborted.messages", records(3, first_seq=1000))
    settings = {"isolation.level": "read_uncommitted"}
    archive(spark, KafkaSource(kafka.servers, ["aborted.messages"], settings), tmp_path)
    assert [row["seq"] >= 1000 for row in rows(tmp_path)] == [True] * 3


def test_a_topic_that_was_created_again(spark: Any, kafka: LiveKafka, tmp_path: Path) -> None:
    """Spark alone reads the new topic from the place where it was in the old one."""
    source = KafkaSource(kafka.servers, ["again.messages"])
    kafka.create("again.messages", partitions=1)
    kafka.produce("again.messages", records(50))
    archive(spark, source, tmp_path)
    kafka.delete("again.messages")
    kafka.create("again.messages", partitions=1)
    kafka.produce("again.messages", records(80, first_seq=1000))
    with pytest.raises(PipelineError, match=r"^topic again\.messages is not the one .* --new-sour"):
        archive(spark, source, tmp_path)
    assert len(rows(tmp_path)) == 50
    archive(spark, source, tmp_path, new_source=True)
    archive(spark, source, tmp_path)
    assert [row["seq"] >= 1000 for row in rows(tmp_path)].count(True) == 80
    assert len(rows(tmp_path)) == 130


def test_a_topic_that_is_created_again_under_a_batch(
    spark: Any, kafka: LiveKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read may be of either topic: the batch is not committed."""
    source = KafkaSource(kafka.servers, ["under.messages"])
    kafka.create("under.messages", partitions=1)
    kafka.produce("under.messages", records(50))
    real = KafkaSource.described
    asked = []

    def described(self: KafkaSource, spark: Any, stream: str) -> DescribedTopics:
        asked.append(stream)
        if len(asked) == 2:  # the second time is before the first batch's commit
            kafka.delete("under.messages")
            kafka.create("under.messages", partitions=1)
        return real(self, spark, stream)

    monkeypatch.setattr(KafkaSource, "described", described)
    with pytest.raises(PipelineError, match=r"failed: topic under\.messages is not the one"):
        archive(spark, source, tmp_path)
    assert rows(tmp_path) == []


def test_rows_that_kafka_dropped_before_they_were_archived(
    spark: Any, kafka: LiveKafka, tmp_path: Path
) -> None:
    source = KafkaSource(kafka.servers, ["short.messages"])
    kafka.create("short.messages", partitions=1)
    kafka.produce("short.messages", records(50))
    archive(spark, source, tmp_path)
    kafka.produce("short.messages", records(50, first_seq=1000))
    kafka.drop_before("short.messages", 0, 70)
    with pytest.raises(PipelineError, match=r"failed: KafkaIllegalStateException: Some data may"):
        archive(spark, source, tmp_path)
    assert len(rows(tmp_path)) == 50


def test_no_such_topic(spark: Any, kafka: LiveKafka, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"topics no\.messages: .*does not host this topic"):
        archive(spark, KafkaSource(kafka.servers, ["no.messages"]), tmp_path)


def test_other_sources_for_the_same_tables(spark: Any, kafka: LiveKafka, tmp_path: Path) -> None:
    write_lines(tmp_path / "journal" / "messages", [line for _, line in records(5)])
    archive(spark, JournalSource(tmp_path / "journal"), tmp_path / "tables")
    kafka.create("other.messages")
    with pytest.raises(PipelineError, match="the stream messages is not the one"):
        archive(spark, KafkaSource(kafka.servers, ["other.messages"]), tmp_path / "tables")
    kafka.produce("other.messages", records(5))
    source = KafkaSource(kafka.servers, ["other.messages"])
    archive(spark, source, tmp_path / "other")
    (folder,) = (tmp_path / "other" / "_checkpoints").glob("messages-1-*")
    folder.rename(tmp_path / "gone")
    with pytest.raises(PipelineError, match=f"{folder.name} is gone"):
        archive(spark, source, tmp_path / "other")


def test_the_command_reads_kafka(
    kafka: LiveKafka, connector: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create("command.messages")
    kafka.produce("command.messages", records(20))
    monkeypatch.setenv("MDSERVER_SPARK_JARS", str(connector[0].parent))
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "mdserver.cli.main",
            "pipeline",
            "archive",
            "--once",
            "--kafka",
            kafka.servers,
            "--topics",
            "command.messages",
            "--kafka-option",
            "security.protocol=PLAINTEXT",
            "--tables",
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "messages batch 0: 20 rows" in run.stdout
    assert len(rows(tmp_path)) == 20


def test_an_address_without_a_broker_is_one_line_with_what_to_look_at(
    spark: Any, connector: list[Path]
) -> None:
    needs_jars(connector)
    soon = {"default.api.timeout.ms": "900", "request.timeout.ms": "800"}
    source = KafkaSource("127.0.0.1:1", ["a.messages"], soon)
    with pytest.raises(
        PipelineError, match=r"^Kafka at 127\.0\.0\.1:1, .* no broker answered: look"
    ):
        source.identity(spark, "messages")
