"""The clock of `derive` in a batch: partitions of Kafka are not ordered by time, a journal is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from mdserver.client import Numbering
from mdserver.pipeline.derive import rules
from mdserver.pipeline.derive.batches import Derive
from mdserver.pipeline.derive.operators import US, Derived
from mdserver.pipeline.derive.step_log import StepLog
from mdserver.pipeline.derive.steps import BatchCounts

RULES = """\
rules:
  - {name: mean, kind: window, function: avg, seconds: 10, from: /a/*, to: "/mean/{1}"}
  - {name: silent, kind: stale, seconds: 60, from: /a/*, to: "/silent/{1}"}
"""
HOUR_S = 3_600
WATCHED, OTHER, UNWATCHED = "/a/p", "/a/q", "/weather"
COLUMNS = pa.schema(
    [
        ("value", pa.binary()),
        ("reason", pa.string()),
        ("ts", pa.int64()),
        ("subject", pa.string()),
        ("epoch", pa.int64()),
        ("seq", pa.int64()),
        ("content", pa.string()),
        ("fields", pa.map_(pa.string(), pa.string())),
        ("src_kind", pa.string()),
        ("src_topic", pa.string()),
        ("src_partition", pa.int64()),
        ("src_pos", pa.int64()),
    ]
)


class Recorder:
    """In place of the connection to a server: keeps what is published."""

    numbering = Numbering()

    def __init__(self) -> None:
        self.published: list[Derived] = []

    def publish(self, derived: Sequence[Derived]) -> list[Any]:
        self.published += derived
        return []


class Batch:
    """In place of a frame of Spark's: the rows (partition, subject, second, content).

    Without a subject a row stands for a line that cannot be used. Topics have ten partitions each.
    """

    def __init__(self, kind: str, rows: Sequence[tuple[int, str, float, str]]) -> None:
        self._rows = [
            {
                "value": content.encode(),
                "reason": None if subject else "no JSON",
                "ts": int(second * US) if subject else None,
                "subject": subject or None,
                "content": content,
                "src_kind": kind,
                "src_topic": f"topic{partition // 10}.messages" if kind == "kafka" else None,
                "src_partition": partition % 10,
            }
            for partition, subject, second, content in rows
        ]

    def toArrow(self) -> pa.Table:  # noqa: N802 (Spark's name)
        return pa.Table.from_pylist(self._rows, COLUMNS)


class Run:
    """A run of the job without Spark and without a server."""

    def __init__(self, folder: Path, kind: str) -> None:
        path = folder / "rules.yaml"
        path.write_text(RULES)
        loaded = rules.load(path)
        self._kind = kind
        self._publisher = Recorder()
        self._number = 0
        self.counts: list[BatchCounts] = []
        self._derive = Derive(
            loaded,
            StepLog(folder / "steps", loaded),
            cast("Any", self._publisher),
            folder / "tables",
            self.counts.append,
        )

    def batch(self, *rows: tuple[int, str, float, str]) -> None:
        self._derive.batch(cast("Any", Batch(self._kind, rows)), self._number)
        self._number += 1

    def said(self, subject: str) -> list[tuple[int, str]]:
        """The second and the content of each message that was published on a subject."""
        published = self._publisher.published
        return [(each.ts // US, each.content) for each in published if each.subject == subject]


@pytest.mark.parametrize("second", [1, 10], ids=["same topic", "other topic, same number"])
@pytest.mark.parametrize("ahead", [UNWATCHED, OTHER])
def test_a_partition_that_is_ahead_closes_no_period_of_another(
    tmp_path: Path, ahead: str, second: int
) -> None:
    """The job catches up: hour 1 of a partition stands in one batch with hour 9 of another."""
    run = Run(tmp_path, "kafka")
    early, late = HOUR_S, 9 * HOUR_S
    run.batch((0, WATCHED, early, "10"), (second, ahead, late, "1"))
    run.batch((0, WATCHED, early + 3, "20"), (second, ahead, late + 1, "1"))
    run.batch((0, WATCHED, early + 9.5, "30"), (second, ahead, late + 2, "1"))
    assert run.said("/mean/p") == []
    assert run.said("/silent/p") == []
    run.batch((0, UNWATCHED, early + 11, "rain"), (second, ahead, late + 3, "1"))
    assert run.said("/mean/p") == [(early + 10, "20")]
    assert [each.refused for each in run.counts] == [0, 0, 0, 0]


def test_a_partition_without_new_records_holds_nobody_up(tmp_path: Path) -> None:
    run = Run(tmp_path, "kafka")
    run.batch((0, WATCHED, HOUR_S, "10"))
    run.batch((1, UNWATCHED, HOUR_S + 11, "rain"))
    assert run.said("/mean/p") == [(HOUR_S + 10, "10")]


def test_a_line_that_cannot_be_used_holds_nobody_up(tmp_path: Path) -> None:
    """It has no time."""
    run = Run(tmp_path, "kafka")
    run.batch((0, "", 0, "{"), (1, WATCHED, HOUR_S, "10"), (1, UNWATCHED, HOUR_S + 11, "rain"))
    assert run.said("/mean/p") == [(HOUR_S + 10, "10")]
    assert [each.refused for each in run.counts] == [1]


def test_segments_of_a_journal_are_one_sequence(tmp_path: Path) -> None:
    run = Run(tmp_path, "journal")
    run.batch((1, WATCHED, HOUR_S, "10"), (2, UNWATCHED, HOUR_S + 11, "rain"))
    assert run.said("/mean/p") == [(HOUR_S + 10, "10")]
