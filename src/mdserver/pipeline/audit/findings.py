"""All findings of an audit in one form: the rows of the table `audit_findings`.

The column `kind`:

- `loss`, `gap`, `nothing_received`: a subscriber did not get messages;
- `repeated`, `altered`, `out_of_order`: a subscriber got messages, but not as they were published;
- `not_archived`, `unknown_epoch`, `acknowledged_not_archived`, `differing` (several contents of one
  place): faults of the archive, not of a delivery;
- `unjudged`: it is not known whether something is wrong.

The column `proof` is `member` if a member confirms the finding, `claim` if only a client says so.
"""

from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from mdserver.pipeline.audit import verdicts
from mdserver.pipeline.audit.silent import Silent
from mdserver.pipeline.common import schema

DELIVERY = ("loss", "gap", "nothing_received", "repeated", "altered", "out_of_order")
ARCHIVE = ("not_archived", "unknown_epoch", "acknowledged_not_archived", "differing")
UNJUDGED = verdicts.UNJUDGED
SPARK_NAMES = {pa.string(): "string", pa.int64(): "bigint"}


def of_receipts(judged: DataFrame) -> DataFrame:
    """Return the findings of receipts that are not whole, or of which the archive has less.

    Those that may be whole are `unjudged`.
    """
    verdict = f.col("verdict")
    kind = (
        f.when(verdict == "reordered", f.lit("out_of_order"))
        .when((verdict == "dup_or_corrupt") & (f.col("dups") > 0), f.lit("repeated"))
        .when(verdict == "dup_or_corrupt", f.lit("altered"))
        .otherwise(verdict)
    )
    told = verdicts.is_bad() | verdicts.of_archive() | (verdict == verdicts.UNJUDGED)
    return _formed(judged.where(told), kind, member="via")


def of_gaps(gaps: DataFrame) -> DataFrame:
    """Return the findings of messages between receipts, or after the last one."""
    lost = f.col("left_out") > 0
    told = gaps.withColumn(
        "reason",
        f.when(
            lost,
            f.format_string("the server left out %d receipts of this owner", f.col("left_out")),
        ).otherwise(f.lit("no receipt covers them")),
    )
    return _formed(told, f.when(lost, f.lit(UNJUDGED)).otherwise(f.lit("gap")), member="via")


def of_silent(silent: Silent) -> DataFrame:
    """Return the findings of subscriptions without a receipt, and of those that are unjudged."""
    found = silent.found.withColumns(
        {"verified": f.lit(True), "reason": f.lit("subscribed, and no receipt of it is there")}
    )
    unjudged = silent.unjudged.withColumn("verified", f.lit(True))
    return _formed(found, f.lit("nothing_received"), member="via").unionByName(
        _formed(unjudged, f.lit(UNJUDGED), member="via")
    )


def of_unarchived(unarchived: DataFrame) -> DataFrame:
    """Return the findings of acknowledged publications that the archive lacks.

    Those to which it has not come are `unjudged`, in one finding for each subject and reason.
    """
    found = _places(unarchived.where("reached"), "acknowledged to its publisher")
    waiting = (
        unarchived.where("not reached")
        .groupBy("node", *verdicts.PLACE, f.col("waiting").alias("reason"))
        .agg(
            f.min("seq").alias("seq_lo"),
            f.max("seq").alias("seq_hi"),
            f.count_distinct("seq").alias("n"),
        )
        .withColumn("verified", f.lit(True))
    )
    return _formed(found, f.lit("acknowledged_not_archived"), member="node").unionByName(
        _formed(waiting, f.lit(UNJUDGED), member="node")
    )


def of_differing(places: DataFrame) -> DataFrame:
    """Return the findings of places of which the archive has several contents."""
    found = _places(places, "the archive has several contents of this message")
    first = found.withColumn("first_bad_seq", f.col("seq"))
    return _formed(first, f.lit("differing"), member=None)


def of_unknown_fields(silent: DataFrame) -> DataFrame:
    """Return the findings of receipts that say nothing of fields, which messages of theirs have."""
    told = silent.withColumns(
        {"verified": f.lit(True), "reason": f.lit("its receipts say nothing of fields")}
    )
    return _formed(told, f.lit(UNJUDGED), member="via")


def of_holes(quarantine: DataFrame) -> DataFrame:
    """Return the findings of parts of the journal that were deleted before they were archived.

    They are unjudged: nothing is known of the lines that were in them.
    """
    holes = quarantine.where("src_kind = 'journal' and line is null and stream <> 'derived'")
    told = holes.select(
        f.concat(f.lit("stream "), "stream", f.lit(": "), "reason").alias("reason"),
        f.lit(True).alias("verified"),
        "node",
    ).distinct()
    return _formed(told, f.lit(UNJUDGED), member="node")


def united(parts: list[DataFrame]) -> DataFrame:
    """Return all findings in one frame."""
    return reduce(DataFrame.unionByName, parts)


def _places(found: DataFrame, reason: str) -> DataFrame:
    """Return the rows of single messages with the columns of ranges of one, which are proven."""
    return found.withColumns(
        {
            "verified": f.lit(True),
            "seq_lo": f.col("seq"),
            "seq_hi": f.col("seq"),
            "n": f.lit(1).cast("bigint"),
            "reason": f.lit(reason),
        }
    )


def _formed(found: DataFrame, kind: Column, member: str | None) -> DataFrame:
    """Return rows with the columns of the table; those that `found` lacks are null.

    `member` is the name of the column with the member, None if there is none.
    """
    values = {
        "kind": kind,
        "proof": f.when(f.col("verified"), f.lit("member")).otherwise(f.lit("claim")),
        "member": f.lit(None) if member is None else f.col(member),
    }
    for name in found.columns:
        values.setdefault(name, f.col(name))
    return found.select(
        *(
            values.get(each.name, f.lit(None)).cast(SPARK_NAMES[each.type]).alias(each.name)
            for each in schema.TABLES["audit_findings"]
        )
    )
