"""The parsing of lines, as Spark plans it."""

from typing import Any

import pytest
from pyspark.sql import DataFrame

from mdserver.pipeline.common import rows
from mdserver.pipeline.derive.batches import watched
from mdserver.pipeline.derive.rules import Rule

pytestmark = pytest.mark.pipeline

RULE = Rule("r", "last", None, "/a", "/b", "content", None, None)
RAW = (
    "value string, ts_broker timestamp, src_kind string, src_topic string, src_partition bigint,"
    " src_pos bigint"
)


def parsings(frame: DataFrame) -> int:
    """How often the plan parses each line."""
    plan: Any = frame._jdf.queryExecution().optimizedPlan()  # type: ignore[operator]
    return str(plan.toString()).count("from_json(")


@pytest.mark.parametrize("stream", rows.STREAMS.values(), ids=list(rows.STREAMS))
def test_each_line_is_parsed_once(spark: Any, stream: rows.JournalStream) -> None:
    """Seen before: 25 times for a message."""
    raw = spark.createDataFrame([], RAW).union(spark.range(1).selectExpr("'{}'", *["null"] * 5))
    divided = rows.split(rows.parse(raw, stream), stream)
    assert (parsings(divided.good), parsings(divided.bad)) == (1, 1)
    if stream is rows.MESSAGES:
        assert parsings(watched(raw.selectExpr("*", "false as last"), [RULE])) == 1
