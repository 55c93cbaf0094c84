"""The job `rollup` around the summaries: tables in, tables out."""

from pathlib import Path

from pyspark.sql import SparkSession

from mdserver.pipeline.common import delta, tables
from mdserver.pipeline.rollup import summaries as rollup


def run_rollup(spark: SparkSession, folder: Path) -> dict[str, int]:
    """Summaries of all levels from the archived samples; how many rows each table has now.

    Every table is replaced as a whole: the same samples give the same summaries however often.
    """
    counts = {}
    summaries = rollup.summarise(tables.frame(spark, folder, "stats"))
    for level in rollup.LEVELS:
        if level is not rollup.MINUTE:
            summaries = rollup.merge(summaries, level)
        summaries = summaries.localCheckpoint()
        rows = summaries.toArrow()
        delta.replace(folder, level.table, rows)
        counts[level.table] = rows.num_rows
    return counts
