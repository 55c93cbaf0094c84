"""The rules divided into shards, each of which has some of the groups of all rules. Pure.

Groups are independent of each other: the state of one depends on its own messages and on the clock
alone. So groups are divided by their names, each shard applies the rules to its own groups with an
ordinary `RuleEngine`, and all shards get the same clock. What they publish is put in order again
by the moments at which it came out, which gives the order of a single engine:

- `RowRouter` divides the rows of a batch, one part of the source at a time;
- `Shard` takes what all routers sent to it;
- `merged` joins what all shards say of the batch.

A rule without `group` is divided by subject, and one with `group` by group, so all messages of a
group are in one shard, however many subjects it has. A row goes to a shard once, whatever number of
groups it has there.

The clock goes to every shard, also to those that get no message of the batch: it is the newest time
of each part of the source in the batch (`watched_rows.clocks_of`). A watermark of Spark would be
the newest time of all of them, so that of a job that catches up the partition that is ahead would
close the periods of the others.
"""

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from zlib import crc32

import msgspec

from mdserver import limits
from mdserver.pipeline.derive.operators import US, Derived, State, WatchedMessage
from mdserver.pipeline.derive.rule_engine import Key, RuleEngine
from mdserver.pipeline.derive.rules import Rule
from mdserver.pipeline.derive.watched_rows import (
    aside,
    clocks_of,
    event_of,
    reached_by_all,
    refused,
)

SUBJECTS_KNOWN_MAX = 65_536
"""Of how many subjects a process remembers which rules watch them."""
TICK, MESSAGE = 0, 1
"""The order of results at one moment: what is due comes out before the next message is taken."""


class ShardEvent(msgspec.Struct, array_like=True, frozen=True):
    """A message on its way to a shard, with its line and place in case a rule refuses it."""

    ts: int
    subject: str
    epoch: int
    seq: int
    fields: dict[str, str]
    line: bytes
    place: tuple[str, int | None, int | None]


class ShardPart(msgspec.Struct, array_like=True, frozen=True):
    """What a router sends to a shard; `rows` counts the rows of the batch that are of use."""

    clocks: dict[str, int] = {}
    events: list[ShardEvent] = []
    aside: list[dict[str, Any]] = []
    rows: int = 0


class Said(msgspec.Struct, array_like=True, frozen=True):
    """A derived message, with its place in the order of the batch."""

    order: tuple[int, int, int | str, str | int, str | int, int, int]
    derived: Derived


class Result(msgspec.Struct, array_like=True, frozen=True):
    """What a shard made of its parts of a batch; `newest` is the time of the newest row."""

    said: list[Said] = []
    aside: list[dict[str, Any]] = []
    rows: int = 0
    newest: int = 0


def shard_of(rule: Rule, subject: str, shards: int) -> int:
    """Return the shard of the group to which a subject belongs."""
    group = rule.group_of(subject)
    # Rules without a group share the shard of their subject, so that a row is sent once for all.
    name = group if rule.group is None else f"{rule.name}\0{group}"
    return crc32(name.encode()) % shards


class RowRouter:
    """Divides rows of `watched` among shards; holds nothing between calls but what subjects need.

    It is sent to other processes, each of which has its own memory of subjects.
    """

    def __init__(self, rules: Sequence[Rule], shards: int) -> None:
        self._rules = list(rules)
        self._shards = shards

    def __reduce__(self) -> tuple[Any, ...]:
        return RowRouter, (self._rules, self._shards)

    def route(
        self, batches: Iterable[Sequence[Mapping[str, Any]]]
    ) -> Iterator[tuple[int, ShardPart]]:
        """Yield what each shard gets of some batches of rows, and at last the clock for all."""
        clocks: dict[str, int] = {}
        count = 0
        any_row = False
        for rows in batches:
            any_row = any_row or bool(rows)
            for name, ts in clocks_of(rows).items():
                clocks[name] = max(ts, clocks.get(name, 0))
            put_aside = []
            events: dict[int, list[ShardEvent]] = {}
            for row in rows:
                if row["reason"] is not None:
                    put_aside.append(aside(row, row["reason"]))
                    continue
                shards = self._shards_of(row["subject"])
                count += bool(shards)
                if shards:
                    event = _shard_event(row)
                    for shard in shards:
                        events.setdefault(shard, []).append(event)
            for shard, found in events.items():
                yield shard, ShardPart(events=found)
            if put_aside:
                yield 0, ShardPart(aside=put_aside, rows=len(put_aside))
        # Also without a clock, if no row was of use: a shard takes the wall clock for the time only
        # if the batch has no rows.
        for shard in range(self._shards) if any_row else ():
            yield shard, ShardPart(clocks=clocks, rows=0 if shard else count)

    @functools.cached_property
    def _shards_of(self) -> Any:
        """Return a function from a subject to the shards that have a group of it, in order."""

        @functools.lru_cache(SUBJECTS_KNOWN_MAX)
        def shards_of(subject: str) -> list[int]:
            watching = (rule for rule in self._rules if rule.watches(subject))
            return sorted({shard_of(rule, subject, self._shards) for rule in watching})

        return shards_of


class Shard:
    """The groups of one shard, with their states.

    `take` and `idle` are the two ways in which time moves on. `changed` are the groups whose state
    was set since it was last cleared.
    """

    def __init__(
        self,
        number: int,
        shards: int,
        rules: Sequence[Rule],
        states: Mapping[Key, State],
        lateness_s: float = limits.DERIVE_LATENESS_S,
        groups_max: int = limits.DERIVE_SHARD_GROUPS_MAX,
    ) -> None:
        self._number = number
        self._shards = shards
        self._rules = list(rules)
        self._lateness = int(lateness_s * US)
        self._engine = RuleEngine(rules, states, groups_max)
        self._own = functools.lru_cache(SUBJECTS_KNOWN_MAX)(self._own_rules)

    @property
    def states(self) -> Mapping[Key, State]:
        """The states of all groups."""
        return self._engine.states

    @property
    def changed(self) -> dict[Key, None]:
        """The groups whose state was set since this was last cleared."""
        return self._engine.changed

    def next_due(self) -> int | None:
        """Return the time (us) of the clock at which something may be due, None for never."""
        moment = self._engine.next_due()
        return None if moment is None else moment + self._lateness

    def take(self, parts: Iterable[ShardPart], without: Collection[str] = ()) -> Result:
        """Apply the rules to all parts of a batch, in the order of the messages.

        Those whose names are in `without` take no messages of the batch.
        """
        clocks: dict[str, int] = {}
        events: list[ShardEvent] = []
        put_aside: list[dict[str, Any]] = []
        count = 0
        for part in parts:
            for name, ts in part.clocks.items():
                clocks[name] = max(ts, clocks.get(name, 0))
            events += part.events
            put_aside += part.aside
            count += part.rows
        reached = reached_by_all(clocks)
        said: list[Said] = []
        events.sort(key=_order)
        for event in events:
            clock = event.ts if reached is None else min(event.ts, reached)
            said += self._ticks(clock)
            message = WatchedMessage(event.subject, event.ts, event.fields)
            for number, rule in self._own(event.subject):
                if rule.name in without:
                    continue
                found, refusal = self._engine.take(rule, message)
                said += [
                    Said((event.ts, MESSAGE, event.subject, event.epoch, event.seq, number, n), one)
                    for n, one in enumerate(found)
                ]
                if refusal is not None:
                    put_aside.append(_aside(event, refused(refusal)))
        if reached is not None:
            said += self._ticks(reached)
        return Result(said, put_aside, count, max(clocks.values(), default=0))

    def idle(self, now: int) -> Result:
        """Return what is due by the clock (us); call this for a batch without rows."""
        return Result(self._ticks(now))

    def _ticks(self, clock: int) -> list[Said]:
        """Move time on; return what became due, in the place that it has among messages."""
        return [
            Said((moment + self._lateness, TICK, moment, *key, 0, n), one)
            for moment, key, found in self._engine.ticks(clock - self._lateness)
            for n, one in enumerate(found)
        ]

    def _own_rules(self, subject: str) -> list[tuple[int, Rule]]:
        return [
            (number, rule)
            for number, rule in enumerate(self._rules)
            if rule.watches(subject) and shard_of(rule, subject, self._shards) == self._number
        ]


def merged(results: Iterable[Result]) -> Result:
    """Return the results of all shards as one, in the order in which a single engine publishes."""
    all_results = list(results)
    said = [one for result in all_results for one in result.said]
    said.sort(key=lambda one: one.order)
    return Result(
        said,
        [row for result in all_results for row in result.aside],
        sum(result.rows for result in all_results),
        max((result.newest for result in all_results), default=0),
    )


def _order(event: ShardEvent) -> tuple[int, str, int, int]:
    return event.ts, event.subject, event.epoch, event.seq


def _shard_event(row: Mapping[str, Any]) -> ShardEvent:
    event = event_of(row)
    place = row["src_kind"], row["src_partition"], row["src_pos"]
    return ShardEvent(
        event.ts, event.subject, row["epoch"], row["seq"], event.fields, row["value"], place
    )


def _aside(event: ShardEvent, reason: str) -> dict[str, Any]:
    names = ("src_kind", "src_partition", "src_pos")
    row = dict(zip(names, event.place, strict=True)) | {"value": event.line}
    return aside(row, reason)
