"""`mdserver ship --kafka`: every line of all members once in the topics, whatever is killed."""

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from deltalake import DeltaTable

from mdserver.bridge.ledger import BridgeError
from mdserver.bridge.lines import JournalLedger
from mdserver.cli.main import mdserver
from mdserver.core.message import Publication
from mdserver.errors import MdserverError
from mdserver.journal import segments
from mdserver.journal.rows import NS_PER_US
from mdserver.journal.segments import StreamWriter
from mdserver.limits import NS_PER_S
from mdserver.pipeline.archive import job as archive_job
from mdserver.pipeline.audit import findings
from mdserver.pipeline.audit.archived import ArchivedUntil, with_reached
from mdserver.pipeline.common import checkpoints, delta
from mdserver.pipeline.common import tables as spark_tables
from mdserver.pipeline.common.numbered import sealed
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.sources import JournalSource, KafkaSource, Source
from mdserver.pipeline.ship.destination import Shipped
from mdserver.pipeline.ship.job import run_ship
from mdserver.pipeline.ship.topics import READER, Topics
from tests.live_kafka import SILENT, LiveKafka

from .conftest import BASE, message_lines, write_lines

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]

SEED = 20_261_123
TIMEOUT_S = 60


@pytest.fixture
def topic(kafka: LiveKafka, tmp_path: Path) -> str:
    """A topic for messages, of three partitions."""
    name = f"{tmp_path.name}.messages"
    kafka.create(name, partitions=3)
    return name


def topics(kafka: LiveKafka, *names: str) -> Topics:
    def ledger(topic: str, identifier: str) -> JournalLedger:
        return JournalLedger.of(properties, f"{topic}-state", topic, identifier)

    properties = {"bootstrap.servers": kafka.servers}
    return Topics({name.rpartition(".")[2]: name for name in names}, ledger)


def ship(journal: Path, to: Topics) -> list[Shipped]:
    told: list[Shipped] = []
    run_ship(journal, to, told.append, once=True)
    return told


def records(kafka: LiveKafka, topic: str) -> list[Any]:
    """All records that are committed, by partition and offset."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": kafka.servers,
            "group.id": "test",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        },
        logger=SILENT,
    )
    partitions = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found, ended = [], set()
    try:
        while len(ended) < len(partitions):
            record = consumer.poll(TIMEOUT_S)
            assert record is not None
            if record.error() is None:
                found.append(record)
            else:
                assert record.error().code() == KafkaError._PARTITION_EOF
                ended.add(record.partition())
    finally:
        consumer.close()
    return sorted(found, key=lambda each: (each.partition(), each.offset()))


def places(found: list[Any]) -> list[tuple[str, int, int]]:
    """Identifier, segment and line of records, in order."""
    headers = [dict(each.headers()) for each in found]
    return sorted(
        (each["md-journal"].decode(), int(each["md-segment"]), int(each["md-line"]))
        for each in headers
    )


def position(journal: Path) -> int:
    return segments.positions(journal / "messages")[READER]


def test_members_share_a_topic(kafka: LiveKafka, topic: str, tmp_path: Path) -> None:
    """Two members, two segments each; a run that lost its position; large content."""
    large = Publication("/a/large", bytes(range(256)) * 240, text=False)
    expected = []
    for member in ("m1", "m2"):
        journal = tmp_path / member
        publications = [Publication(f"/{member}/{n}", b"x" * 60_000) for n in range(3)]
        write_lines(journal / "messages", message_lines([*publications, large]))
        write_lines(journal / "messages", message_lines([Publication("/a/b", b"2")]))
        write_lines(journal / "stats", [b"not sent"])
        told = ship(journal, topics(kafka, topic))
        assert [(each.segment, each.lines, each.new) for each in told] == [
            (1, 4, True),
            (2, 1, True),
        ]
        assert "stats" not in str(told)
        assert list((journal / "stats").glob("*.position")) == []
        segments.set_position(journal / "messages", READER, 0)
        assert [each.new for each in ship(journal, topics(kafka, topic))] == [False, False]
        assert position(journal) == 2
        known = segments.identified(journal / "messages")
        assert known is not None
        expected += [(known.identifier, 1, n) for n in (1, 2, 3, 4)] + [(known.identifier, 2, 1)]
    found = records(kafka, topic)
    assert places(found) == sorted(expected)
    assert {each.key().decode() for each in found} == {
        *(f"/{member}/{n}" for member in ("m1", "m2") for n in range(3)),
        "/a/large",
        "/a/b",
    }


def test_an_older_copy_is_refused(kafka: LiveKafka, topic: str, tmp_path: Path) -> None:
    """With a smaller last number, and with another segment of that number."""
    journal = tmp_path / "journal"
    write_lines(journal / "messages", [b"1"])
    for copy in ("smaller", "other"):
        shutil.copytree(journal, tmp_path / copy)
    write_lines(journal / "messages", [b"2"])
    ship(journal, topics(kafka, topic))
    with pytest.raises(PipelineError, match=r"segment 2 was sent of .* whose last one is 1: the"):
        ship(tmp_path / "smaller", topics(kafka, topic))
    write_lines(tmp_path / "other" / "messages", [b"3"])
    with pytest.raises(PipelineError, match=r"000002\.jsonl has other lines than those that were"):
        ship(tmp_path / "other", topics(kafka, topic))
    assert sorted(each.value() for each in records(kafka, topic)) == [b"1", b"2"]


def test_an_older_copy_that_is_behind_is_refused(
    kafka: LiveKafka, topic: str, tmp_path: Path
) -> None:
    """Its server has given numbers again, but not sealed the last one that was sent.

    A run that begins before that, and one that begins after it; nothing may be deleted.
    """
    journal, copy = tmp_path / "journal", tmp_path / "copy"
    write_lines(journal / "messages", [b"1"])
    ship(journal, topics(kafka, topic))
    shutil.copytree(journal, copy)
    for line in (b"2", b"3", b"4"):
        write_lines(journal / "messages", [line])
    ship(journal, topics(kafka, topic))
    with StreamWriter(copy / "messages", 1 << 20) as writer:
        for line in (b"other 2", b"other 3"):
            writer.append([line])
            writer.seal()
        writer.append([b"other 4"])
        said = (
            r"000002\.jsonl is there and seg-000000000004\.jsonl is not, up to which messages was"
        )
        with pytest.raises(PipelineError, match=said):
            ship(copy, topics(kafka, topic))
        assert position(copy) == 1
        writer.seal()
        with pytest.raises(PipelineError, match=r"000004\.jsonl has other lines than those that"):
            ship(copy, topics(kafka, topic))
    assert position(copy) == 1
    assert sorted(each.value() for each in records(kafka, topic)) == [b"1", b"2", b"3", b"4"]


def test_a_state_topic_that_was_lost_is_told(kafka: LiveKafka, topic: str, tmp_path: Path) -> None:
    """Nothing is sent behind what nobody knows of; without the position all that is there is."""
    journal = tmp_path / "journal"
    write_lines(journal / "messages", [b"1"])
    ship(journal, topics(kafka, topic))
    write_lines(journal / "messages", [b"2"])
    kafka.delete(f"{topic}-state")
    said = (
        r"messages was sent up to segment 1, of which the state topic knows nothing: give .*remove"
    )
    with pytest.raises(PipelineError, match=said) as raised:
        ship(journal, topics(kafka, topic))
    file = journal / "messages" / f"{READER}.position"
    assert str(file) in str(raised.value)
    assert position(journal) == 1
    file.unlink()
    assert [each.segment for each in ship(journal, topics(kafka, topic))] == [1, 2]
    assert sorted(each.value() for each in records(kafka, topic)) == [b"1", b"1", b"2"]


def test_a_second_process_shuts_the_first_one_out(
    kafka: LiveKafka, topic: str, tmp_path: Path
) -> None:
    """It is on another computer, so no lock keeps it away."""
    journal = tmp_path / "journal"
    for line in (b"1", b"2", b"3"):
        write_lines(journal / "messages", [line])
    known = segments.identified(journal / "messages")
    assert known is not None

    def second(sent: Shipped) -> None:
        if sent.segment == 2:
            topics(kafka, topic).begin(journal / "messages", known)

    with pytest.raises(BridgeError, match=rf"another process for the stream .*{known.identifier}"):
        run_ship(journal, topics(kafka, topic), second, once=True)
    assert position(journal) == 2
    assert [each.segment for each in ship(journal, topics(kafka, topic))] == [3]
    assert sorted(each.value() for each in records(kafka, topic)) == [b"1", b"2", b"3"]


def test_a_line_that_the_topic_does_not_take(kafka: LiveKafka, topic: str, tmp_path: Path) -> None:
    """It is named, and neither it nor what follows is sent or deleted."""
    journal = tmp_path / "journal"
    write_lines(journal / "messages", [b"1"])
    write_lines(journal / "messages", [b"2", random.Random(1).randbytes(2_000_000).hex().encode()])
    said = rf"{topic}: .*too large.*: line 2 of segment 2 has 4000000 bytes; neither it nor"
    with pytest.raises(BridgeError, match=said):
        ship(journal, topics(kafka, topic))
    assert [each.value() for each in records(kafka, topic)] == [b"1"]
    assert position(journal) == 1


def test_a_stream_that_is_refused_does_not_keep_others_back(
    kafka: LiveKafka, topic: str, tmp_path: Path
) -> None:
    """Two are refused, and one that comes after them is sent."""
    journal = tmp_path / "journal"
    write_lines(journal / "messages", [random.Random(1).randbytes(2_000_000).hex().encode()])
    write_lines(journal / "receipts", [b"1"])
    write_lines(journal / "stats", [b"2"])
    prefix = topic.removesuffix(".messages")
    stats = f"{prefix}.stats"
    kafka.create(stats, partitions=1)
    with pytest.raises(PipelineError) as raised:
        ship(journal, topics(kafka, topic, f"{prefix}.receipts", stats))
    first, second = str(raised.value).split("; " + f"{prefix}.receipts: ")
    assert first.startswith(f"{topic}: ")
    assert "line 1 of segment 1 has 4000000 bytes" in first
    assert second
    assert "\n" not in str(raised.value)
    assert [each.value() for each in records(kafka, stats)] == [b"2"]
    assert position(journal) == 0


def test_the_file_of_a_server_s_consumer_is_taken(
    kafka: LiveKafka, topic: str, tmp_path: Path
) -> None:
    """With a limit above the topic's; a property that nothing knows is told under its option."""
    small = f"{tmp_path.name}-small.messages"
    new = NewTopic(small, 1, config={"max.message.bytes": "2000"})
    kafka.admin.create_topics([new])[small].result(TIMEOUT_S)
    lines = [random.Random(n).randbytes(500).hex().encode() for n in range(50)]
    write_lines(tmp_path / "messages", lines)
    file = tmp_path / "consumer.properties"
    text = f"bootstrap.servers={kafka.servers}\ntopics={topic}\nrecovery.on.start=false\n"
    file.write_text(text + "max.request.size=1000000\n")
    words = ["--kafka", kafka.servers, "--topics", small, "--once", "--kafka-properties", str(file)]
    words += ["--state-topic", f"{small}-state"]
    result = CliRunner().invoke(mdserver, ["ship", "--journal", str(tmp_path), *words])
    assert result.exit_code == 0, result.exception
    assert sorted(each.value() for each in records(kafka, small)) == sorted(lines)
    file.write_text(text + "no.such.property=1\n")
    write_lines(tmp_path / "messages", [b"1"])
    result = CliRunner().invoke(mdserver, ["ship", "--journal", str(tmp_path), *words])
    assert str(result.exception).startswith("--kafka-properties: ")
    assert "no.such.property" in str(result.exception)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "Give either --to or --kafka."),
        (["--kafka", "h:1"], "--kafka needs --topics, such as fleet.messages,fleet.receipts."),
        (["--kafka", "h:1", "--topics", "a.words"], "--topics: 'a.words' is no topic of a stream"),
        (["--to", "x", "--topics", "a.messages"], "--topics and --kafka-properties are for"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, words: list[str], line: str) -> None:
    result = CliRunner().invoke(mdserver, ["ship", "--journal", str(tmp_path), *words])
    assert result.exit_code == 2
    assert line in result.output.replace("\n", " ")


def test_a_topic_that_is_not_there_is_one_line(kafka: LiveKafka, tmp_path: Path) -> None:
    write_lines(tmp_path / "messages", [b"1"])
    words = ["--kafka", kafka.servers, "--topics", "no.such.messages", "--once"]
    result = CliRunner().invoke(mdserver, ["ship", "--journal", str(tmp_path), *words])
    assert isinstance(result.exception, MdserverError)
    assert str(result.exception).startswith("no.such.messages: ")
    assert "\n" not in str(result.exception)


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are ended after the test."""
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("kills", [1, pytest.param(25, marks=pytest.mark.soak)])
def test_processes_that_are_killed_send_every_line_once(
    kafka: LiveKafka,
    topic: str,
    tmp_path: Path,
    started: list[subprocess.Popen[bytes]],
    kills: int,
) -> None:
    """Each is killed after some reports, also within a segment of many transactions."""
    draw = random.Random(SEED)
    journal = tmp_path / "journal"
    words = ["--kafka", kafka.servers, "--topics", topic, "--state-topic", f"{topic}-state"]
    written: list[bytes] = []
    with StreamWriter(journal / "messages", 64 << 20) as writer:
        for _ in range(kills):
            for _ in range(8):
                lines = [b"%d" % (len(written) + n) for n in range(draw.randint(1, 25_000))]
                written += lines
                writer.append(lines)
                writer.seal()
            command = [sys.executable, "-m", "mdserver.cli.main", "ship", "--journal", str(journal)]
            log = tmp_path / "log"
            with log.open("wb") as said:
                process = subprocess.Popen([*command, *words], stdout=said, stderr=said)
            started.append(process)
            wanted, deadline = draw.randint(1, 6), time.monotonic() + TIMEOUT_S
            while log.read_text().count("\n") < wanted:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            process.wait(TIMEOUT_S)
            reports = log.read_text().splitlines()
            assert all(line.startswith("messages segment") for line in reports), reports
            writer.delete(segments.read_by_all(writer.sealed, segments.positions(writer.folder)))
    ship(journal, topics(kafka, topic))
    found = records(kafka, topic)
    assert sorted(int(each.value()) for each in found) == list(range(len(written)))
    assert len(set(places(found))) == len(written)


def test_segments_that_were_deleted_are_rows_of_the_archive(
    spark: Any, kafka: LiveKafka, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each hole once, whether a run ended after the transaction or lost its position."""
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    for seq in range(1, 8):
        write_lines(journal / "messages", message_lines([Publication("/a/b", b"1")], seq))
    to = topics(kafka, topic)
    for number in (1, 3, 4):
        sealed(journal / "messages", number).unlink()
    told = ship(journal, to)
    assert [str(each.missing) for each in told if each.missing is not None] == [
        "segment 1 is missing",
        "segments 3 to 4 are missing",
    ]
    # As after the end of a run that had not written the position, while segments are deleted.
    segments.set_position(journal / "messages", READER, 5)
    for number in (5, 6, 7):
        sealed(journal / "messages", number).unlink()
    write_lines(journal / "messages", message_lines([Publication("/a/b", b"1")], 8))
    write_lines(journal / "messages", message_lines([Publication("/a/b", b"1")], 9))
    sealed(journal / "messages", 8).unlink()
    ship(journal, topics(kafka, topic))
    archive_job.run_archive(
        spark, KafkaSource(kafka.servers, [topic]), tables, lambda _: None, once=True
    )
    identified = segments.identified(journal / "messages")
    assert identified is not None
    told_of = f"of the journal {identified.identifier} of member n1: deleted before it was shipped"
    rows = DeltaTable(tables / "quarantine").to_pyarrow_table().to_pylist()
    assert sorted((row["src_partition"], row["src_pos"], row["reason"]) for row in rows) == [
        (1, 1, f"segment 1 is missing {told_of}"),
        (3, 4, f"segments 3 to 4 are missing {told_of}"),
        (8, 8, f"segment 8 is missing {told_of}"),
    ]
    assert {(row["src_kind"], row["line"], row["node"]) for row in rows} == {
        ("journal", None, "n1")
    }
    assert all(row["ts"] <= datetime.now(UTC) for row in rows)
    seqs = DeltaTable(tables / "messages").to_pyarrow_table()["seq"].to_pylist()
    assert sorted(seqs) == [2, 5, 6, 7, 9]
    found = findings.of_holes(spark_tables.frame(spark, tables, "quarantine")).collect()
    assert [(row["kind"], row["member"]) for row in found] == [("unjudged", "n1")] * 3


def test_what_members_shipped_is_archived_once(
    spark: Any, kafka: LiveKafka, topic: str, tmp_path: Path
) -> None:
    """Two members with the same message, and lines of a process that did not finish."""
    tables = tmp_path / "tables"
    for member in ("m1", "m2"):
        publications = [Publication("/a/b", b"1"), Publication(f"/{member}", b"2")]
        lines = message_lines(publications, node=member)
        write_lines(tmp_path / member / "messages", lines)
        ship(tmp_path / member, topics(kafka, topic))
    unfinished: Any = Producer(
        {"bootstrap.servers": kafka.servers, "transactional.id": topic}, logger=SILENT
    )
    unfinished.init_transactions(TIMEOUT_S)
    unfinished.begin_transaction()
    unfinished.produce(topic, message_lines([Publication("/never", b"3")])[0])
    assert unfinished.flush(TIMEOUT_S) == 0
    unfinished.abort_transaction(TIMEOUT_S)
    source = KafkaSource(kafka.servers, [topic])
    archive_job.run_archive(spark, source, tables, lambda _: None, once=True)
    table = DeltaTable(tables / "messages")
    assert sorted(table.to_pyarrow_table()["subject"].to_pylist()) == ["/a/b", "/m1", "/m2"]
    # By partition, also of lines that became no row since another member had sent them.
    noted = checkpoints.topics_reached(tables, "messages")
    assert {(node, name) for node, name, _ in noted} == {("m1", topic), ("m2", topic)}
    shared = table.to_pyarrow_table(filters=[("subject", "=", "/a/b")]).to_pylist()[0]
    begin = BASE // NS_PER_US
    for member in ("m1", "m2"):
        assert noted[member, topic, shared["src_partition"]] in {begin, begin + 1_000}
        assert max(us for (node, _, _), us in noted.items() if node == member) == begin + 1_000
    assert table.transaction_version("reached-m1") is None
    write_lines(tmp_path / "m2" / "messages", message_lines([Publication("/a/b", b"1")]))
    ship(tmp_path / "m2", topics(kafka, topic))
    archive_job.run_archive(spark, source, tables, lambda _: None, once=True)
    assert len(DeltaTable(tables / "messages").to_pyarrow_table()) == 3


def test_what_is_judged_follows_the_source(
    spark: Any, kafka: LiveKafka, topic: str, tmp_path: Path
) -> None:
    """A member's lines come from one topic, then from another one, then from its journal."""
    tables, other = tmp_path / "tables", f"{tmp_path.name}.other.messages"
    kafka.create(other, partitions=3)
    day_s = 24 * 3600

    def lacking_is_judged(later_s: int) -> bool:
        """Whether a message of this time is judged that the archive lacks."""
        moment = datetime.fromtimestamp(BASE / NS_PER_S + later_s, UTC)
        lacking = spark.createDataFrame(
            [("m1", "/a", moment)], "node string, subject string, ts timestamp"
        )
        journal = DeltaTable(tables / "messages").transaction_version(delta.reached_by("m1"))
        until = ArchivedUntil(
            {} if journal is None else {"m1": journal},
            checkpoints.topics_reached(tables, "messages"),
        )
        messages = spark_tables.frame(spark, tables, "messages")
        return bool(with_reached(lacking, messages, until).first()["reached"])

    for days, name in enumerate((topic, other, None)):
        lines = message_lines([Publication("/a", b"1")], days + 1, days * day_s, node="m1")
        write_lines(tmp_path / str(days) / "messages", lines)
        source: Source = JournalSource(tmp_path / str(days))
        if name is not None:
            ship(tmp_path / str(days), topics(kafka, name))
            source = KafkaSource(kafka.servers, [name])
        archive_job.run_archive(
            spark, source, tables, lambda _: None, once=True, new_source=days > 0
        )
        assert lacking_is_judged(days * day_s)
        assert not lacking_is_judged(days * day_s + 1)
