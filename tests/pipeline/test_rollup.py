"""Summaries merge to what a plain computation over all samples gives."""

import datetime as dt
import random
import statistics
from typing import Any

import pytest

from mdserver.pipeline.rollup import summaries as rollup

pytestmark = pytest.mark.pipeline

SAMPLE = "ts timestamp, node string, indicator string, value double"
# Midnight of a day that begins a 30-day month since the epoch, so that every window ends whole.
END = dt.datetime.fromtimestamp(680 * 30 * rollup.DAY_S, dt.UTC)


def samples() -> list[tuple[dt.datetime, str, str, float]]:
    """Sparse over 15 months, dense in the last hour; a mean that would swallow sums of squares."""
    rng = random.Random(7)
    seconds = [rng.randrange(1, 899) for _ in range(300)]
    seconds += [rng.randrange(1, 15 * 3600) for _ in range(300)]
    seconds += [rng.randrange(1, 15 * 30 * rollup.DAY_S) for _ in range(900)]
    return [
        # The index makes moments differ, so that "last" is one sample and no other.
        (
            END - dt.timedelta(seconds=second, microseconds=index),
            "n1",
            "sessions",
            1e9 + rng.gauss(0, 3),
        )
        for index, second in enumerate(seconds)
    ]


def test_the_twelve_windows_equal_a_plain_computation(spark: Any) -> None:
    rows = samples()
    minutes = rollup.summarise(spark.createDataFrame(rows, SAMPLE)).localCheckpoint()
    tables = [minutes]
    for level in rollup.LEVELS[1:]:
        tables.append(rollup.merge(tables[-1], level).localCheckpoint())
    for index, seconds in enumerate(rollup.WINDOWS_S):
        table = tables[index // 3]
        (row,) = rollup.window(table, END, seconds).collect()
        inside = [v for ts, _, _, v in rows if END > ts >= END - dt.timedelta(seconds=seconds)]
        assert row["n"] == len(inside)
        assert row["max"] == max(inside)
        assert row["avg"] == pytest.approx(statistics.fmean(inside), rel=1e-12)
        assert row["stddev"] == pytest.approx(statistics.pstdev(inside), rel=1e-6)
        assert row["p50"] == pytest.approx(statistics.median(inside), abs=1.0)


def test_late_samples_are_one_more_summary_of_their_minute(spark: Any) -> None:
    rows = samples()[:300]
    early, late = rows[::2], rows[1::2]
    parts = rollup.summarise(spark.createDataFrame(early, SAMPLE)).unionByName(
        rollup.summarise(spark.createDataFrame(late, SAMPLE))
    )
    whole = rollup.summarise(spark.createDataFrame(rows, SAMPLE))
    columns = ["period", "n", "max", "min", "last"]
    merged = rollup.merge(parts, rollup.MINUTE).select(*columns).orderBy("period").collect()
    assert merged == whole.select(*columns).orderBy("period").collect()
