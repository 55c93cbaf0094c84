"""The verdicts of the job `audit`: the receipts of subscribers compared with the archive.

A receipt is a range (history, subject, epoch, seq_lo to seq_hi) with sums over it:

    n           the number of messages
    crc_sum     the sum of their checksums
    crc_at      the sum of their checksums, each times its distance seq - seq_lo
    fields_sum  the sum of the checksums of their fields
    fields_at   the same, each times its distance

The archive's sums up to each seq (prefix sums) give the same for any range, as the difference of
its two ends. So a receipt is judged by looking up two rows, however many deliveries it stands for.
If one message was altered, or is missing on one side, `crc_sum` differs by some d and `crc_at` by d
times the distance of the message, so the quotient is its place. Clients of earlier releases say
nothing of fields, nor does a range in which messages may have been conflated; such receipts are
judged by content alone, and `silent_of_fields` returns those of messages that have fields.

The queue of a slow reader may merge messages into one, which has the fields of all of them. A
client sees that by the hole before it, but not if it knows no earlier message of the subject. So if
the fields differ at the first message of a range alone, and the range before it does not end there,
the receipt is `unjudged`.

A client ends a range when the numbering has a hole. So a message that was lost lies between two
ranges of a session, or behind the last one, and its place is exact. That is a gap (`find_gaps`);
the verdict of a range says whether it is whole in itself.

A receipt that the member did not confirm (`verified` is false) is a claim. If the archive agrees,
it is as good as any other; if not, it proves nothing against the server. Receipts of one session
belong together only if they have the same `owner`, because any client may use the name of a
session.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from mdserver.pipeline.audit.archived import ArchivedUntil, with_reached
from mdserver.pipeline.audit.ranges import located
from mdserver.pipeline.common.rows import receipt_numbers

PLACE = ["history", "subject", "epoch"]
VIEW = ["owner", "session", "history", "subject"]
SAME_CONTENT = [*VIEW, "epoch", "seq_lo", "seq_hi", "n", "crc_sum", "crc_at", "dups", "reordered"]
SAME_RECEIPT = [*SAME_CONTENT, "fields_sum", "fields_at"]
GRACE_S = 5
WIDE = "decimal(38,0)"  # for sums that 64 bits do not hold

SUMMED = ("count", "crc", "at", "fields", "fields_at", "differing")
"""The values of messages of which there are sums."""

GAP = [*VIEW, "subscriber", "via", "verified", "left_out"]
"""The columns of a gap beside its numbers. `verified`: whether the receipts at both of its ends
are. `left_out`: how many receipts of its owner the server did not write; one of them may have
covered the gap, so it cannot be judged."""

WHOLE = ("exact", "conflated")
OF_ARCHIVE = ("not_archived", "unknown_epoch", "differing")
"""Verdicts about the archive: it has less than the subscriber, or several contents of a place."""
UNJUDGED = "unjudged"
"""The verdict of a range whose first message may have been merged with others."""


def promised(messages: DataFrame) -> DataFrame:
    """Return the messages that subscribers are promised, each place once.

    STANDARD messages are not promised, and have no position. Rows of one place may differ in
    content or fields, which is a fault of the archive or of a member: `differing` is 1 for these,
    else 0. Columns: history, subject, epoch, seq, ts_server, crc, fields_crc, differing.
    """
    guaranteed = messages.where("qos = 'GUARANTEED'").select(
        *PLACE, "seq", "ts_server", "crc", fields_crc().alias("fields_crc")
    )
    # Sums along the messages of a place then need no second shuffle.
    guaranteed = guaranteed.repartition(*PLACE)
    # Of numbers alone, so that Spark keeps the sums in a hash table and sorts nothing.
    once = guaranteed.groupBy(*PLACE, "seq").agg(
        f.min("ts_server").alias("ts_server"),
        f.min("crc").alias("crc"),
        f.max("crc").alias("other_crc"),
        f.min("fields_crc").alias("fields_crc"),
        f.max("fields_crc").alias("other_fields_crc"),
    )
    differ = (f.col("crc") != f.col("other_crc")) | (
        f.col("fields_crc") != f.col("other_fields_crc")
    )
    return once.withColumn("differing", differ.cast("bigint")).drop("other_crc", "other_fields_crc")


def fields_crc() -> Column:
    """Return the checksum of a message's fields, as `core.message.fields_checksum` computes it."""
    head = f.concat_ws("|", "subject", "epoch", "seq", f.lit(""))

    def text(of: Column) -> Column:
        return f.concat(f.length(of).cast("string"), f.lit(":"), of)

    entries = f.array_sort(f.map_entries("fields"))
    told = f.transform(entries, lambda entry: f.concat(text(entry["key"]), text(entry["value"])))
    has = f.col("fields").isNotNull() & (f.size("fields") > 0)
    return f.when(has, f.crc32(f.concat(head, f.array_join(told, "")))).otherwise(
        f.lit(0).cast("bigint")
    )


def differing(messages: DataFrame) -> DataFrame:
    """Return the places (PLACE and seq) with several contents, of the messages of `promised`."""
    return messages.where("differing > 0").select(*PLACE, "seq")


def each_once(receipts: DataFrame) -> DataFrame:
    """Return each receipt once, with `owner` and `verified`.

    A client repeats a receipt until the server has taken it. A receipt is confirmed if one of its
    repetitions is. Lines of older servers do not have `verified`, and count as confirmed; they lack
    the sums over fields as well, which a repetition to a newer server has. Of the two the one that
    is confirmed is returned, or else the one with the sums.

    Receipts whose numbers cannot be those of a range are left out: members refuse them, but those
    of earlier releases wrote them.
    """
    owner = f.coalesce("owner", f.lit(""))
    proves = f.coalesce("verified", f.lit(True))
    # Both windows are then computed without a second shuffle.
    known = receipts.where(receipt_numbers()).withColumn("owner", owner).repartition(*SAME_CONTENT)
    confirmed = f.max(proves).over(Window.partitionBy(*SAME_RECEIPT))
    once = known.withColumn("verified", confirmed).dropDuplicates(SAME_RECEIPT)
    told = f.col("fields_sum").isNotNull()
    alike = Window.partitionBy(*SAME_CONTENT)
    # A confirmation of the content alone must not make a member's word of sums over fields.
    confirms = {
        "with_fields": f.max(f.when(told, f.col("verified"))).over(alike),
        "without_fields": f.max(f.when(~told, f.col("verified"))).over(alike),
    }
    better = f.coalesce(f.col("without_fields") & ~f.col("with_fields"), f.lit(False))
    kept = f.when(told, ~better).otherwise(f.col("with_fields").isNull() | better)
    return once.withColumns(confirms).where(kept).drop(*confirms)


def acked_not_archived(
    published: DataFrame, messages: DataFrame, until: ArchivedUntil
) -> DataFrame:
    """Return acknowledged publications (events of `events_publish`) that the archive lacks.

    Of those that a member acknowledged after what is archived of its journal `reached` is false:
    the archive has not come so far, and may get them. Columns: node, history, subject, epoch, seq,
    publisher, number, reached, waiting.
    """
    acked = published.where("event = 'publish' and qos = 'GUARANTEED' and seq > 0")
    lacking = acked.join(messages.select(*PLACE, "seq"), [*PLACE, "seq"], "left_anti")
    found = with_reached(lacking, messages, until)
    columns = ("node", *PLACE, "seq", "publisher", "number", "reached", "waiting")
    return found.select(*columns).distinct()


def sums_at_ends(messages: DataFrame, receipts: DataFrame) -> DataFrame:
    """Return the sums along the messages of a place, up to each message at an end of a receipt.

    There is a row for each such message, with the values of SUMMED: under their names those of the
    message, and with `_to` the sums of all messages of the place up to it.
    """
    summed = {
        "count": f.lit(1).cast("bigint"),
        "crc": f.col("crc"),
        "at": f.col("crc").cast(WIDE) * f.col("seq"),
        "fields": f.col("fields_crc"),
        "fields_at": f.col("fields_crc").cast(WIDE) * f.col("seq"),
        "differing": f.col("differing"),
    }
    along = Window.partitionBy(*PLACE).orderBy("seq")
    sums = messages.select(
        *PLACE,
        "seq",
        *(f.sum(each).over(along).alias(f"{name}_to") for name, each in summed.items()),
        *(each.alias(name) for name, each in summed.items()),
    )
    ends = receipts.select(*PLACE, f.explode(f.array("seq_lo", "seq_hi")).alias("seq"))
    return sums.join(ends.repartition(*PLACE).distinct(), [*PLACE, "seq"], "left_semi")


def judge_ranges(messages: DataFrame, receipts: DataFrame, sums: DataFrame) -> DataFrame:
    """Return the receipts with `expected_n`, `expected_fields`, and what was found of them.

    `verdict`, `first_bad_seq` and `reason` say what was found. `expected_n` is how many messages of
    the range the archive has, and `expected_fields` the sum of the checksums of their fields; both
    are null if it lacks an end of the range. `first_bad_seq` and `reason` are null unless something
    is wrong. `messages` are those of `promised`, `receipts` those of `each_once`, `sums` those of
    `sums_at_ends`, which is read twice.
    """
    low = sums.select(
        *PLACE,
        f.col("seq").alias("seq_lo"),
        f.col("fields").alias("first_fields"),
        *((f.col(f"{name}_to") - f.col(name)).alias(f"{name}_before") for name in SUMMED),
    )
    high = sums.select(*PLACE, f.col("seq").alias("seq_hi"), *(f"{name}_to" for name in SUMMED))
    epochs = messages.select(*PLACE).distinct().withColumn("known", f.lit(True))
    differences = {
        f"expected_{name}": f.col(f"{name}_to") - f.col(f"{name}_before") for name in SUMMED
    }
    earlier = Window.partitionBy(*VIEW, "epoch").orderBy("seq_lo", "seq_hi")
    reached = f.max("count_to").over(earlier.rowsBetween(Window.unboundedPreceding, -1))
    return (
        receipts.repartition(*PLACE)
        .join(low, [*PLACE, "seq_lo"], "left")
        .join(high, [*PLACE, "seq_hi"], "left")
        .join(epochs, PLACE, "left")
        .withColumns(differences)
        .withColumnRenamed("expected_count", "expected_n")
        .withColumns(
            {
                # Whether no message of the subject was left out right before the range.
                "follows": f.coalesce(reached >= f.col("count_before"), f.col("seq_lo") == 1),
                "altered": f.col("crc_sum") - f.col("expected_crc"),
                "altered_at": f.col("crc_at") - _distances("expected_at", "expected_crc"),
                # Null for a receipt that says nothing of fields.
                "fields_altered": f.col("fields_sum") - f.col("expected_fields"),
                "fields_altered_at": f.col("fields_at")
                - _distances("expected_fields_at", "expected_fields"),
            }
        )
        .withColumn("verdict", _verdict())
        .withColumn("first_bad_seq", f.when(is_bad() | of_archive(), _first_bad()))
        .withColumn("reason", _reason())
        .select(
            *receipts.columns,
            *("expected_n", "expected_fields", "verdict", "first_bad_seq", "reason"),
        )
    )


def silent_of_fields(judged: DataFrame) -> DataFrame:
    """Return what receipts of `judge_ranges` say nothing about: fields, of messages that have some.

    Columns: owner, session, subscriber, via, history, subject, n (the messages of these receipts,
    of which some have fields). Of what a subscription conflated nothing is judged anyway.
    """
    silent = judged.where("fields_sum is null and expected_fields <> 0 and verdict <> 'conflated'")
    return silent.groupBy(*VIEW, "subscriber", "via").agg(f.sum("n").alias("n"))


def uncovered(messages: DataFrame, receipts: DataFrame) -> DataFrame:
    """Return the numbers between two ranges of a session, or after its last one.

    Columns: GAP, low and high, both included. There may be no messages of these numbers.

    Messages that were committed within `GRACE_S` before the end of the last range may still have
    been under way, and are no loss. Sequence numbers go on across epochs, so a gap may span a
    change of epoch.
    """
    order = Window.partitionBy(*VIEW).orderBy("seq_lo", "seq_hi")
    # A conflated subscription never gets the messages that conflation leaves out, so its gaps say
    # nothing.
    asked = receipts.where("conflated > 0").select(*VIEW).distinct()
    left_out = f.sum(f.coalesce("left_out", f.lit(0))).over(Window.partitionBy("owner"))
    seen = (
        receipts.withColumn("left_out", left_out)
        .join(asked, VIEW, "left_anti")
        # The greatest seq so far, and not the end of the range before: ranges may overlap.
        .withColumn(
            "reached", f.max("seq_hi").over(order.rowsBetween(Window.unboundedPreceding, 0))
        )
    )
    both = f.col("verified") & f.lead("verified").over(order)
    between = seen.select(
        *VIEW,
        "subscriber",
        "via",
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
    return between.unionByName(after).where("low <= high")


def find_gaps(messages: DataFrame, candidates: DataFrame) -> DataFrame:
    """Return what a session missed between two of its ranges, or after its last one.

    Columns: those of GAP, seq_lo, seq_hi (the first and the last message that it missed), and n
    (archived messages between them, both included). `candidates` are those of `uncovered`, which
    is read twice.
    """
    # Usually nothing was missed, and then no message has to be sorted.
    bounds = candidates.groupBy("history", "subject").agg(
        f.min("low").alias("least"), f.max("high").alias("greatest")
    )
    near = messages.join(bounds, ["history", "subject"]).where("seq between least and greatest")
    return (
        located(near, candidates, "seq", "low", "high")
        .where("n > 0")
        .select(*GAP, f.col("first").alias("seq_lo"), f.col("last").alias("seq_hi"), "n")
    )


def is_bad() -> Column:
    """Return whether a verdict says that the subscriber did not get the range as published."""
    return ~f.col("verdict").isin(*WHOLE, *OF_ARCHIVE, UNJUDGED)


def of_archive() -> Column:
    """Return whether a verdict is about the archive, and not about the delivery."""
    return f.col("verdict").isin(*OF_ARCHIVE)


def _distances(at: str, total: str) -> Column:
    """Return the archive's sum of checksums, each times its distance from the range's beginning.

    Prefix sums have the checksums times seq; with distances that is the sum of crc * seq minus
    seq_lo times the sum of crc.
    """
    return f.col(at) - f.col(total) * f.col("seq_lo").cast(WIDE)


def _first_bad() -> Column:
    """Return the first seq at which the range is wrong, null if the sums do not tell.

    If one message was altered, or is missing on one side, the quotient of the two differences is
    its distance; with more than one it is usually not whole, or lies outside the range. A message
    that came twice or late begins a range, so its place is `seq_lo`.
    """
    apart = f.abs(f.col("n") - f.col("expected_n"))
    found: Column = f.lit(None).cast("bigint")
    for sum_apart, sum_at in (("fields_altered", "fields_altered_at"), ("altered", "altered_at")):
        one = (
            (apart <= 1)
            & (f.col(sum_apart) != 0)
            & (f.col(sum_at) % f.col(sum_apart) == 0)
            & f.col("verdict").isin("loss", "dup_or_corrupt", "not_archived", "differing")
        )
        # A client may say any sums, so the quotient and the place may not fit into 64 bits.
        distance = (f.col(sum_at) / f.col(sum_apart)).try_cast("bigint")
        place = f.try_add("seq_lo", distance)
        found = f.when(one & place.between(f.col("seq_lo"), f.col("seq_hi")), place).otherwise(
            found
        )
    begins = (f.col("dups") > 0) | (f.col("reordered") > 0) | f.col("known").isNull()
    nowhere = found.isNull() & (begins | f.col("count_before").isNull())
    found = f.when(nowhere, f.col("seq_lo")).otherwise(found)
    return f.when(found.isNull() & f.col("count_to").isNull(), f.col("seq_hi")).otherwise(found)


def _fields_wrong() -> Column:
    """Return whether fields differ from the archive's; false if the receipt says nothing."""
    wrong = (f.col("fields_altered") != 0) | (f.col("fields_altered_at") != 0)
    return f.coalesce(wrong, f.lit(False))


def _maybe_merged() -> Column:
    """Return whether all that is wrong is the fields of a first message that may be a merged one.

    The second sum has a message's difference times its distance, which is 0 for the first message.
    One that came without fields is not merged, as that has the fields of all.
    """
    came_with = f.col("first_fields") + f.col("fields_altered") != 0
    first = (f.col("fields_altered_at") == 0) & came_with & ~f.col("follows")
    content = (f.col("altered") != 0) | (f.col("altered_at") != 0)
    return (
        _fields_wrong()
        & f.coalesce(first, f.lit(False))
        & ~content
        & (f.col("dups") == 0)
        & (f.col("reordered") == 0)
    )


def _verdict() -> Column:
    """Return the verdict of a receipt; the first condition that holds decides.

    Faults of the archive are first, because a range that is not archived cannot be held against
    the delivery.
    """
    ends_known = f.col("count_to").isNotNull() & f.col("count_before").isNotNull()
    verdict = f.when(f.col("known").isNull(), f.lit("unknown_epoch"))
    verdict = verdict.when(~ends_known, f.lit("not_archived"))
    # `n` counts each message once, so a greater number means that the archive lacks some.
    more = f.col("n") + f.col("conflated") > f.col("expected_n")
    verdict = verdict.when(more, f.lit("not_archived"))
    verdict = verdict.when(f.col("conflated") > 0, f.lit("conflated"))
    verdict = verdict.when(f.col("n") < f.col("expected_n"), f.lit("loss"))
    wrong = (f.col("altered") != 0) | (f.col("altered_at") != 0) | _fields_wrong()
    verdict = verdict.when(wrong & (f.col("expected_differing") > 0), f.lit("differing"))
    verdict = verdict.when(_maybe_merged(), f.lit(UNJUDGED))
    verdict = verdict.when(wrong | (f.col("dups") > 0), f.lit("dup_or_corrupt"))
    verdict = verdict.when(f.col("reordered") > 0, f.lit("reordered"))
    return verdict.otherwise("exact")


def _reason() -> Column:
    """Return the reason of a verdict in words, null if nothing is wrong."""
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
        verdict == "differing", f.lit("the archive has several contents of a message of the range")
    )
    content = (f.col("altered") != 0) | (f.col("altered_at") != 0)
    what = f.when(content & _fields_wrong(), f.lit("content and fields were altered"))
    what = what.when(content, f.lit("content was altered"))
    what = what.otherwise(f.lit("fields were altered"))
    told = f.concat(f.lit("checksums differ: "), what)
    reason = reason.when((verdict == "dup_or_corrupt") & corrupt, told)
    merged = (
        "the fields of the first message differ: it may stand for earlier ones as well, merged for"
        " a slow reader"
    )
    reason = reason.when(verdict == UNJUDGED, f.lit(merged))
    return reason.when(is_bad() | of_archive(), numbers)
