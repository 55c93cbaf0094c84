"""One Spark session for all pipeline tests, and journals to read."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from mdserver.core.message import Entry, Publication
from mdserver.journal.rows import message_row
from mdserver.journal.segments import StreamWriter

pyspark = pytest.importorskip("pyspark")

from mdserver.pipeline import session  # noqa: E402 - only where the extra is installed

BASE = 1_764_000_000_000_000_000


@pytest.fixture(scope="session")
def spark() -> Iterator["pyspark.sql.SparkSession"]:
    started = session.start("tests", embedded=True)
    yield started
    started.stop()


def write_messages(folder: Path, publications: Sequence[Publication], first_seq: int = 1) -> None:
    """A journal of these messages, one subject's numbering after the other."""
    counts: dict[str, int] = {}
    lines = []
    for index, publication in enumerate(publications):
        seq = counts.get(publication.subject, first_seq - 1) + 1
        counts[publication.subject] = seq
        row = message_row(Entry(1, seq, publication), 0, "h1", "n1", BASE + index * 1_000_000)
        lines.append(msgspec.json.encode(row))
    write_lines(folder / "messages", lines)


def write_lines(folder: Path, lines: Sequence[bytes]) -> None:
    with StreamWriter(folder, segment_bytes_max=1 << 20) as writer:
        for start in range(0, len(lines), 100):
            writer.append(lines[start : start + 100])
