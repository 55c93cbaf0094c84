"""The comparison of a chaos run: it names what is lost, doubled or altered, and nothing else."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from attrs import evolve
from deltalake import write_deltalake

from mdserver.client import Qos
from mdserver.pipeline.common import delta, schema
from tests.pipeline.chaos.ledger import Destroyed, Ledger, judged
from tests.pipeline.chaos.published import Given, drawn

pytestmark = pytest.mark.pipeline

COUNT = 40


@pytest.fixture
def ledger() -> Ledger:
    """Messages that were acknowledged, all of which are promised."""
    rng = random.Random(1)
    ledger = Ledger()
    for number in range(1, COUNT + 1):
        given = evolve(drawn(rng, number), qos=Qos.GUARANTEED, compressed=False)
        ledger.given[number] = given
        ledger.acknowledged[number] = evolve(given, epoch=1, seq=number)
    return ledger


def write(tables: Path, name: str, rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows, schema=schema.TABLES[name])
    write_deltalake(delta.table(tables, name), table, mode="append")


def archive(tables: Path, given: list[Given], holes: list[tuple[int, int]] = []) -> None:  # noqa: B006
    write(tables, "messages", [{**each.row(), "dt": "2026-03-01"} for each in given])
    hole = {"stream": "messages", "reason": "missing", "src_kind": "journal"}
    rows = [{**hole, "src_partition": first, "src_pos": last} for first, last in holes]
    write(tables, "quarantine", rows)


def test_a_whole_archive(ledger: Ledger, tmp_path: Path) -> None:
    archive(tmp_path, list(ledger.acknowledged.values()))
    verdict = judged(ledger, tmp_path)
    assert (verdict.archived, verdict.lost, verdict.problems) == (COUNT, 0, [])


def test_what_was_destroyed_has_to_be_in_a_named_hole(ledger: Ledger, tmp_path: Path) -> None:
    kept = [each for number, each in ledger.acknowledged.items() if number > 4]
    ledger.destroyed[1] = [Destroyed(segment=7, position=5, replaced=False)]
    ledger.destroyed[2] = [Destroyed(segment=9, position=5, replaced=False)]  # not named
    ledger.destroyed[3] = [Destroyed(segment=4, position=5, replaced=True)]  # it was archived
    archive(tmp_path, kept, [(6, 7)])
    verdict = judged(ledger, tmp_path)
    assert (verdict.archived, verdict.lost, verdict.holes) == (COUNT - 4, 1, 1)
    (problem,) = verdict.problems
    assert "3 acknowledged, and neither archived nor in a named hole: [2, 3, 4]" in problem
    ledger.replace()
    assert "[3, 4]" in judged(ledger, tmp_path).problems[0]


@pytest.mark.parametrize(
    "altered",
    [
        {"content": b"0000000007 other"},
        {"closure": "another"},
        {"reply_subject": "/another/one"},
        {"fields": {"another": "1"}},
        {"seq": 8},
        {"subject": "/another/one"},
    ],
    ids=lambda each: next(iter(each)),
)
def test_each_property_counts(ledger: Ledger, tmp_path: Path, altered: dict[str, Any]) -> None:
    rows = dict(ledger.acknowledged)
    rows[7] = evolve(rows[7], **altered)
    archive(tmp_path, list(rows.values()))
    (problem,) = judged(ledger, tmp_path).problems
    assert problem.startswith(f"message 7 differs: {{'{next(iter(altered))}'")


def test_rows_twice_and_rows_of_nobody(ledger: Ledger, tmp_path: Path) -> None:
    foreign = evolve(ledger.acknowledged[1], content=b"0000004711")
    archive(tmp_path, [*ledger.acknowledged.values(), ledger.acknowledged[5], foreign])
    problems = judged(ledger, tmp_path).problems
    assert problems == [
        "1 archived more than once: [5]",
        "1 archived, and never published: [4711]",
    ]
