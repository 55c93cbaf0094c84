"""The benchmark of a replay, small: all messages come again, and memory and pace are told."""

from pathlib import Path

import pytest

from mdserver.bench import replay
from mdserver.bench.processes import BenchError
from mdserver.pipeline.replay.job import rows
from mdserver.pipeline.replay.windows import Selection

pytestmark = pytest.mark.pipeline


def test_the_table_is_in_order_of_time_once_it_is_sorted(tmp_path: Path) -> None:
    load = replay.ReplayLoad(rows=5_000, rate=1_000)
    replay.write_tables(tmp_path, load)
    found = list(rows(tmp_path, Selection("/bench/*")))
    assert [row["seq"] for row in found] == list(range(1, 5_001))
    assert [row["seq"] for row in found if row["subject"] == replay.PACE_SUBJECT] == [
        1,
        1_001,
        2_001,
        3_001,
        4_001,
    ]


@pytest.mark.slow
def test_a_replay_is_measured(tmp_path: Path) -> None:
    load = replay.ReplayLoad(rows=15_000, rate=10_000)
    replay.write_tables(tmp_path, load)
    found = replay.measure(tmp_path, load)
    assert found.rows == load.rows
    assert found.resident_mb > 10
    assert found.pace > 0


@pytest.mark.slow
def test_a_replay_that_fails_is_no_figure(tmp_path: Path) -> None:
    told = r"0 of 10000 messages were published again\nmdserver: .* has no table messages"
    with pytest.raises(BenchError, match=told):
        replay.measure(tmp_path, replay.ReplayLoad(rows=10_000, rate=10_000))
