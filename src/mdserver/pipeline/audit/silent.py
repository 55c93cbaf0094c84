"""Subscriptions of which nothing was received, although there were messages.

A session that got nothing of a subject has no receipt of it. But the events of a member show who
was subscribed to what, and when. Only a session that gives receipts can be judged: one of which, or
of whose user, there is a receipt of something, and only up to the last of these receipts. The name
of the client is no sign of that, since all clients of one library have the same name.
"""

from attrs import frozen
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from mdserver.core.subjects import RESERVED
from mdserver.pipeline.audit.ranges import located

SUBSCRIBED = ("subscribe", "subscribe-with-history", "subscribe-with-recovery")
WHO = ["node", "session", "subject"]
GRACE_S = 5


@frozen
class Silent:
    """What `find_silent` returns.

    `found` are subjects of which a session got nothing: session, subscriber, owner, via, history,
    subject, seq_lo, seq_hi, n (messages that it should have got). `unjudged` are subscriptions that
    cannot be judged: session, subscriber, via, subject, reason.
    """

    found: DataFrame
    unjudged: DataFrame


def find_silent(messages: DataFrame, receipts: DataFrame, access: DataFrame) -> Silent:
    """Find subjects to which a session was subscribed and of which it has no receipt.

    `messages` are those of `verdicts.promised`, `receipts` those of `verdicts.each_once`, `access`
    the table `events_access`.
    """
    subscriptions = _subscriptions(access).localCheckpoint()
    said = receipts.select(
        f.explode(f.array_distinct(f.array("owner", "subscriber"))).alias("who"),
        "subject",
        "closed_ts",
    ).where("who <> ''")
    givers = said.groupBy("who").agg(f.max("closed_ts").alias("told_until"))
    whose = subscriptions.select(
        *WHO, f.explode(f.array_distinct(f.array("session", "user"))).alias("who")
    ).where("who is not null and who <> ''")
    given = whose.join(givers, "who")
    told = given.groupBy(*WHO).agg(f.max("told_until").alias("told_until"))
    # When a session subscribed more than once, it is not known at which times it was subscribed.
    judged = subscriptions.where("times = 1").join(told, WHO)
    about = _of_subjects(judged, messages.select("history", "subject").distinct())
    had = (
        given.withColumnRenamed("subject", "subscribed")
        .join(said.select("who", "subject").distinct(), "who")
        .select("node", "session", "subscribed", "subject")
        .distinct()
    )
    lacking = about.join(had, ["node", "session", "subscribed", "subject"], "left_anti")
    # Messages of the last seconds may still have been under way when the session or its last range
    # ended.
    until = f.least("ended", "told_until") - f.expr(f"interval {GRACE_S} seconds")
    asked = lacking.withColumn("until", until).where("since < until")
    found = located(messages, asked, "ts_server", "since", "until").where("n > 0")
    return Silent(
        found.select(
            "session",
            f.coalesce("user", "client", f.lit("")).alias("subscriber"),
            f.col("session").alias("owner"),
            f.col("node").alias("via"),
            "history",
            "subject",
            f.col("first").alias("seq_lo"),
            f.col("last").alias("seq_hi"),
            "n",
        ),
        _unjudged(subscriptions, told),
    )


def _subscriptions(access: DataFrame) -> DataFrame:
    """Return the subscriptions of sessions: node, session, subject, user, client, since, times,
    ended.

    `times` is how often the session subscribed to the subject. `ended` is when it unsubscribed or
    its connection ended, null if neither is known.
    """
    begun = (
        access.where(f.col("event").isin(*SUBSCRIBED) & f.col("session").isNotNull())
        .groupBy(*WHO)
        .agg(
            f.first("user", ignorenulls=True).alias("user"),
            f.first("client", ignorenulls=True).alias("client"),
            f.min("ts").alias("since"),
            f.count("*").alias("times"),
        )
    )
    left = access.where("event = 'unsubscribe'").groupBy(*WHO).agg(f.min("ts").alias("left"))
    gone = (
        access.where("event = 'disconnect'")
        .groupBy("node", "session")
        .agg(f.min("ts").alias("gone"))
    )
    return (
        begun.join(left, WHO, "left")
        .join(gone, ["node", "session"], "left")
        .withColumn("ended", f.least("left", "gone"))
        .drop("left", "gone")
    )


def _of_subjects(subscriptions: DataFrame, subjects: DataFrame) -> DataFrame:
    """Return a row for each subscription and subject that it covers.

    The subject or pattern that was subscribed to is in the column `subscribed`.
    """
    named = subscriptions.withColumnRenamed("subject", "subscribed")
    plain = named.join(subjects, f.col("subscribed") == f.col("subject"))
    # Each pattern is compared with each subject once, not once for each session that has it.
    patterns = named.select("subscribed").where("subscribed like '%*%'").distinct()
    pairs = (
        patterns.withColumn("pattern", _regex(f.col("subscribed")))
        .join(subjects, f.expr("subject rlike pattern"))
        .drop("pattern")
    )
    return plain.unionByName(named.join(pairs, "subscribed").select(*plain.columns))


def _regex(pattern: Column) -> Column:
    """Return a column of patterns as regular expressions, as `schema.subject_regex` makes them."""
    segments = f.slice(f.split(pattern, "/"), 2, 1_000)
    quoted = f.transform(
        segments,
        lambda each: (
            f.when(each == "*", f.lit("[^/]+"))
            .when(each == "**", f.lit("[^/]+(/[^/]+)*"))
            .otherwise(f.concat(f.lit("\\Q"), each, f.lit("\\E")))
        ),
    )
    others = f.when(f.get(segments, f.lit(0)).isin("*", "**"), f.lit(f"(?!/{RESERVED}/)"))
    return f.concat(
        f.lit("^"), f.coalesce(others, f.lit("")), f.lit("/"), f.array_join(quoted, "/"), f.lit("$")
    )


def _unjudged(subscriptions: DataFrame, told: DataFrame) -> DataFrame:
    """Return the subscriptions that cannot be judged, with the reason."""
    silent = subscriptions.join(told, WHO, "left")
    reason = f.when(
        f.col("told_until").isNull(), f.lit("no receipt of this session or user is there")
    ).when(f.col("times") > 1, f.lit("subscribed more than once"))
    return (
        silent.withColumn("reason", reason)
        .where("reason is not null")
        .select(
            "session",
            f.coalesce("user", "client", f.lit("")).alias("subscriber"),
            f.col("node").alias("via"),
            "subject",
            "reason",
        )
    )
