"""The embedded engine of the job `derive`: the rules run in the driver, batch by batch.

Spark follows the journal, parses its lines, sets bad ones aside and finds those that a rule
watches. The rules themselves run in the driver, in the order of the messages. Their state is small
and their order is total, so on one computer shuffling rows to state stores costs more than the
rules do. `distributed` spreads the rules over executors.

Each message is published once: the rules take the messages of a batch, in memory, and what they
say is a step (`steps`).
"""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from mdserver import limits
from mdserver.pipeline.common import rows, schema
from mdserver.pipeline.common.places import Tables
from mdserver.pipeline.derive.operators import US, Derived
from mdserver.pipeline.derive.publisher import StepPublisher
from mdserver.pipeline.derive.rule_engine import RuleEngine
from mdserver.pipeline.derive.rules import Rule
from mdserver.pipeline.derive.step_log import StepLog
from mdserver.pipeline.derive.steps import BatchCounts, Steps
from mdserver.pipeline.derive.watched_rows import (
    aside,
    clocks_of,
    event_of,
    reached_by_all,
    refused,
)

ORDER = [
    ("ts", "ascending"),
    ("subject", "ascending"),
    ("epoch", "ascending"),
    ("seq", "ascending"),
]


def watched(raw: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """Return the raw lines that a rule watches, and those that cannot be used, with their reason.

    With them are lines of other messages that are `last`: periods end by their times when nothing
    that is watched comes.

    Columns: value (bytes), reason, subject, epoch, seq, ts (us), content, content_base64,
    compressed, fields, src_kind, src_topic, src_partition, src_pos. A line with a reason has only
    its value and its place, since its other columns may not be valid text.
    """
    patterns = dict.fromkeys(rule.subject for rule in rules)
    row = f.col("row")
    names = ("subject", "epoch", "seq", "content", "content_base64", "compressed", "fields")
    usable = f.col("reason").isNull()
    missing = f.concat(
        f.lit("segments "), "src_partition", f.lit(" to "), "src_pos", f.lit(" are missing")
    )
    hole = f.col("value").isNull() & (f.col("src_kind") == "journal")
    wanted = f.lit(False)
    for text in patterns:
        wanted = wanted | _is_about(row["subject"], text)
    return (
        rows.parse(raw, rows.MESSAGES)
        .withColumn("reason", f.when(hole, missing).otherwise(f.col("reason")))
        .where(f.col("reason").isNotNull() | wanted | f.col("last"))
        .select(
            f.col("value").cast("binary").alias("value"),
            "reason",
            f.when(usable, row["ts_server"]).alias("ts"),
            *(f.when(usable, row[name]).alias(name) for name in names),
            "src_kind",
            "src_topic",
            "src_partition",
            "src_pos",
        )
    )


def _is_about(subject: Column, text: str) -> Column:
    return subject.rlike(schema.subject_regex(text)) if "*" in text else subject == text


class Derive:
    """One run of the job, driven by Spark's batches and, between them, by the clock.

    `lateness_s` is how long a period stays open beyond its end, for messages that come late.
    `failure` is the error that ended the query, None as long as there is none.

    `batch` is called in a thread of Spark's and `idle` in the job's own, so a lock lets one at a
    time change the states. Steps are numbered in the order in which they are made.
    """

    never_ends = False

    def __init__(
        self,
        rules: Sequence[Rule],
        log: StepLog,
        publisher: StepPublisher,
        tables: Tables,
        report: Callable[[BatchCounts], None],
        lateness_s: float = limits.DERIVE_LATENESS_S,
    ) -> None:
        self.failure: Exception | None = None
        self._rules = rules
        self._steps = Steps(log, publisher, tables)
        self._report = report
        self._lateness = int(lateness_s * US)
        self._engine = RuleEngine(rules, log.states)
        self._lock = threading.Lock()

    def found(self, raw: DataFrame, checkpoint: Path) -> DataFrame:  # noqa: ARG002
        """Return the frame whose batches `batch` takes, from the raw lines of the source."""
        return watched(raw, self._rules)

    def resume(self) -> None:
        """Publish what the last run may not have published. Call this before the first batch."""
        self._steps.resume(self._engine.states)

    def batch(self, found: DataFrame, batch_id: int) -> None:
        """Take one batch of `watched` rows; called by Spark. A batch that is logged is skipped."""
        try:
            with self._lock:
                if batch_id > self._steps.batch:
                    self._take(found.toArrow(), batch_id)
        except Exception as error:
            # Spark wraps the error in a page of Java's stack; the job reports this one.
            self.failure = error
            raise

    def idle(self, now: int) -> None:
        """Publish what is due by the clock; call this while there is nothing to read.

        `now` is in microseconds since the Unix epoch. Does nothing while a batch is at work, which
        moves time forward itself.
        """
        if self._lock.acquire(blocking=False):
            try:
                derived = self._engine.advance(now - self._lateness)
                if derived or self._engine.changed:
                    self._finish(self._steps.batch, derived, [])
            finally:
                self._lock.release()

    def leave(self) -> None:
        """End a publication that waits for a server that is away, because the job ends."""
        self._steps.leave()

    def _take(self, table: pa.Table, batch_id: int) -> None:
        """Apply the rules to a batch of rows, in the order of the messages."""
        began = time.monotonic()
        put_aside: list[dict[str, Any]] = []
        derived: list[Derived] = []
        found = table.sort_by(ORDER).to_pylist()
        reached = reached_by_all(clocks_of(found))
        count = 0
        for row in found:
            if row["reason"] is not None:
                put_aside.append(aside(row, row["reason"]))
                count += 1
                continue
            event = event_of(row)
            # Groups that are due before this message publish first, in the order of time, as they
            # do when the clock runs between batches.
            clock = event.ts if reached is None else min(event.ts, reached)
            derived += self._engine.advance(clock - self._lateness)
            watching = [rule for rule in self._rules if rule.watches(event.subject)]
            count += bool(watching)
            for rule in watching:
                said, refusal = self._engine.take(rule, event)
                derived += said
                if refusal is not None:
                    put_aside.append(aside(row, refused(refusal)))
        self._finish(batch_id, derived, put_aside)
        last = max((row["ts"] for row in found if row["reason"] is None), default=None)
        lag = 0.0 if last is None else time.time() - last / US
        seconds = time.monotonic() - began
        self._report(BatchCounts(batch_id, count, len(derived), len(put_aside), seconds, lag))

    def _finish(
        self, batch_id: int, derived: list[Derived], put_aside: list[dict[str, Any]]
    ) -> None:
        changes = [(key, self._engine.states.get(key)) for key in self._engine.changed]
        self._steps.finish(batch_id, changes, derived, put_aside, self._engine.states)
        self._engine.changed.clear()
