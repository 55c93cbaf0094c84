"""An audit after a topic got partitions: the last message of a subject no longer shows its one."""

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka.admin import NewPartitions
from deltalake import DeltaTable

from mdserver.core.message import Publication
from mdserver.journal.audit import PublishRow
from mdserver.journal.rows import ROW_VERSION
from mdserver.limits import NS_PER_S
from mdserver.pipeline.archive import job as archive_job
from mdserver.pipeline.audit.job import run_audit
from mdserver.pipeline.common import checkpoints
from mdserver.pipeline.common.sources import JournalSource, KafkaSource
from tests.live_kafka import LiveKafka

from .conftest import BASE, message_lines, write_lines

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]

SUBJECTS = [f"/a/{n}" for n in range(8)]
IN_THE_OLD_ONE = "/later/0"
LOST = 2
"""The number of the message, of each subject, that nobody sends to the topic."""
TIMEOUT_S = 60.0
DAY_S = 24 * 3600


def acknowledged(at_s: int) -> bytes:
    """Rows of the member: it acknowledged the message of each subject that is not sent."""
    ts = (BASE // NS_PER_S + at_s) * 1_000_000
    rows = [
        PublishRow(
            v=ROW_VERSION,
            ts=ts,
            node="n1",
            event="publish",
            session="p",
            subject=subject,
            publisher="p",
            number=LOST,
            epoch=1,
            seq=LOST,
            history="h1",
            qos="GUARANTEED",
        )
        for subject in SUBJECTS
    ]
    return b"\n".join(map(msgspec.json.encode, rows))


def test_a_subject_that_may_be_in_a_new_partition_is_not_judged_by_its_old_one(
    spark: Any, kafka: LiveKafka, tmp_path: Path
) -> None:
    topic, tables = f"{tmp_path.name}.messages", tmp_path / "tables"
    kafka.create(topic, partitions=1)
    now_s = int(time.time()) - BASE // NS_PER_S

    def send(seq: int, later_s: int, subjects: list[str]) -> None:
        lines = message_lines([Publication(each, b"1") for each in subjects], seq, later_s)
        kafka.produce(topic, list(zip(subjects, lines, strict=True)))

    def archive(source: KafkaSource | JournalSource) -> None:
        archive_job.run_archive(spark, source, tables, lambda _: None, once=True)

    def found() -> dict[str, str]:
        """What an audit says of the subjects' message that is not there."""
        run_audit(spark, tables, None)
        rows = DeltaTable(tables / "audit_findings").to_pyarrow_table().to_pylist()
        return {row["subject"]: row["kind"] for row in rows if row["seq_lo"] == LOST}

    def partitions(seq: int) -> set[int]:
        """The partitions of messages with this number."""
        rows = DeltaTable(tables / "messages").to_pyarrow_table().to_pylist()
        return {row["src_partition"] for row in rows if row["seq"] == seq}

    source = KafkaSource(kafka.servers, [topic])
    write_lines(tmp_path / "events" / "publish", acknowledged(now_s + DAY_S).splitlines())
    write_lines(tmp_path / "events" / "receipts", [b"{}"])
    archive(JournalSource(tmp_path / "events"))
    send(1, 0, SUBJECTS)
    archive(source)
    kafka.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(TIMEOUT_S)
    # The old partition is archived further than the message that is missing, the new one is not.
    send(1, now_s + 2 * DAY_S, [IN_THE_OLD_ONE])
    archive(source)
    assert partitions(1) == {0}
    assert found() == dict.fromkeys(SUBJECTS, "unjudged")

    send(LOST + 1, now_s + 3 * DAY_S, SUBJECTS)
    archive(source)
    assert partitions(LOST + 1) == {0, 1}
    assert found() == dict.fromkeys(SUBJECTS, "acknowledged_not_archived")


def test_after_an_upgrade_partitions_that_did_not_change_are_known(
    spark: Any, kafka: LiveKafka, tmp_path: Path
) -> None:
    """An earlier release noted no number of them; Spark's checkpoint has the first one."""
    topic, tables = f"{tmp_path.name}.messages", tmp_path / "tables"
    kafka.create(topic, partitions=2)
    for seq in (1, 2):
        lines = message_lines([Publication(each, b"1") for each in SUBJECTS], seq, seq)
        kafka.produce(topic, list(zip(SUBJECTS, lines, strict=True)))
        source = KafkaSource(kafka.servers, [topic])
        archive_job.run_archive(spark, source, tables, lambda _: None, once=True)
        (noted,) = (tables / checkpoints.FOLDER).glob("*.partitions")
        assert checkpoints.topics_changed(tables, "messages") == {}
        noted.unlink()
