"""What the kinds of rules compute: one pure function a kind, over the state of one group.

`step(rule, state, event)` takes the state that an earlier call returned (None at first) and gives
the new one with what is to be published. States are plain JSON values, so that any engine can keep
them; time is that of the events, in microseconds. A period is over when an event of a later one, or
a `Tick`, comes: events that are later than that count to the period in which they come.
"""

import json
from collections.abc import Callable
from typing import Any

from attrs import field, frozen

from mdserver.pipeline.rules import Rule, fill

US = 1_000_000
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
    """Apply one event or tick to a group's state; an event without a value changes nothing."""
    if isinstance(event, Event) and rule.kind != "geofence" and number(rule, event) is None:
        return state, []
    return OPERATORS[rule.kind](rule, state, event)


def number(rule: Rule, event: Event) -> float | None:
    """The value that the rule looks at, if it is a number."""
    try:
        return float(event.fields[rule.value])
    except (KeyError, ValueError):
        return None


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
    value = number(rule, event)
    assert value is not None
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
        length = int(rule.options["seconds"] * US)
        start = event.ts - event.ts % length
        said = []
        if state is not None and start > state["start"]:
            said.append(close(rule, state, state["start"] + length))
            state = None
        if isinstance(event, Tick):
            return state, said
        value = number(rule, event)
        assert value is not None
        if state is None:
            state = {"start": start, "subject": event.subject, "sum": None}
        return state | {"sum": add(state["sum"], value, event)}, said

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
    if isinstance(event, Event):
        said = []
        if state is not None and state["stale"]:
            said = [_say(rule, event.subject, event.ts, "fresh", state="fresh")]
        last = max(event.ts, state["last"] if state else 0)
        return {"last": last, "subject": event.subject, "stale": False}, said
    if state is None or state["stale"]:
        return state, []
    silent = event.ts - state["last"]
    if silent < rule.options["seconds"] * US:
        return state, []
    said = [_say(rule, state["subject"], event.ts, "stale", state="stale")]
    return state | {"stale": True}, said


def _geofence(rule: Rule, state: State, event: Event | Tick) -> Out:
    """Speaks when the point (fields x and y) enters or leaves the area; silent at first outside."""
    if isinstance(event, Tick):
        return state, []
    try:
        x, y = float(event.fields["x"]), float(event.fields["y"])
    except (KeyError, ValueError):
        return state, []
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
