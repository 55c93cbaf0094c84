"""The archive holds what the journal held: every row, once, bad ones aside."""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql import functions as f

from mdserver import limits
from mdserver.core.message import Publication
from mdserver.journal import segments
from mdserver.pipeline.archive import job as archive_job
from mdserver.pipeline.common import checkpoints, delta, schema
from mdserver.pipeline.common.delta import TableBatch
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.sources import JournalSource
from tests.receipts import receipt_row

from .conftest import run_archive, write_lines, write_messages

pytestmark = pytest.mark.pipeline

NO_SPARK: Any = None


def places(tables: Path) -> list[tuple[str, int, int]]:
    table = DeltaTable(tables / "messages").to_pyarrow_table(columns=["subject", "epoch", "seq"])
    return sorted((row["subject"], row["epoch"], row["seq"]) for row in table.to_pylist())


def test_every_row_once(spark: object, tmp_path: Path) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    publications = [
        Publication(f"/a=b {n % 3}/key/{n % 7}", b"%d" % n, fields={"n": str(n)})
        for n in range(500)
    ] + [Publication("/bytes/x", b"\xff\x00", text=False, retained=False)]
    write_messages(journal, publications)
    run_archive(spark, journal, tables)
    run_archive(spark, journal, tables)
    counts: dict[str, int] = {}
    expected = []
    for publication in publications:
        counts[publication.subject] = counts.get(publication.subject, 0) + 1
        expected.append((publication.subject, 1, counts[publication.subject]))
    assert places(tables) == sorted(expected)
    rows = DeltaTable(tables / "messages").to_pyarrow_table(filters=[("root", "=", "bytes")])
    (row,) = rows.to_pylist()
    assert (row["content"], row["text"], row["key"]) == (b"\xff\x00", False, "x")
    assert row["retained"] is False


def test_bad_lines_are_set_aside_with_their_reason(spark: object, tmp_path: Path) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    write_messages(journal, [Publication("/a/b", b"x")])
    line = next((journal / "messages").glob("*.jsonl")).read_bytes().strip()
    good = line[: line.index(b',"line_crc"')] + b"}"  # as an earlier release wrote it
    write_lines(
        journal / "messages",
        [
            b"{not json",
            good.replace(b'"v":1', b'"v":9'),
            good.replace(b'"content":"x"', b'"content":"y"'),
            good.replace(b'"subject":"/a/b",', b""),
            good.replace(b'"subject":"/a/b"', b'"subject":"/a"'),
            good.replace(b'"subject":"/a/b"', b'"subject":""'),
            good.replace(b'"content":"x"', b'"content_base64":"%%%"'),
            good.replace(b'"epoch":1', b'"epoch":99999999999999999999'),
            good.replace(b'"ts_pub":0', b'"ts_pub":-1'),
            good.replace(b'"ts_server":1', b'"ts_server":99'),
            good.replace(b'"node":"n1"', b'"node":"\xff"'),
            line.replace(b'"node":"n1"', b'"node":"n2"'),
        ],
    )
    reports = run_archive(spark, journal, tables)
    assert sum(report.bad for report in reports) == 12
    assert places(tables) == [("/a/b", 1, 1)]
    bad = DeltaTable(tables / "quarantine").to_pyarrow_table().to_pylist()
    assert sorted(row["reason"] for row in bad) == [
        "crc does not fit the content",
        "crc does not fit the content",
        "crc does not fit the content",
        "line_crc does not fit the line",
        "not UTF-8",
        "not a JSON object of this stream",
        "not a JSON object of this stream",
        "subject has no leading slash",
        "subject is missing",
        "ts_pub is not between the years 1970 and 2200",
        "ts_server is not between the years 1970 and 2200",
        "v is 9, known is 1",
    ]


def test_receipts_with_numbers_that_no_range_has_are_set_aside(
    spark: object, tmp_path: Path
) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    wrong = [{"seq_hi": limits.RECEIPT_SEQ_MAX + 1}, {"seq_lo": 4}, {"conflated": 2**62}]
    lines = [msgspec.json.encode(receipt_row(**changed)) for changed in [{}, *wrong]]
    write_messages(journal, [Publication("/a/b", b"x")])
    write_lines(journal / "receipts", lines)
    run_archive(spark, journal, tables)
    assert DeltaTable(tables / "receipts").to_pyarrow_table().num_rows == 1
    bad = DeltaTable(tables / "quarantine").to_pyarrow_table().to_pylist()
    assert [row["reason"] for row in bad] == [
        "seq_lo, seq_hi and the counts are not of a range"
    ] * 3


def test_a_subject_of_one_segment(spark: object, tmp_path: Path) -> None:
    """The server takes none; a line that has one is archived like any other."""
    write_messages(tmp_path / "journal", [Publication("/alone", b"x")])
    run_archive(spark, tmp_path / "journal", tmp_path / "tables")
    (row,) = DeltaTable(tmp_path / "tables" / "messages").to_pyarrow_table().to_pylist()
    assert (row["root"], row["key"], row["content"]) == ("alone", "", b"x")


def test_a_batch_that_is_in_the_table_is_skipped(spark: object, tmp_path: Path) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    write_messages(journal, [Publication("/a/b", b"x"), Publication("/a/b", b"y")])
    run_archive(spark, journal, tables)
    # The driver died when the table had it, and nobody else knew that.
    (tables / "_checkpoints" / "messages-1.read").unlink()
    segments.set_position(journal / "messages", "archive", 0)
    assert run_archive(spark, journal, tables) == []
    assert segments.positions(journal / "messages") == {"archive": 1}
    assert places(tables) == [("/a/b", 1, 1), ("/a/b", 1, 2)]


def test_of_two_writers_of_a_batch_one_is_refused(spark: Any, tmp_path: Path) -> None:
    """The other one's files stay as they are: an attempt writes where no other one did."""
    stats = schema.TABLES["stats"]
    frames = [spark.createDataFrame([(n,)], "value double") for n in (1.0, 2.0)]
    full = [
        frame.select(
            *(f.lit(None).alias(name) for name in stats.names[:3]),
            "value",
            f.lit(0).cast("bigint").alias("batch_id"),
        )
        for frame in frames
    ]

    def other_commits() -> None:
        assert delta.commit_batch(tmp_path, "stats", TableBatch("job", 0), full[1]) == 1

    with pytest.raises(CommitFailedError, match="Concurrent transaction"):
        delta.commit_batch(tmp_path, "stats", TableBatch("job", 0, other_commits), full[0])
    values = DeltaTable(tmp_path / "stats").to_pyarrow_table().column("value").to_pylist()
    assert values == [2.0]


def test_a_batch_behind_one_that_is_no_longer_the_last_is_refused(
    spark: Any, tmp_path: Path
) -> None:
    """As of a process that lost its lock, was suspended, and has planned other batches."""
    names = schema.TABLES["stats"].names[:3]
    frame = spark.createDataFrame([(1.0,)], "value double").select(
        *(f.lit(None).alias(name) for name in names),
        "value",
        f.lit(0).cast("bigint").alias("batch_id"),
    )

    def commit(number: int, after: int, check: Any = delta.nothing) -> int | None:
        batch = TableBatch("job", number, check, after={"stats": after})
        return delta.commit_batch(tmp_path, "stats", batch, frame)

    assert commit(10, 0) == 1
    assert commit(20, 10) == 1
    with pytest.raises(
        PipelineError, match=r"another process has committed .* up to 20 and not 10"
    ):
        commit(22, 10)
    with pytest.raises(PipelineError, match="up to 21 and not 20"):  # between files and commit
        commit(22, 20, lambda: commit(21, 20) and None)
    batch = TableBatch("job", 22, after={"stats": 20})
    with pytest.raises(PipelineError, match="up to 21 and not 20"):
        delta.commit_nothing(tmp_path, "stats", batch)
    assert DeltaTable(tmp_path / "stats").to_pyarrow_table().num_rows == 3


def test_one_stream_that_fails_ends_the_job(spark: Any, tmp_path: Path) -> None:
    """Also where its error is a page of Java, and the other streams would go on for ever."""
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    write_messages(journal, [Publication("/a/b", b"x")])
    write_lines(journal / "stats", [b"{}"])
    delta.table(tables, "messages")
    (tables / "messages" / "data").write_text("no folder")
    with pytest.raises(PipelineError, match=r"^archiving messages failed: \w+: [^\n]+$"):
        archive_job.run_archive(spark, JournalSource(journal), tables, lambda _: None, once=False)
    assert not spark.streams.active


def test_a_second_archive_on_the_same_tables(tmp_path: Path) -> None:
    source = JournalSource(tmp_path)
    with (
        checkpoints.alone(tmp_path, "archive"),
        pytest.raises(PipelineError, match="another archive job is at work on"),
    ):
        archive_job.run_archive(NO_SPARK, source, tmp_path, lambda _: None, once=True)


def test_compaction_keeps_the_rows(spark: Any, tmp_path: Path) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    for number in range(3):
        write_messages(journal, [Publication("/a/b", b"%d" % number)], first_seq=number + 1)
        run_archive(spark, journal, tables)
    before = places(tables)
    assert delta.compact(spark, tables, "messages") == 3
    assert places(tables) == before == [("/a/b", 1, n) for n in (1, 2, 3)]


def test_segments_that_are_archived_may_be_deleted(spark: object, tmp_path: Path) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    for number in range(1, 4):
        write_messages(journal, [Publication(f"/a/{number}", b"x")])
    assert len(run_archive(spark, journal, tables, batch_bytes=1)) == 3
    assert len(places(tables)) == 3
    assert segments.positions(journal / "messages") == {"archive": 3}


def test_what_comes_after_all_segments_were_deleted_is_archived(
    spark: object, tmp_path: Path
) -> None:
    """Limits on age or an operator emptied the folder, and the server was started again."""
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    for number in range(1, 4):
        write_messages(journal, [Publication(f"/a/{number}", b"x")])
        run_archive(spark, journal, tables)
        for path in (journal / "messages").glob("seg-*"):
            path.unlink()
    assert places(tables) == [(f"/a/{number}", 1, 1) for number in (1, 2, 3)]


def test_a_journal_that_was_replaced_is_refused_by_name(spark: object, tmp_path: Path) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    write_messages(journal, [Publication("/a/1", b"x")])
    run_archive(spark, journal, tables)
    shutil.rmtree(journal / "messages")
    write_messages(journal, [Publication("/a/2", b"x")])
    with pytest.raises(PipelineError, match=r"^the stream messages is not the one .* --new-source"):
        run_archive(spark, journal, tables)
    source = JournalSource(journal)
    archive_job.run_archive(spark, source, tables, lambda _: None, once=True, new_source=True)  # type: ignore[arg-type]
    assert places(tables) == [("/a/1", 1, 1), ("/a/2", 1, 1)]


def test_an_older_copy_of_a_journal_is_refused_by_name(spark: object, tmp_path: Path) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    write_messages(journal, [Publication("/a/1", b"x")])
    shutil.copytree(journal, tmp_path / "backup")
    write_messages(journal, [Publication("/a/2", b"x")])
    run_archive(spark, journal, tables)
    shutil.rmtree(journal)
    (tmp_path / "backup").rename(journal)
    with pytest.raises(PipelineError, match="is an older copy: its last segment is 1, and 2 segm"):
        run_archive(spark, journal, tables)


def test_compaction_deletes_what_is_of_no_use(spark: Any, tmp_path: Path) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    write_messages(journal, [Publication("/a/b", b"x")])
    run_archive(spark, journal, tables)
    delta.compact(spark, tables, "messages")
    log = tables / "messages" / "_delta_log"
    crashed = tables / "messages" / "data" / "archive-messages-1" / "b9"
    crashed.mkdir()
    old, new, first = crashed / "old.parquet", crashed / "new.parquet", log / f"{0:020d}.json"
    for path in (old, new):
        path.write_bytes(b"half a file")
    eight_days_ago = time.time() - 8 * 86_400
    for path in (old, *log.iterdir()):
        os.utime(path, (eight_days_ago, eight_days_ago))
    delta.compact(spark, tables, "messages")
    assert [path.exists() for path in (old, new, first)] == [False, True, False]
    assert DeltaTable(tables / "messages").transaction_version("archive-messages-1") == 1
    assert places(tables) == [("/a/b", 1, 1)]
    assert run_archive(spark, journal, tables) == []
    write_messages(journal, [Publication("/a/b", b"y")], first_seq=2)
    assert [report.batch_id for report in run_archive(spark, journal, tables)] == [2]
    assert places(tables) == [("/a/b", 1, 1), ("/a/b", 1, 2)]
