"""The rules applied to a sequence of messages: the states of all groups, and when each is due.

Pure and in order: the same messages give the same results, however they are divided into batches.
Time is that of the messages; `advance` moves it on when no message comes.

A group is due when its period ends or its silence has lasted long enough (`operators.due`). The
moments are in a heap. An event may change the moment of a group; the old entry stays in the heap,
and is skipped when it is reached, because its moment is no longer the one of the group's state.

A group is forgotten when its state means the same as none (`operators.is_fresh`), or when its last
period is long over (`operators.forgotten`), so silent groups take no memory for ever. One that is
stale is not: it has yet to say that it is fresh.
"""

import heapq
import itertools
from collections.abc import Iterable, Mapping
from zlib import crc32

from attrs import frozen

from mdserver import limits
from mdserver.pipeline.derive.operators import (
    OPERATORS,
    PERIODIC,
    Derived,
    State,
    Tick,
    WatchedMessage,
    due,
    forgotten,
    is_fresh,
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
        # In the order in which periods were closed, which is that of the moments but for late ones.
        # In the heap each period of a group would leave an entry until the group may be forgotten.
        self._closed: dict[Key, int] = {}
        self.states: dict[Key, State] = {}
        self.changed: dict[Key, None] = {}
        """The groups whose state was set or dropped since this was last cleared, in order."""
        for key, state in (states or {}).items():
            if key[0] in self._rules:
                self._put(key, state)
        self._closed = dict(sorted(self._closed.items(), key=lambda pair: (pair[1], pair[0])))
        self.changed.clear()

    def take(self, rule: Rule, event: WatchedMessage) -> tuple[list[Derived], Refusal | None]:
        """Apply a rule to one message that it watches.

        Returns the messages to publish, and the refusal if the rule cannot take the message.
        """
        key = (rule.name, rule.group_of(event.subject))
        state = self.states.get(key)
        reason = unusable(rule, state, event)
        if reason is not None:
            return [], Refusal(rule.name, event, reason)
        known = state is not None
        state, said = OPERATORS[rule.kind](rule, state, event)  # `step` would check it once more
        if not known and not is_fresh(rule, state) and len(self.states) >= self._groups_max:
            return [], Refusal(rule.name, event, f"there are {self._groups_max} groups already")
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
            rule, state = self._rules[key[0]], self.states.get(key)
            if due(rule, state) == moment:  # else an event has moved it, with an entry of its own
                state, said = step(rule, state, Tick(moment))
                self._put(key, state)
                found.append((moment, key, said))
        while self._closed:
            key = next(iter(self._closed))
            moment = self._closed[key]
            if moment > clock:
                break
            self._forget(key)
        return found

    def next_due(self) -> int | None:
        """Return when (us) a group may be due, or forgotten, next; None for never.

        The group may have been moved meanwhile; then nothing is due at that moment.
        """
        moments = [self._due[0][0]] if self._due else []
        moments += [self._closed[key] for key in itertools.islice(self._closed, 1)]
        return min(moments, default=None)

    def _put(self, key: Key, state: State) -> None:
        """Set the state of a group, and note when it is due if that changed, or forgotten.

        Most messages leave the state of a threshold or an area as it was: that is no change. Each
        changes the one of a period, whose operator may have changed the old one itself.
        """
        rule, old = self._rules[key[0]], self.states.get(key)
        if is_fresh(rule, state):
            self._forget(key)
            return
        if rule.kind not in PERIODIC and old == state:
            return
        before = due(rule, old)
        self.states[key] = state
        self.changed[key] = None
        moment = due(rule, state)
        if moment is not None and moment != before:
            heapq.heappush(self._due, (moment, key))
        self._closed.pop(key, None)
        end = forgotten(rule, state)
        if end is not None:
            self._closed[key] = end

    def _forget(self, key: Key) -> None:
        """Drop the state of a group, if it has one; a change as well."""
        self._closed.pop(key, None)
        if self.states.pop(key, None) is not None:
            self.changed[key] = None


def fingerprint(rule: Rule) -> str:
    """Return a text that differs when the rule means something else.

    States of the old rule then do not fit the new one. `to` and `message` are not part of it: they
    only say how a result is published.
    """
    meaning = [rule.kind, rule.subject, rule.value, rule.group, sorted(rule.options.items())]
    return f"{crc32(repr(meaning).encode()):08x}"
