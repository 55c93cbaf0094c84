"""The number of archived messages in a range, by prefix counts, for very many ranges at once.

Messages and the two ends of each range are sorted together once, and messages are counted on the
way. The number in a range is the difference of the counts at its ends. So the cost is that of
sorting messages and ranges, not that of joining each range to its messages.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

SUBJECT = ["history", "subject"]
LOW, MESSAGE, HIGH = 0, 1, 2
"""The order of entries at the same place: both ends of a range belong to it, so its low end comes
before the message there, and its high end after it."""


def located(messages: DataFrame, asked: DataFrame, place: str, low: str, high: str) -> DataFrame:
    """Return ranges with what the archive has in them: `n`, `first` and `last`, null if n is 0.

    `asked` has a history, a subject, and a range of values of the column `place` of `messages`,
    from the column `low` to the column `high`, both included. Its other columns are kept, and equal
    rows become one. `first` and `last` are seqs.
    """
    asked = asked.distinct()
    whole = f.struct(*asked.columns)
    nothing = f.lit(None).cast("bigint")
    lines = messages.select(
        *SUBJECT,
        f.col(place).alias("at"),
        f.lit(MESSAGE).alias("kind"),
        "seq",
        f.lit(None).cast(asked.schema).alias("asked"),
    )
    # Both ends come of one row: Spark would compute `asked` a second time for a second frame of it.
    both = f.array(
        *(
            f.struct(f.col(column).alias("at"), f.lit(kind).alias("kind"))
            for kind, column in ((LOW, low), (HIGH, high))
        )
    )
    ends = asked.select(*SUBJECT, whole.alias("asked"), f.explode(both).alias("end"))
    lines = lines.unionByName(
        ends.select(*SUBJECT, "end.at", "end.kind", nothing.alias("seq"), "asked")
    )
    before = Window.partitionBy(*SUBJECT).orderBy("at", "kind")
    behind = Window.partitionBy(*SUBJECT).orderBy(f.desc("at"), f.desc("kind"))
    so_far = Window.unboundedPreceding, Window.currentRow
    seen = lines.select(
        "asked",
        "kind",
        f.count("seq").over(before.rowsBetween(*so_far)).alias("count"),
        f.last("seq", ignorenulls=True).over(before.rowsBetween(*so_far)).alias("previous"),
        f.last("seq", ignorenulls=True).over(behind.rowsBetween(*so_far)).alias("next"),
    ).where("asked is not null")
    found = seen.groupBy("asked").agg(
        _at(LOW, "count").alias("count_low"),
        _at(HIGH, "count").alias("count_high"),
        _at(LOW, "next").alias("next_low"),
        _at(HIGH, "previous").alias("previous_high"),
    )
    # A range whose high end is before its low end has a negative difference, and no messages.
    number = f.greatest(f.col("count_high") - f.col("count_low"), f.lit(0).cast("bigint"))
    return found.select(
        "asked.*",
        number.alias("n"),
        f.when(number > 0, f.col("next_low")).alias("first"),
        f.when(number > 0, f.col("previous_high")).alias("last"),
    )


def _at(kind: int, column: str) -> Column:
    """Return the value of a column in the one row of a range that is its end of this kind."""
    return f.max(f.when(f.col("kind") == kind, f.col(column)))
