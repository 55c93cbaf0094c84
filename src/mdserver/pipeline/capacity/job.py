"""The job `capacity` around the model: it reads runs of benchmarks, and returns a plan."""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from mdserver.pipeline.capacity import model, report
from mdserver.pipeline.common import delta, places, schema, session, tables
from mdserver.pipeline.common.places import Tables

SAME_RUN = ("time", "system", "bench", "mode", "encoding", "connections", "content_bytes", "count")
"""The columns in which two lines of benchmarks differ."""


def run_capacity(
    spark: SparkSession,
    files: Sequence[Path],
    folder: Tables | None,
    demand: model.Demand,
    page: Path | None,
) -> model.Plan:
    """Plan a cluster from the lines of benchmarks, and from those in the table `bench_runs`.

    With a `folder` of tables the lines are added to that table, each once. A report is written to
    `page` unless that is None. Raises PipelineError if the runs are not sufficient for the demand.
    """
    runs = spark.read.schema(schema.BENCH_ROW).json([str(file) for file in files])
    runs = runs.where("bench is not null")
    if folder is not None:
        session.check_place(folder)
        delta.table(folder, "bench_runs")
        with places.at_hand(folder) as near:
            runs = runs.distinct()
            stored = tables.frame(spark, near, "bench_runs")
            # A line that an earlier release stored lacks columns, and is still the same line.
            same = [runs[name].eqNullSafe(stored[name]) for name in SAME_RUN]
            runs = stored.join(runs, same, "left_anti").unionByName(runs).localCheckpoint()
        delta.replace(folder, "bench_runs", runs.toArrow())
    found = model.observations(runs).collect()
    measured = [model.Observation(**row.asDict()) for row in found]
    plan = model.plan(model.fit_all(measured), demand)
    if page is not None:
        page.write_text(report.page(plan, demand), encoding="utf-8")
    return plan
