"""The steps of a run: each is logged, published, and noted, whichever engine made it.

What a batch did goes through these stages in order:

1. the changed states, the derived messages and the rows set aside become a step of the `StepLog`,
   which is on the disk from then on;
2. the derived messages are published, under numbers by which the server recognises repetitions;
3. the rows set aside go to `quarantine`, in a transaction with the number of the step;
4. the step is noted as published.

A run that is killed before 1 leaves nothing, and Spark repeats the batch. A run that is killed
after 1 leaves a pending step, which the next run carries out again before its first batch; Spark's
repetition of the batch is then skipped by its number.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from attrs import frozen

from mdserver.pipeline.common import delta
from mdserver.pipeline.common.places import Tables
from mdserver.pipeline.derive.operators import Derived, State
from mdserver.pipeline.derive.publisher import StepPublisher, Unpublished
from mdserver.pipeline.derive.rule_engine import Key
from mdserver.pipeline.derive.set_aside import RowsAside
from mdserver.pipeline.derive.step_log import Step, StepLog

JOB = "derive"


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


class Steps:
    """The log of a job with the means to carry out what is in it; one call at a time.

    `now` is the clock (s).
    """

    def __init__(
        self,
        log: StepLog,
        publisher: StepPublisher,
        tables: Tables,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._log = log
        self._publisher = publisher
        self._tables = tables
        self._now = now
        self._aside = RowsAside(now)

    @property
    def batch(self) -> int:
        """The last batch that is in the log."""
        return self._log.batch

    @property
    def batch_rules(self) -> Mapping[str, str] | None:
        """The fingerprints of the rules that this batch had, None if they are not known."""
        return self._log.batch_rules

    @property
    def states(self) -> Mapping[Key, State]:
        """The states that the log had when it was opened."""
        return self._log.states

    def resume(self, states: Mapping[Key, State]) -> None:
        """Publish what the last run may not have published. Call this before the first batch.

        `states` are all present ones. The snapshot then has the fingerprints of the present rules,
        to which the steps of this run belong.
        """
        if self._log.pending is not None:
            self._carry_out(self._log.pending, states)
        self._log.take_snapshot(states)

    def finish(
        self,
        batch_id: int,
        changes: Sequence[tuple[Key, State]],
        derived: Sequence[Derived],
        aside: Sequence[dict[str, Any]],
        states: Mapping[Key, State],
    ) -> None:
        """Make a step of what was done, and carry it out; nothing is logged if nothing was done."""
        kept = self._aside.kept(aside)
        if changes or derived or kept:
            self._carry_out(self._log.append(batch_id, changes, derived, kept), states)

    def leave(self) -> None:
        """End a publication that waits for a server that is away, because the job ends."""
        self._publisher.leave()

    def _carry_out(self, step: Step, states: Mapping[Key, State]) -> None:
        """Publish a step that is in the log; a repetition publishes nothing twice."""
        # The server may have given a new identity since the connection began. It must be on the
        # disk before a message leaves under it, or the next run could not repeat the numbers.
        self._log.identified(self._publisher.numbering)
        unpublished = self._publisher.publish(step.derived) if step.derived else []
        aside = [*step.aside, *self._aside.kept(map(_unpublished, unpublished))]
        if aside:
            at = datetime.fromtimestamp(self._now(), UTC)
            named = [row | {"batch_id": step.batch, "ts": at} for row in aside]
            # By publisher: steps of a job that starts anew are counted from 1 again.
            delta.append_rows(self._tables, "quarantine", self._log.publisher, step.number, named)
        self._log.published(self._publisher.numbering, states)


def _unpublished(unpublished: Unpublished) -> dict[str, Any]:
    message = unpublished.derived
    reason = f"rule {message.rule}: {message.subject} was not taken: {unpublished.reason}"
    return {"stream": "derived", "reason": reason, "line": message.content, "src_kind": "derive"}
