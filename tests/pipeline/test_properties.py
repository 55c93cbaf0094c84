"""What a publisher gave, and nothing else, comes out of the archive and of a replay."""

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from mdserver.core.commands import Publish
from mdserver.core.message import Publication, Qos
from mdserver.pipeline.common import delta, tables
from mdserver.pipeline.replay.job import plan, rows
from mdserver.pipeline.replay.windows import Selection

from .conftest import archived, message_lines, run_archive, write_lines

pytestmark = pytest.mark.pipeline

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=10)
SEGMENTS = st.text("aé =%+&'~\U0001f600\\\"", min_size=1, max_size=8)
SUBJECTS = st.tuples(SEGMENTS, SEGMENTS).map(lambda two: f"/{two[0]}/{two[1]}")
MOMENTS_NS = st.integers(0, 4_000_000_000_000_000).map(lambda us: us * 1_000)


@st.composite
def publications(draw: st.DrawFn) -> Publication:
    kind = draw(st.sampled_from(["text", "bytes", "compressed"]))
    content = draw(TEXT).encode() if kind == "text" else draw(st.binary(max_size=30))
    number = draw(st.integers(0, 5))
    return Publication(
        subject=draw(SUBJECTS),
        content=content,
        text=kind == "text",
        fields=draw(st.none() | st.dictionaries(NAMES, TEXT, min_size=1, max_size=3)),
        closure=draw(st.none() | TEXT),
        retained=draw(st.booleans()),
        qos=draw(st.sampled_from(Qos)),
        compressed=kind == "compressed",
        reply_subject=draw(st.none() | SUBJECTS),
        publisher=draw(NAMES) if number else "",
        number=number,
        time=draw(MOMENTS_NS),
    )


def again(publication: Publication, prefix: str) -> Publish:
    """The command that publishes it once more, below the prefix."""
    content, reply = publication.content, publication.reply_subject
    return Publish(
        subject=prefix + publication.subject,
        content=content.decode() if publication.text else None,
        content_base64=None if publication.text else content,
        fields=publication.fields,
        closure=publication.closure,
        retained=publication.retained,
        qos=publication.qos,
        compressed=publication.compressed,
        reply_subject=None if reply is None else prefix + reply,
    )


@settings(max_examples=3, deadline=None)
@given(given_=st.lists(publications(), min_size=40, max_size=80))
def test_every_property_survives(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, given_: list[Publication]
) -> None:
    folder = archived(spark, tmp_path_factory.mktemp("properties"), given_)
    assert len(DeltaTable(folder / "quarantine").to_pyarrow_table()) == 0
    for _ in range(2):
        (planned,) = plan(rows(folder, Selection("/**")), None, "/r")
        assert [each.command for each in planned] == [again(p, "/r") for p in given_]
        frame = tables.frame(spark, folder, "messages").orderBy("ts_server").collect()
        for row, publication in zip(frame, given_, strict=True):
            assert (row.publisher or "", row.number) == (publication.publisher, publication.number)
            assert row.content_text == (publication.content.decode() if publication.text else None)
        delta.compact(spark, folder, "messages")


def test_a_line_with_one_byte_altered_is_never_taken_for_another_row(
    spark: Any, tmp_path: Path
) -> None:
    publication = Publication(
        "/a/b",
        b"x",
        fields={"f": "1"},
        closure="c",
        qos=Qos.STANDARD,
        retained=False,
        reply_subject="/r/s",
        publisher="p",
        number=7,
        time=1_700_000_000_000_000_000,
    )
    (line,) = message_lines([publication])
    altered = [
        line[:at] + bytes([line[at] ^ flip]) + line[at + 1 :]
        for at in range(len(line))
        for flip in (0x01, 0x80)
    ]
    write_lines(tmp_path / "journal" / "messages", [line, *altered])
    run_archive(spark, tmp_path / "journal", tmp_path / "tables")
    rows = DeltaTable(tmp_path / "tables" / "messages").to_pyarrow_table().to_pylist()
    assert rows
    assert all(row == rows[0] for row in rows)
    assert rows[0]["closure"] == "c"
    # Where the checksum's own name is damaged, the line is one of those that never had any.
    assert len(rows) <= 1 + 2 * len(b',"line_crc":"')
    bad = DeltaTable(tmp_path / "tables" / "quarantine").to_pyarrow_table().to_pylist()
    assert {row["line"] for row in bad} >= {
        each for each in altered[: len(line)] if b"\n" not in each and b"\r" not in each
    }
