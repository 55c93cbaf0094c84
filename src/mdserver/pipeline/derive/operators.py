"""What the kinds of rules compute: one pure function a kind, over the state of one group.

`step(rule, state, event)` takes the state that an earlier call returned (None at first) and gives
the new one with what is to be published. States are plain JSON values, so that any engine can keep
them; time is that of the events, in microseconds. A period is over when an event of a later one, or
a `Tick`, comes; `unusable` refuses an event of a period that is over. What is said has the moment
at which it became true, not that of the tick which brought it out: results do not depend on how
often somebody ticks.
"""

import json
import math
import re
from collections.abc import Callable
from typing import Any

from attrs import field, frozen

from mdserver.pipeline.derive.rules import Rule, fill

US = 1_000_000
SHOWN_MAX = 80
NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_is_number = re.compile(NUMBER).fullmatch
PERIODIC = frozenset({"window", "ohlc", "top"})
State = Any


@frozen
class Event:
    """A message that a rule watches; `fields` has the content under the name "content"."""

    subject: str
    ts: int
    fields: dict[str, str]


@frozen
class Tick:
    """Event time has come this far although the group got nothing."""

    ts: int


@frozen
class Derived:
    """A message to publish."""

    rule: str
    subject: str
    content: str
    ts: int
    fields: dict[str, str] = field(factory=dict)


Out = tuple[State, list[Derived]]


def step(rule: Rule, state: State, event: Event | Tick) -> Out:
    """Apply one event or tick to a group's state; an unusable event changes nothing."""
    if isinstance(event, Event) and unusable(rule, state, event) is not None:
        return state, []
    return OPERATORS[rule.kind](rule, state, event)


def unusable(rule: Rule, state: State, event: Event) -> str | None:
    """Why the rule cannot take the event, or None."""
    for name in needed(rule):
        if name not in event.fields:
            return f"field {name} is missing"
        if rule.kind != "last" and _number(event.fields[name]) is None:
            return f"{name} is no number: {event.fields[name][:SHOWN_MAX]!r}"
    if rule.kind in PERIODIC and state is not None and event.ts < state["start"]:
        return f"late by {(state['start'] - event.ts) / US:g} s: its period is over"
    return None


def needed(rule: Rule) -> tuple[str, ...]:
    """The fields without which an event says nothing to the rule."""
    if rule.kind == "geofence":
        return ("x", "y")
    return () if rule.kind == "stale" else (rule.value,)


def due(rule: Rule, state: State) -> int | None:
    """When the group has something to say although no event comes (us); None: never."""
    if state is None:
        return None
    if rule.kind in PERIODIC and state["sum"] is not None:
        return int(state["start"]) + _length(rule)
    if rule.kind == "stale" and not state["stale"]:
        return int(state["last"]) + _length(rule)
    return None


def _length(rule: Rule) -> int:
    return int(rule.options["seconds"] * US)


def _number(text: str) -> float | None:
    number = float(text) if _is_number(text) else math.inf
    return number if math.isfinite(number) else None


def _say(rule: Rule, subject: str, ts: int, content: str, **fields: str) -> Derived:
    if rule.message is not None:
        content = fill(rule.message, subject, {"value": content, **fields})
    return Derived(rule.name, rule.target(subject), content, ts, fields)


def _last(rule: Rule, _: State, event: Event | Tick) -> Out:
    if isinstance(event, Tick):
        return None, []
    return None, [_say(rule, event.subject, event.ts, event.fields[rule.value])]


def _threshold(rule: Rule, state: State, event: Event | Tick) -> Out:
    """Speaks when the value rises above, and with `clear` not again before it fell below that."""
    if isinstance(event, Tick):
        return state, []
    value = float(event.fields[rule.value])
    clear = rule.options["clear"]
    if clear is not None and state and value >= clear:
        return True, []
    if value > rule.options["above"]:
        said = _say(rule, event.subject, event.ts, event.fields[rule.value], state="above")
        return clear is not None, [said]
    if state:
        return False, [_say(rule, event.subject, event.ts, event.fields[rule.value], state="clear")]
    return False, []


def _periodic(
    add: Callable[[State, float, Event], State],
    close: Callable[[Rule, State, int], Derived],
) -> Callable[[Rule, State, Event | Tick], Out]:
    """Periods that follow each other: `add` takes events in, `close` speaks at the end of one."""

    def operator(rule: Rule, state: State, event: Event | Tick) -> Out:
        length = _length(rule)
        start = event.ts - event.ts % length
        said = []
        if state is not None and start > state["start"] and state["sum"] is not None:
            said.append(close(rule, state, state["start"] + length))
        if state is None or start > state["start"]:
            state = {"start": start, "subject": "", "sum": None}
        if isinstance(event, Tick):
            return state, said
        value = float(event.fields[rule.value])
        subject = event.subject if state["sum"] is None else state["subject"]
        return {"start": start, "subject": subject, "sum": add(state["sum"], value, event)}, said

    return operator


def _add_moments(total: State, value: float, _: Event) -> State:
    if total is None:
        return [1, value, value, value]
    n, sum_, least, most = total
    return [n + 1, sum_ + value, min(least, value), max(most, value)]


def _close_window(rule: Rule, state: State, end: int) -> Derived:
    n, sum_, least, most = state["sum"]
    values = {
        "avg": sum_ / n,
        "count": n,
        "max": most,
        "min": least,
        "rate": n / rule.options["seconds"],
    }
    return _say(rule, state["subject"], end, f"{values[rule.options['function']]:g}", n=str(n))


def _add_bar(bar: State, value: float, _: Event) -> State:
    if bar is None:
        return [value] * 4
    open_, high, low, _close = bar
    return [open_, max(high, value), min(low, value), value]


def _close_bar(rule: Rule, state: State, end: int) -> Derived:
    names = ("open", "high", "low", "close")
    fields = {name: f"{value:g}" for name, value in zip(names, state["sum"], strict=True)}
    return _say(rule, state["subject"], end, fields["close"], **fields)


def _add_rank(ranks: State, value: float, event: Event) -> State:
    return (ranks or {}) | {event.subject: value}


def _close_rank(rule: Rule, state: State, end: int) -> Derived:
    ranked = sorted(state["sum"].items(), key=lambda pair: (-pair[1], pair[0]))
    top = ranked[: int(rule.options["count"])]
    content = json.dumps([{"subject": subject, "value": value} for subject, value in top])
    return _say(rule, state["subject"], end, content)


def _stale(rule: Rule, state: State, event: Event | Tick) -> Out:
    """Speaks once when nothing came for that long, and once when something comes again."""
    if state is None and isinstance(event, Tick):
        return None, []
    said = []
    if state is not None and not state["stale"] and event.ts - state["last"] >= _length(rule):
        silent_at = state["last"] + _length(rule)
        said.append(_say(rule, state["subject"], silent_at, "stale", state="stale"))
        state = state | {"stale": True}
    if isinstance(event, Tick):
        return state, said
    if state is not None and state["stale"]:
        said.append(_say(rule, event.subject, event.ts, "fresh", state="fresh"))
    last = max(event.ts, state["last"] if state else 0)
    return {"last": last, "subject": event.subject, "stale": False}, said


def _geofence(rule: Rule, state: State, event: Event | Tick) -> Out:
    """Speaks when the point (fields x and y) enters or leaves the area; silent at first outside."""
    if isinstance(event, Tick):
        return state, []
    x, y = float(event.fields["x"]), float(event.fields["y"])
    within = inside(x, y, rule.options["area"])
    if within == bool(state):
        return within, []
    word = "entered" if within else "left"
    return within, [_say(rule, event.subject, event.ts, word, state=word)]


def inside(x: float, y: float, area: tuple[tuple[float, float], ...]) -> bool:
    """Whether the point lies in the polygon: a ray from it crosses the border an odd number of
    times (Shimrat 1962, "Algorithm 112")."""
    crossings = False
    for (x1, y1), (x2, y2) in zip(area, (*area[1:], area[0]), strict=True):
        if (y1 > y) != (y2 > y) and x < (x2 - x1) * (y - y1) / (y2 - y1) + x1:
            crossings = not crossings
    return crossings


OPERATORS: dict[str, Callable[[Rule, State, Event | Tick], Out]] = {
    "last": _last,
    "threshold": _threshold,
    "window": _periodic(_add_moments, _close_window),
    "ohlc": _periodic(_add_bar, _close_bar),
    "top": _periodic(_add_rank, _close_rank),
    "stale": _stale,
    "geofence": _geofence,
}
