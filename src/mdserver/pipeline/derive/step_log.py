"""The memory of the job `derive`: a file a step, written before anything of the step is published.

A step is what one batch (or a moment without messages) did: states that changed, messages to
publish, and rows set aside. After a crash the last step is read back, not computed anew, and
published again under the numbers that it had, by which the server recognises what it took already.
So each message is published once, whatever a repeated batch would have given.

A folder holds:

- `publisher.json`: the name under which numbers are given;
- `snapshot.json`: all states up to a step;
- `step-N.json`: one file for each later step;
- `published.json`: the last step that was published, the last numbers that the server took, and
  the identity that the server gave, with its key.

A step is either pending or published. `append` makes it pending, `published` makes it published,
and the job does nothing else in between. So at most the last step is pending, and the numbering in
`published.json` is the one before its first message: numbered from there, in the same order, its
messages get the same numbers again. A snapshot replaces steps only when all of them are published.
Each file is on the disk when its write returns. If a power cut took `published.json` back by a few
steps, new messages would get numbers that the server knows, and be taken for repetitions.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from mdserver.client import Numbering
from mdserver.pipeline.common.durable import PRIVATE, replace_file
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.derive.operators import Derived, State
from mdserver.pipeline.derive.rule_engine import Key, fingerprint
from mdserver.pipeline.derive.rules import Rule

SNAPSHOT_EVERY = 200
NO_BATCH = -1
T = TypeVar("T")


class Step(msgspec.Struct, frozen=True):
    """One step; `batch` is the batch that made it, or the latest one if it had no messages."""

    number: int
    batch: int
    changes: list[tuple[Key, State]]
    """The new states of groups, null for a group that was forgotten."""
    derived: list[Derived]
    aside: list[dict[str, Any]]
    """Rows for the table `quarantine`."""
    rules: dict[str, str] | None = None
    """The fingerprints of the rules that the batch had; None from earlier releases."""


class StateSnapshot(msgspec.Struct, frozen=True):
    """All states after a step, and the rules that they belong to, by fingerprint."""

    step: int = 0
    batch: int = NO_BATCH
    rules: dict[str, str] = {}
    states: list[tuple[Key, State]] = []
    batch_rules: dict[str, str] | None = None
    """The rules that `batch` had, as in `Step`."""


class PublishedStep(msgspec.Struct, frozen=True):
    """The last step that is published, and the numbering after it."""

    step: int = 0
    numbering: Numbering = Numbering()


class StepLog:
    """The steps of one job; there is one writer, as there is one query.

    `states`, `batch` and `batch_rules` are those of the last step. `pending` is the last step if it
    is not known to be published, else None. States of rules that are gone, or mean something else
    than those of the snapshot, are left out. Raises PipelineError if a file cannot be used.
    """

    def __init__(self, folder: Path, rules: Iterable[Rule]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._rules = {rule.name: fingerprint(rule) for rule in rules}
        snapshot = _read(folder / "snapshot.json", StateSnapshot) or StateSnapshot()
        published = _read(folder / "published.json", PublishedStep) or PublishedStep()
        self._published_step = published.step
        same = {name for name, mark in snapshot.rules.items() if self._rules.get(name) == mark}
        states = dict(snapshot.states)
        self._number, self.batch = snapshot.step, snapshot.batch
        self.batch_rules = snapshot.batch_rules
        self._snapshot_step = snapshot.step
        self.pending: Step | None = None
        for step in self._steps():
            states |= dict(step.changes)
            self._number, self.batch = step.number, step.batch
            self.batch_rules = step.rules
            self.pending = step if step.number > published.step else None
        self.states: dict[Key, State] = {
            k: state for k, state in states.items() if k[0] in same and state is not None
        }
        self.numbering = published.numbering
        self.publisher = self._name()
        if self.empty:
            self.take_snapshot({})

    @property
    def empty(self) -> bool:
        """Whether there is no step yet."""
        return self._number == 0

    def append(
        self,
        batch: int,
        changes: Sequence[tuple[Key, State]],
        derived: Sequence[Derived],
        aside: Sequence[dict[str, Any]],
    ) -> Step:
        """Write a step to the disk and return it; it survives a power cut from then on."""
        self._number, self.batch, self.batch_rules = self._number + 1, batch, self._rules
        step = Step(self._number, batch, list(changes), list(derived), list(aside), self._rules)
        _write(self._folder / f"step-{step.number:012d}.json", step)
        return step

    def published(self, numbering: Numbering, states: Mapping[Key, State]) -> None:
        """Note that the last step is published, and how far the numbers have come.

        After `SNAPSHOT_EVERY` steps `states`, which are all, become the new snapshot.
        """
        self.pending = None
        self.numbering = numbering
        self._published_step = self._number
        _write(self._folder / "published.json", PublishedStep(self._number, numbering))
        if self._number - self._snapshot_step >= SNAPSHOT_EVERY:
            self.take_snapshot(states)

    def identified(self, numbering: Numbering) -> None:
        """Keep the identity that the server gave. Call this before anything is published.

        Without it a later run would be another publisher, and what it repeats would be taken twice.
        """
        if numbering.publisher_key != self.numbering.publisher_key:
            self.numbering = numbering
            path = self._folder / "published.json"
            _write(path, PublishedStep(self._published_step, numbering))

    def take_snapshot(self, states: Mapping[Key, State]) -> None:
        """Put all states in place of the steps that led to them, which must be published.

        The snapshot is on the disk before a step is deleted. Steps that a crash leaves behind are
        older than the snapshot, and are skipped by their numbers.
        """
        snapshot = StateSnapshot(
            self._number, self.batch, self._rules, list(states.items()), self.batch_rules
        )
        _write(self._folder / "snapshot.json", snapshot)
        self._snapshot_step = self._number
        for path in self._folder.glob("step-*.json"):
            path.unlink()

    def _steps(self) -> Iterable[Step]:
        """Yield the steps behind the snapshot, in order."""
        for path in sorted(self._folder.glob("step-*.json")):
            step = _read(path, Step)
            if step is not None and step.number > self._snapshot_step:
                yield step

    def _name(self) -> str:
        """Return the publisher's name, which is random and made by the first run."""
        path = self._folder / "publisher.json"
        name = _read(path, str)
        if name is None:
            name = f"derive-{secrets.token_hex(8)}"
            _write(path, name)
        return name


def _read(path: Path, kind: type[T]) -> T | None:
    """Return the decoded content of a file, None if it does not exist."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise PipelineError(f"{path} cannot be used: {error}") from error


def _write(path: Path, value: object) -> None:
    """Replace a file durably; only the owner may read it, as `published.json` holds a key."""
    replace_file(path, msgspec.json.encode(value), PRIVATE)
