"""The rules applied to a sequence of messages: the states of all groups, and when each is due.

Pure and in order: the same messages give the same results, however they are divided into batches.
Time is that of the messages; `advance` moves it on when no message comes.

A group is due when its period ends or its silence has lasted long enough (`operators.due`). The
moments are in a heap. An event may change the moment of a group; the old entry stays in the heap,
and is skipped when it is reached, because its moment is no longer the one of the group's state.
"""

import heapq
from collections.abc import Iterable, Mapping
from zlib import crc32

from attrs import frozen

from mdserver import limits
from mdserver.pipeline.derive.operators import (
    Derived,
    State,
    Tick,
    WatchedMessage,
    due,
    step,
    unusable,
)
from mdserver.pipeline.derive.rules import Rule

Key = tuple[str, str]
"""The name of a rule, and the name of one of its groups."""


@frozen
class Refusal:
    """A message that a rule could not take."""

    rule: str
    event: WatchedMessage
    reason: str


class RuleEngine:
    """All rules, and their states by rule and group.

    `states` may come from an earlier run; groups of rules that are gone are dropped. `groups_max`
    bounds the groups of all rules together, because their states are kept in memory.
    """

    def __init__(
        self,
        rules: Iterable[Rule],
        states: Mapping[Key, State] | None = None,
        groups_max: int = limits.DERIVE_GROUPS_MAX,
    ) -> None:
        self._rules = {rule.name: rule for rule in rules}
        self._groups_max = groups_max
        self._due: list[tuple[int, Key]] = []
        self.states: dict[Key, State] = {}
        self.changed: dict[Key, None] = {}
        """The groups whose state was set since this was last cleared, in order."""
        for key, state in (states or {}).items():
            if key[0] in self._rules:
                self._put(key, state)
        self.changed.clear()

    def take(self, rule: Rule, event: WatchedMessage) -> tuple[list[Derived], Refusal | None]:
        """Apply a rule to one message that it watches.

        Returns the messages to publish, and the refusal if the rule cannot take the message.
        """
        key = (rule.name, rule.group_of(event.subject))
        state = self.states.get(key)
        reason = unusable(rule, state, event)
        if reason is None and key not in self.states and len(self.states) >= self._groups_max:
            reason = f"there are {self._groups_max} groups already"
        if reason is not None:
            return [], Refusal(rule.name, event, reason)
        state, said = step(rule, state, event)
        if not rule.stateless:
            self._put(key, state)
        return said, None

    def advance(self, clock: int) -> list[Derived]:
        """Move time on to `clock` (us); return what became due, in the order of the moments."""
        return [each for _, _, said in self.ticks(clock) for each in said]

    def ticks(self, clock: int) -> list[tuple[int, Key, list[Derived]]]:
        """Move time on to `clock` (us); return the moment of each tick, its group and messages."""
        found: list[tuple[int, Key, list[Derived]]] = []
        while self._due and self._due[0][0] <= clock:
            moment, key = heapq.heappop(self._due)
            rule, state = self._rules[key[0]], self.states[key]
            if due(rule, state) == moment:  # else an event has moved it, with an entry of its own
                state, said = step(rule, state, Tick(moment))
                self._put(key, state)
                found.append((moment, key, said))
        return found

    def next_due(self) -> int | None:
        """Return when (us) a group may be due next, None for never.

        The group may have been moved meanwhile; then nothing is due at that moment.
        """
        return self._due[0][0] if self._due else None

    def _put(self, key: Key, state: State) -> None:
        """Set the state of a group, and note when it is due if that changed.

        Most messages leave the state of a threshold or an area as it was: that is no change.
        """
        if key in self.states and self.states[key] == state:
            return
        before = due(self._rules[key[0]], self.states.get(key))
        self.states[key] = state
        self.changed[key] = None
        moment = due(self._rules[key[0]], state)
        if moment is not None and moment != before:
            heapq.heappush(self._due, (moment, key))


def fingerprint(rule: Rule) -> str:
    """Return a text that differs when the rule means something else.

    States of the old rule then do not fit the new one. `to` and `message` are not part of it: they
    only say how a result is published.
    """
    meaning = [rule.kind, rule.subject, rule.value, rule.group, sorted(rule.options.items())]
    return f"{crc32(repr(meaning).encode()):08x}"
