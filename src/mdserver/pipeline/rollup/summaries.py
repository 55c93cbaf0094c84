"""Mergeable summaries of samples, of minutes, hours, days and months.

A summary is (n, mean, m2, max, min, last, sketch), in which m2 is the sum of squared distances from
the mean. Two summaries merge into the summary of both (Chan, Golub and LeVeque 1979, "Updating
Formulae and a Pairwise Algorithm for Computing Sample Variances"). So late samples make a summary
of their own that merges with the one of their minute, and any period is answered from summaries
alone. The sketch is a KLL sketch (Karnin, Lang and Liberty 2016), for quantiles. A month has 30
days, counted from the Unix epoch, as in the server's statistics.
"""

import datetime as dt
from pathlib import Path

from attrs import frozen
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

WINDOWS_VIEW = Path(__file__).with_name("windows.sql")
"""A view of the twelve windows, in SQL that both Spark and DuckDB take."""
KEY = ["node", "indicator"]
DAY_S = 86_400


@frozen
class Level:
    """A level of summaries: its table, and the length of its periods."""

    table: str
    seconds: int


MINUTE = Level("stats_minute", 60)
HOUR = Level("stats_hour", 3_600)
DAY = Level("stats_day", DAY_S)
MONTH = Level("stats_month", 30 * DAY_S)
LEVELS = (MINUTE, HOUR, DAY, MONTH)
WINDOWS_S = tuple(count * unit for unit in (60, 3_600, DAY_S, 30 * DAY_S) for count in (1, 5, 15))


def summarise(samples: DataFrame, level: Level = MINUTE) -> DataFrame:
    """Return one summary for each period, node and indicator.

    `samples` have the columns ts, node, indicator and value.
    """
    value = f.col("value")
    return samples.groupBy(_period("ts", level), *KEY).agg(
        f.count(value).alias("n"),
        f.avg(value).alias("mean"),
        (f.var_pop(value) * f.count(value)).alias("m2"),
        f.max(value).alias("max"),
        f.min(value).alias("min"),
        f.max_by(value, "ts").alias("last"),
        f.max("ts").alias("last_ts"),
        f.kll_sketch_agg_double(value).alias("sketch"),
    )


def merge(summaries: DataFrame, level: Level) -> DataFrame:
    """Merge summaries of shorter or equal periods into those of a level."""
    return summaries.groupBy(_period("period", level), *KEY).agg(*_merged())


def window(summaries: DataFrame, end: dt.datetime, seconds: int) -> DataFrame:
    """Return maximum, average and standard deviation (of the population) of the time before `end`.

    `end` is the end of a period of the summaries' level, and is excluded; `seconds` is the length
    of the window. Columns: node, indicator, max, avg, stddev, n, p50, p99.
    """
    start = end - dt.timedelta(seconds=seconds)
    inside = summaries.where((f.col("period") >= f.lit(start)) & (f.col("period") < f.lit(end)))
    quantile = f.kll_sketch_get_quantile_double
    return (
        inside.groupBy(*KEY)
        .agg(*_merged())
        .select(
            *KEY,
            "max",
            f.col("mean").alias("avg"),
            f.sqrt(f.col("m2") / f.col("n")).alias("stddev"),
            "n",
            quantile("sketch", f.lit(0.5)).alias("p50"),
            quantile("sketch", f.lit(0.99)).alias("p99"),
        )
    )


def _period(column: str, level: Level) -> Column:
    """Return the start of the period of a level in which the time of the column lies."""
    seconds = f.unix_seconds(column)
    return f.timestamp_seconds(seconds - seconds % level.seconds).alias("period")


def _merged() -> list[Column]:
    """Return the aggregates that merge the summaries of a group."""
    moments = f.collect_list(f.struct(f.col("n").cast("double").alias("n"), "mean", "m2"))
    zero = f.struct(*(f.lit(0.0).alias(name) for name in ("n", "mean", "m2")))
    both = f.aggregate(moments, zero, _merge_two)
    return [
        f.sum("n").alias("n"),
        both["mean"].alias("mean"),
        both["m2"].alias("m2"),
        f.max("max").alias("max"),
        f.min("min").alias("min"),
        f.max_by("last", "last_ts").alias("last"),
        f.max("last_ts").alias("last_ts"),
        f.kll_merge_agg_double("sketch").alias("sketch"),
    ]


def _merge_two(left: Column, right: Column) -> Column:
    """Return n, mean and m2 of both parts together.

    With sums of squares a mean that is large beside the deviation would leave no digits of it.
    """
    n = left["n"] + right["n"]
    apart = right["mean"] - left["mean"]
    share = right["n"] / n
    both = f.struct(
        n.alias("n"),
        (left["mean"] + apart * share).alias("mean"),
        (left["m2"] + right["m2"] + apart * apart * left["n"] * share).alias("m2"),
    )
    # The first summary is taken as it is: the square of its distance from the zero that the
    # aggregate begins with may be infinite.
    return f.when(left["n"] == 0, right).otherwise(both)
