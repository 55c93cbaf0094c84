"""Counts of messages in ranges: by sorting once, the same as by looking at each message."""

import random
from typing import Any

import pytest

from mdserver.pipeline.audit.ranges import located

pytestmark = pytest.mark.pipeline

MESSAGE = "history string, subject string, seq bigint"
ASKED = "name bigint, history string, subject string, low bigint, high bigint"


def test_ranges_have_what_is_between_their_ends(spark: Any) -> None:
    """Of two subjects with holes; some ranges are empty, and some end before they begin."""
    rng = random.Random(7)
    messages = [
        ("h", subject, seq) for subject in ("/a", "/b") for seq in rng.sample(range(60), 25)
    ]
    asked = [
        (name, "h", rng.choice(("/a", "/b", "/none")), rng.randrange(70), rng.randrange(70))
        for name in range(300)
    ]
    frames = spark.createDataFrame(messages, MESSAGE), spark.createDataFrame(asked, ASKED)
    found = {row["name"]: row for row in located(*frames, "seq", "low", "high").collect()}
    for name, _, subject, low, high in asked:
        inside = [seq for _, each, seq in messages if each == subject and low <= seq <= high]
        row = found.pop(name)
        assert (row["n"], row["first"], row["last"]) == (
            len(inside),
            min(inside, default=None),
            max(inside, default=None),
        )
    assert not found


def test_what_is_asked_is_computed_once(spark: Any) -> None:
    """It may come of a long computation, which Spark would do again for a second use of it."""
    messages = spark.range(1).selectExpr("'h' as history", "'/a' as subject", "id as seq")
    asked = spark.range(2).selectExpr(
        "'h' as history", "'/a' as subject", "id as low", "id + 1 as high"
    )
    plan = located(messages, asked, "seq", "low", "high")._jdf.queryExecution().optimizedPlan()
    assert plan.toString().count("Range (0, 2,") == 1
    assert plan.toString().count("Range (0, 1,") == 1
