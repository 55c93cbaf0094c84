"""Many subjects with one subscriber each, against real servers."""

import sys

import pytest

from mdserver.bench import subjects
from mdserver.bench.encodings import ENCODINGS


@pytest.mark.slow
@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
def test_every_subscriber_gets_its_subject_whole(encoding: str) -> None:
    told: list[str] = []
    load = subjects.SubjectsLoad(ENCODINGS[encoding], subjects=30, batch=20, window=40, seconds=0.6)
    (row,) = subjects.measure(load, told.append)
    assert (row.lost, row.repeated, row.altered) == (0, 0, 0)
    assert row.count >= 20 * subjects.TURNS
    assert row.count % 20 == 0
    assert (row.bench, row.mode, row.connections) == ("subjects", "20 a write", 30)
    assert (row.floor_per_s, row.ratio) == (None, None)
    assert told[0] == "30 subscribers connect"


@pytest.mark.slow
def test_another_version_takes_turns_and_stands_in_the_columns_of_the_floor() -> None:
    load = subjects.SubjectsLoad(
        ENCODINGS["json"], subjects=5, batch=1, window=1, seconds=0.6, against=sys.executable
    )
    (row,) = subjects.measure(load, lambda _: None)
    assert row.floor_per_s
    assert row.ratio == row.per_s / row.floor_per_s
