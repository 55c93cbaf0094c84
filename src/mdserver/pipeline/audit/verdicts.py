"""The job `audit`: what subscribers say they got, held against what was archived.

A receipt is a range (history, subject, epoch, seq_lo..seq_hi) with a count and a sum of checksums.
The archive's counts and sums up to each seq (prefix sums) give what any range must show, so a
receipt is judged by looking up its two ends, however many deliveries it stands for. A client ends a
range where its numbering breaks, so a loss lies between two ranges of a session and has an exact
place. A second sum, weighted by position, gives the place of a message that was altered.

A receipt that the member did not confirm (`verified` is false) is a claim: where the archive agrees
it is as good as any other, and where not it proves nothing against the server. Those of one session
belong together only where they are of one `owner`, as anybody may use the name of a session.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from mdserver.pipeline.audit.ranges import located

PLACE = ["history", "subject", "epoch"]
VIEW = ["owner", "session", "history", "subject"]
SAME_RECEIPT = [*VIEW, "epoch", "seq_lo", "seq_hi", "n", "crc_sum", "crc_at", "dups", "reordered"]
GRACE_S = 5
WIDE = "decimal(38,0)"  # for sums that 64 bits do not hold

WHOLE = ("exact", "conflated")
ARCHIVE_LACKS = ("not_archived", "unknown_epoch")
"""Verdicts about the archive: the subscriber has more than it."""


def promised(messages: DataFrame) -> DataFrame:
    """Return the messages that subscribers are promised, each once.

    STANDARD messages promise nothing and have no place.
    """
    return messages.where("qos = 'GUARANTEED'").dropDuplicates([*PLACE, "seq"])


def each_once(receipts: DataFrame) -> DataFrame:
    """Return receipts, each once although its client sent it again, with `owner` and `verified`.

    A client repeats what it did not hear to have arrived; a receipt that was confirmed once is
    confirmed. Lines of older servers, which say nothing of that, prove something.
    """
    owner = f.coalesce("owner", f.lit(""))
    proves = f.coalesce("verified", f.lit(True))
    known = receipts.withColumn("owner", owner)
    confirmed = f.max(proves).over(Window.partitionBy(*SAME_RECEIPT))
    return known.withColumn("verified", confirmed).dropDuplicates(SAME_RECEIPT)


def acked_not_archived(published: DataFrame, messages: DataFrame) -> DataFrame:
    """Publications that were acknowledged (events of `events_publish`) and that the archive lacks.

    What a member acknowledged after the last message of its that is archived is not judged: the
    archive is still to get there. Columns: node, history, subject, epoch, seq, publisher, number.
    """
    reached = messages.groupBy("node").agg(f.max("ts_server").alias("reached"))
    acked = published.where("event = 'publish' and qos = 'GUARANTEED' and seq > 0")
    return (
        acked.join(reached, "node", "left")
        .where("reached is null or ts <= reached")
        .select("node", *PLACE, "seq", "publisher", "number")
        .distinct()
        .join(messages.select(*PLACE, "seq"), [*PLACE, "seq"], "left_anti")
    )


def judge_ranges(messages: DataFrame, receipts: DataFrame) -> DataFrame:
    """Receipts with `expected_n`, `verdict`, `first_bad_seq` (null when exact) and `reason`."""
    along = Window.partitionBy(*PLACE).orderBy("seq")
    at = f.col("crc").cast(WIDE) * f.col("seq")
    sums = messages.select(
        *PLACE,
        "seq",
        f.row_number().over(along).alias("count_to"),
        f.sum("crc").over(along).alias("crc_to"),
        f.sum(at).over(along).alias("at_to"),
        "crc",
        at.alias("at"),
    )
    low = sums.select(
        *PLACE,
        f.col("seq").alias("seq_lo"),
        (f.col("count_to") - 1).alias("count_before"),
        (f.col("crc_to") - f.col("crc")).alias("crc_before"),
        (f.col("at_to") - f.col("at")).alias("at_before"),
    )
    high = sums.select(*PLACE, f.col("seq").alias("seq_hi"), "count_to", "crc_to", "at_to")
    epochs = messages.select(*PLACE).distinct().withColumn("known", f.lit(True))
    return (
        receipts.join(low, [*PLACE, "seq_lo"], "left")
        .join(high, [*PLACE, "seq_hi"], "left")
        .join(epochs, PLACE, "left")
        .withColumn("expected_n", f.col("count_to") - f.col("count_before"))
        .withColumn("expected_crc", f.col("crc_to") - f.col("crc_before"))
        .withColumn("altered", f.col("crc_sum") - f.col("expected_crc"))
        .withColumn("altered_at", f.col("crc_at") - _expected_at())
        .withColumn("verdict", _verdict())
        .withColumn("first_bad_seq", f.when(is_bad() | lacks(), _first_bad()))
        .withColumn("reason", _reason())
        .select(*receipts.columns, "expected_n", "verdict", "first_bad_seq", "reason")
    )


def find_gaps(messages: DataFrame, receipts: DataFrame) -> DataFrame:
    """What a session missed between two of its ranges, or after its last one.

    Columns: owner, session, subscriber, via, history, subject, seq_lo, seq_hi (the first and the
    last message that it missed), n (archived messages from there to there), verified (whether the
    receipts at both of its ends are), left_out (so many receipts of its owner the server did not
    write down: they may be the reason, so that nobody can tell).
    What was committed within `GRACE_S` before the end of the last range may still have been under
    way, and is no loss. Sequence numbers go on across epochs, so a gap may span a change of epoch.
    """
    order = Window.partitionBy(*VIEW).orderBy("seq_lo", "seq_hi")
    # A subscription that asked for conflation gets what is left out from nowhere.
    asked = receipts.where("conflated > 0").select(*VIEW).distinct()
    left_out = f.sum(f.coalesce("left_out", f.lit(0))).over(Window.partitionBy("owner"))
    seen = (
        receipts.withColumn("left_out", left_out)
        .join(asked, VIEW, "left_anti")
        .withColumn(
            "reached", f.max("seq_hi").over(order.rowsBetween(Window.unboundedPreceding, 0))
        )
    )
    named = [*VIEW, "subscriber", "via"]
    both = f.col("verified") & f.lead("verified").over(order)
    between = seen.select(
        *named,
        both.alias("verified"),
        "left_out",
        (f.col("reached") + 1).alias("low"),
        (f.lead("seq_lo").over(order) - 1).alias("high"),
    )
    after = seen.groupBy(*VIEW).agg(
        f.max_by("subscriber", "seq_hi").alias("subscriber"),
        f.max_by("via", "seq_hi").alias("via"),
        f.max_by("verified", "seq_hi").alias("verified"),
        f.max("left_out").alias("left_out"),
        (f.max("seq_hi") + 1).alias("low"),
        (f.max("closed_ts") - f.expr(f"interval {GRACE_S} seconds 1 microsecond")).alias("until"),
    )
    ever = after.withColumn("since", f.timestamp_seconds(f.lit(0)))
    reached = located(messages, ever, "ts_server", "since", "until")
    after = reached.withColumn("high", f.col("last")).select(*between.columns)
    candidates = between.unionByName(after).where("low <= high")
    return (
        located(messages, candidates, "seq", "low", "high")
        .where("n > 0")
        .select(
            *named,
            f.col("first").alias("seq_lo"),
            f.col("last").alias("seq_hi"),
            "n",
            "verified",
            "left_out",
        )
    )


def is_bad() -> Column:
    """Whether a judged receipt shows that the subscriber did not get what it should."""
    return ~f.col("verdict").isin(*WHOLE, *ARCHIVE_LACKS)


def lacks() -> Column:
    """Whether the verdict says that the archive has less than the subscriber."""
    return f.col("verdict").isin(*ARCHIVE_LACKS)


def _expected_at() -> Column:
    """The archive's sum of checksums, each times its distance from the range's beginning."""
    return f.col("at_to") - f.col("at_before") - f.col("expected_crc") * f.col("seq_lo").cast(WIDE)


def _first_bad() -> Column:
    """Where the range is wrong, or null if nobody can tell.

    One message that was altered or is missing on one side changed the sum of checksums by d and the
    weighted one by d times its distance. What came twice or late begins a range.
    """
    apart = f.abs(f.col("n") - f.col("expected_n"))
    one = (
        (apart <= 1)
        & (f.col("altered") != 0)
        & (f.col("altered_at") % f.col("altered") == 0)
        & f.col("verdict").isin("loss", "dup_or_corrupt", "not_archived")
    )
    place = f.col("seq_lo") + (f.col("altered_at") / f.col("altered")).cast("bigint")
    found = f.when(one & place.between(f.col("seq_lo"), f.col("seq_hi")), place)
    begins = (f.col("dups") > 0) | (f.col("reordered") > 0) | f.col("known").isNull()
    found = found.when(begins | f.col("count_before").isNull(), f.col("seq_lo"))
    return found.when(f.col("count_to").isNull(), f.col("seq_hi"))


def _verdict() -> Column:
    ends_known = f.col("count_to").isNotNull() & f.col("count_before").isNotNull()
    verdict = f.when(f.col("known").isNull(), f.lit("unknown_epoch"))
    verdict = verdict.when(~ends_known, f.lit("not_archived"))
    # Each message of a range counts once: more than the archive has are some that it lacks.
    more = f.col("n") + f.col("conflated") > f.col("expected_n")
    verdict = verdict.when(more, f.lit("not_archived"))
    verdict = verdict.when(f.col("conflated") > 0, f.lit("conflated"))
    verdict = verdict.when(f.col("n") < f.col("expected_n"), f.lit("loss"))
    wrong = (f.col("altered") != 0) | (f.col("altered_at") != 0)
    verdict = verdict.when(wrong | (f.col("dups") > 0), f.lit("dup_or_corrupt"))
    verdict = verdict.when(f.col("reordered") > 0, f.lit("reordered"))
    return verdict.otherwise("exact")


def _reason() -> Column:
    verdict = f.col("verdict")
    numbers = f.format_string(
        "%d received, %d archived, %d twice, %d out of order",
        f.col("n"),
        f.col("expected_n"),
        f.col("dups"),
        f.col("reordered"),
    )
    corrupt = (f.col("n") == f.col("expected_n")) & (f.col("dups") == 0)
    ends = f.col("expected_n").isNull()
    reason = f.when(verdict == "unknown_epoch", f.lit("the archive has nothing of this epoch"))
    reason = reason.when(
        (verdict == "not_archived") & ends, f.lit("an end of the range is not archived")
    )
    reason = reason.when(
        (verdict == "dup_or_corrupt") & corrupt, f.lit("checksums differ: content was altered")
    )
    return reason.when(is_bad() | lacks(), numbers)
