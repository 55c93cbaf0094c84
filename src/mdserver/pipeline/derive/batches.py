"""The job `derive`: messages derived by rules, published back to the server within a second.

Spark follows the journal, parses its lines, sets bad ones aside and finds those that a rule
watches. The rules themselves run in the driver, in the order of the messages. Their state is small
and their order is total, so shuffling rows to state stores costs several times what the rules do: a
batch took twice as long with `applyInPandasWithState`, for the same results.

Each message is published once, because a batch goes through these stages in order:

1. the rules take its messages, in memory;
2. the changed states, the derived messages and the rows set aside become a step of the `StepLog`,
   which is on the disk from then on;
3. the derived messages are published, under numbers by which the server recognises repetitions;
4. the rows set aside go to `quarantine`, in a transaction with the number of the step;
5. the step is noted as published.

A run that is killed before 2 leaves nothing, and Spark repeats the batch. A run that is killed
after 2 leaves a pending step, which the next run carries out again before its first batch; Spark's
repetition of the batch is then skipped by its number.
"""

import base64
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from attrs import frozen
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from mdserver import limits
from mdserver.client.message import inflated
from mdserver.pipeline.common import delta, rows, schema
from mdserver.pipeline.derive.operators import US, Derived, WatchedMessage
from mdserver.pipeline.derive.publisher import StepPublisher, Unpublished
from mdserver.pipeline.derive.rule_engine import Refusal, RuleEngine
from mdserver.pipeline.derive.rules import Rule
from mdserver.pipeline.derive.step_log import Step, StepLog

JOB = "derive"
ORDER = [
    ("ts", "ascending"),
    ("subject", "ascending"),
    ("epoch", "ascending"),
    ("seq", "ascending"),
]


@frozen
class BatchCounts:
    """The counts of one batch.

    `seconds` is how long the batch took; `lag_s` is the time from the commitment of its last
    message to its end, 0 without a message.
    """

    batch_id: int
    rows: int
    derived: int
    refused: int
    seconds: float
    lag_s: float


def watched(raw: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """Return the raw lines that a rule watches, and those that cannot be used, with their reason.

    With them are lines of other messages that are `last`: periods end by their times when nothing
    that is watched comes.

    Columns: value (bytes), reason, subject, epoch, seq, ts (us), content, content_base64,
    compressed, fields, src_kind, src_partition, src_pos. A line with a reason has only its value
    and its place, since its other columns may not be valid text.
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
            "src_partition",
            "src_pos",
        )
    )


def _is_about(subject: Column, text: str) -> Column:
    return subject.rlike(schema.subject_regex(text)) if "*" in text else subject == text


def event_of(row: dict[str, Any]) -> WatchedMessage:
    """Return the event of a row of `watched`. Content that is not text gives no field `content`."""
    fields = dict(row["fields"] or ())
    content: str | bytes | None = row["content"]
    if content is None:
        content = base64.b64decode(row["content_base64"])
        if row["compressed"]:
            content = inflated(content)
    if isinstance(content, str):
        fields["content"] = content
    return WatchedMessage(row["subject"], row["ts"], fields)


class Derive:
    """One run of the job, driven by Spark's batches and, between them, by the clock.

    `lateness_s` is how long a period stays open beyond its end, for messages that come late.
    `failure` is the error that ended the query, None as long as there is none.

    `batch` is called in a thread of Spark's and `idle` in the job's own, so a lock lets one at a
    time change the states. Steps are numbered in the order in which they are made.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        log: StepLog,
        publisher: StepPublisher,
        tables: Path,
        report: Callable[[BatchCounts], None],
        lateness_s: float = limits.DERIVE_LATENESS_S,
    ) -> None:
        self.failure: Exception | None = None
        self._rules = rules
        self._log = log
        self._publisher = publisher
        self._tables = tables
        self._report = report
        self._lateness = int(lateness_s * US)
        self._engine = RuleEngine(rules, log.states)
        self._lock = threading.Lock()

    def resume(self) -> None:
        """Publish what the last run may not have published. Call this before the first batch.

        The snapshot then has the fingerprints of the present rules, to which the steps of this run
        belong.
        """
        if self._log.pending is not None:
            self._carry_out(self._log.pending)
        self._log.take_snapshot(self._engine.states)

    def batch(self, found: DataFrame, batch_id: int) -> None:
        """Take one batch of `watched` rows; called by Spark. A batch that is logged is skipped."""
        try:
            with self._lock:
                if batch_id > self._log.batch:
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
                    self._finish(self._log.batch, derived, [])
            finally:
                self._lock.release()

    def leave(self) -> None:
        """End a publication that waits for a server that is away, because the job ends."""
        self._publisher.leave()

    def _take(self, table: pa.Table, batch_id: int) -> None:
        """Apply the rules to a batch of rows, in the order of the messages."""
        began = time.monotonic()
        aside: list[dict[str, Any]] = []
        derived: list[Derived] = []
        found = table.sort_by(ORDER).to_pylist()
        reached = _reached_by_all(found)
        count = 0
        for row in found:
            if row["reason"] is not None:
                aside.append(_aside(row, row["reason"]))
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
                    aside.append(_aside(row, _refused(refusal)))
        self._finish(batch_id, derived, aside)
        last = max((row["ts"] for row in found if row["reason"] is None), default=None)
        lag = 0.0 if last is None else time.time() - last / US
        seconds = time.monotonic() - began
        self._report(BatchCounts(batch_id, count, len(derived), len(aside), seconds, lag))

    def _finish(self, batch_id: int, derived: list[Derived], aside: list[dict[str, Any]]) -> None:
        """Make a step of what was done, and carry it out; nothing is logged if nothing was done."""
        changes = [(key, self._engine.states[key]) for key in self._engine.changed]
        if changes or derived or aside:
            self._carry_out(self._log.append(batch_id, changes, derived, aside))
            self._engine.changed.clear()

    def _carry_out(self, step: Step) -> None:
        """Publish a step that is in the log; a repetition publishes nothing twice."""
        # The server may have given a new identity since the connection began. It must be on the
        # disk before a message leaves under it, or the next run could not repeat the numbers.
        self._log.identified(self._publisher.numbering)
        unpublished = self._publisher.publish(step.derived) if step.derived else []
        aside = [*step.aside, *map(_unpublished, unpublished)]
        if aside:
            named = [row | {"batch_id": step.batch} for row in aside]
            delta.append_rows(self._tables, "quarantine", JOB, step.number, named)
        self._log.published(self._publisher.numbering, self._engine.states)


def _reached_by_all(found: Sequence[dict[str, Any]]) -> int | None:
    """Return the time (us) that each Kafka partition in a batch has reached, None for a journal.

    `found` is in the order of time. A journal is one sequence. The partitions of Kafka are not
    ordered against each other: of a job that catches up, one batch may have a morning of one and an
    evening of another. The next batch then goes on with that morning, whose periods must be open.
    """
    usable = (row for row in found if row["reason"] is None and row["src_kind"] == "kafka")
    newest = {row["src_partition"]: int(row["ts"]) for row in usable}  # the last one counts
    return min(newest.values(), default=None)


def _aside(row: dict[str, Any], reason: str) -> dict[str, Any]:
    place = {name: row[name] for name in ("src_kind", "src_partition", "src_pos")}
    value = row["value"]
    line = None if value is None else value.decode(errors="replace")  # steps are JSON
    return {"stream": "messages", "reason": reason, "line": line, **place}


def _refused(refusal: Refusal) -> str:
    return f"rule {refusal.rule}: {refusal.reason}"


def _unpublished(unpublished: Unpublished) -> dict[str, Any]:
    message = unpublished.derived
    reason = f"rule {message.rule}: {message.subject} was not taken: {unpublished.reason}"
    return {"stream": "derived", "reason": reason, "line": message.content, "src_kind": "derive"}
