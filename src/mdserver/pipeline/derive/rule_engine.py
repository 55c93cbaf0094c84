"""Rules at work on a sequence of messages: the states of all groups, and who has to speak when.

Pure and in order: the same messages give the same results, whatever batches they come in. Time is
that of the messages; `advance` says that it has come further although nothing came.
"""

import heapq
from collections.abc import Iterable, Mapping
from zlib import crc32

from attrs import frozen

from mdserver import limits
from mdserver.pipeline.derive.operators import Derived, Event, State, Tick, due, step, unusable
from mdserver.pipeline.derive.rules import Rule

Key = tuple[str, str]
"""A rule's name and a group of it."""


@frozen
class Refusal:
    """A message that a rule could not take."""

    rule: str
    event: Event
    reason: str


class RuleEngine:
    """All rules, and their states by rule and group.

    `states` may come from an earlier run; groups of rules that are not there any more are dropped.
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
        """Groups whose state changed since this was last cleared."""
        for key, state in (states or {}).items():
            if key[0] in self._rules:
                self._put(key, state)
        self.changed.clear()

    def take(self, rule: Rule, event: Event) -> tuple[list[Derived], Refusal | None]:
        """One message that the rule watches."""
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
        """Time has come so far (us): what is due is said, in the order in which it became due."""
        said: list[Derived] = []
        while self._due and self._due[0][0] <= clock:
            moment, key = heapq.heappop(self._due)
            rule, state = self._rules[key[0]], self.states[key]
            if due(rule, state) == moment:
                state, more = step(rule, state, Tick(moment))
                self._put(key, state)
                said += more
        return said

    def _put(self, key: Key, state: State) -> None:
        before = due(self._rules[key[0]], self.states.get(key))
        self.states[key] = state
        self.changed[key] = None
        moment = due(self._rules[key[0]], state)
        if moment is not None and moment != before:
            heapq.heappush(self._due, (moment, key))


def fingerprint(rule: Rule) -> str:
    """Changes when the rule means something else, so that states of the old one are not taken."""
    meaning = [rule.kind, rule.subject, rule.value, rule.group, sorted(rule.options.items())]
    return f"{crc32(repr(meaning).encode()):08x}"
