"""The job `derive`: what rules make of the messages, published back within a second.

Spark follows the journal, parses lines, sets bad ones aside and finds those that a rule watches;
the rules themselves run in the driver, in the order of the messages. Their state is small and their
order is total, so shuffling rows to state stores cost several times what the rules do: a batch took
twice as long with `applyInPandasWithState`, for the same results.

A batch becomes a step of the `StepLog` before anything of it is published.
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
from mdserver.pipeline.derive.operators import US, Derived, Event
from mdserver.pipeline.derive.publisher import Publisher, Unpublished
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
class Batch:
    """What one batch brought: times in seconds, `lag_s` from the last message's commit to the end
    of the batch."""

    batch_id: int
    rows: int
    derived: int
    refused: int
    seconds: float
    lag_s: float


def watched(raw: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """Raw lines -> those that a rule watches, and those that cannot be used, with their reason.

    Columns: value (bytes), reason, subject, epoch, seq, ts (us), content, content_base64,
    compressed, fields, src_kind, src_partition, src_pos. A line with a reason has no more than that
    and its place: what it says may be no text.
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
        .where(f.col("reason").isNotNull() | wanted)
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


def event_of(row: dict[str, Any]) -> Event:
    """The event of a row of `watched`. Content that is no text has no field `content`."""
    fields = dict(row["fields"] or ())
    content: str | bytes | None = row["content"]
    if content is None:
        content = base64.b64decode(row["content_base64"])
        if row["compressed"]:
            content = inflated(content)
    if isinstance(content, str):
        fields["content"] = content
    return Event(row["subject"], row["ts"], fields)


class Derive:
    """One run of the job: Spark gives it batches, the clock gives it moments without messages.

    `lateness_s`: for so long a period is kept open beyond its end, for messages that come late.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        log: StepLog,
        publisher: Publisher,
        tables: Path,
        report: Callable[[Batch], None],
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
        """Publish what the last run may not have published; before the first batch."""
        if self._log.pending is not None:
            self._carry_out(self._log.pending)
        self._log.take_snapshot(self._engine.states)

    def batch(self, found: DataFrame, batch_id: int) -> None:
        """For Spark: one batch of `watched` rows. One that is a step already changes nothing."""
        try:
            with self._lock:
                if batch_id > self._log.batch:
                    self._take(found.toArrow(), batch_id)
        except Exception as error:
            # Spark tells of it in a page of Java; whoever runs the job reads it here.
            self.failure = error
            raise

    def idle(self, now: int) -> None:
        """All there is was read, and it is `now` (us): silence and the ends of periods are due."""
        if self._lock.acquire(blocking=False):
            try:
                derived = self._engine.advance(now - self._lateness)
                if derived or self._engine.changed:
                    self._finish(self._log.batch, derived, [])
            finally:
                self._lock.release()

    def leave(self) -> None:
        """The job ends: nobody waits any longer for a server that is away."""
        self._publisher.leave()

    def _take(self, table: pa.Table, batch_id: int) -> None:
        began = time.monotonic()
        aside: list[dict[str, Any]] = []
        derived: list[Derived] = []
        found = table.sort_by(ORDER).to_pylist()
        for row in found:
            if row["reason"] is not None:
                aside.append(_aside(row, row["reason"]))
                continue
            event = event_of(row)
            derived += self._engine.advance(event.ts - self._lateness)
            for rule in self._rules:
                if not rule.watches(event.subject):
                    continue
                said, refusal = self._engine.take(rule, event)
                derived += said
                if refusal is not None:
                    aside.append(_aside(row, _refused(refusal)))
        self._finish(batch_id, derived, aside)
        last = max((row["ts"] for row in found if row["reason"] is None), default=None)
        lag = 0.0 if last is None else time.time() - last / US
        seconds = time.monotonic() - began
        self._report(Batch(batch_id, len(found), len(derived), len(aside), seconds, lag))

    def _finish(self, batch_id: int, derived: list[Derived], aside: list[dict[str, Any]]) -> None:
        changes = [(key, self._engine.states[key]) for key in self._engine.changed]
        if changes or derived or aside:
            self._carry_out(self._log.append(batch_id, changes, derived, aside))
            self._engine.changed.clear()

    def _carry_out(self, step: Step) -> None:
        self._log.identified(self._publisher.numbering)
        unpublished = self._publisher.publish(step.derived) if step.derived else []
        aside = [*step.aside, *map(_unpublished, unpublished)]
        if aside:
            named = [row | {"batch_id": step.batch} for row in aside]
            delta.append_rows(self._tables, "quarantine", JOB, step.number, named)
        self._log.published(self._publisher.numbering, self._engine.states)


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
