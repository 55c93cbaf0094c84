"""The operators of rules: one pure function for each kind, over the state of one group.

`step(rule, state, event)` takes the state that an earlier call returned (None at first), and
returns the new state with the messages to publish. States are plain JSON values, so that any engine
can keep them; the old one may have been changed, and is not used any more. Time is that of the
events, in microseconds.

The states of a group, by kind:

- `last`, and `threshold` without `clear`: none, each message is judged by itself.
- `threshold` with `clear`: whether the value is above. It becomes above when it exceeds `above`,
  and ceases to be when it falls below `clear`; each change is published.
- `window`, `ohlc`, `top`: the start of the open period and the sum of its events (None without
  one). An event of a later period, or a `Tick`, closes the period and publishes it; `unusable`
  refuses an event of a period that is closed, so no period is published twice.
- `stale`: the time of the last event, and whether the group is stale. It becomes stale when the
  time passes without an event, and fresh with the next event; each change is published.
- `geofence`: whether the point is inside the area; each change is published.

A message has the moment at which it became true, not that of the tick which brought it out, so
results do not depend on how often ticks come.
"""

import json
import math
import re
from collections.abc import Callable
from typing import Any

from attrs import field, frozen

from mdserver import limits
from mdserver.pipeline.derive.rules import Rule, fill

US = 1_000_000
SHOWN_MAX = 80
NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_is_number = re.compile(NUMBER).fullmatch
PERIODIC = frozenset({"window", "ohlc", "top"})
State = Any


@frozen
class WatchedMessage:
    """A message that a rule watches; `fields` has the content under the name "content"."""

    subject: str
    ts: int
    fields: dict[str, str]


@frozen
class Tick:
    """The time of the events has come this far, although the group got none."""

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


def step(rule: Rule, state: State, event: WatchedMessage | Tick) -> Out:
    """Apply one event or tick to a group's state; return the new state and what to publish.

    An unusable event changes nothing.
    """
    if isinstance(event, WatchedMessage) and unusable(rule, state, event) is not None:
        return state, []
    return OPERATORS[rule.kind](rule, state, event)


def unusable(rule: Rule, state: State, event: WatchedMessage) -> str | None:
    """Return why the rule cannot take the event, None if it can."""
    for name in needed(rule):
        if name not in event.fields:
            return f"field {name} is missing"
        if rule.kind != "last" and _number(event.fields[name]) is None:
            return f"{name} is no number: {event.fields[name][:SHOWN_MAX]!r}"
    if rule.kind in PERIODIC and state is not None and event.ts < state["start"]:
        return f"late by {(state['start'] - event.ts) / US:g} s: its period is over"
    if rule.kind == "top" and state is not None:
        ranks = state["sum"] or {}
        same = event.ts - event.ts % _length(rule) == state["start"]
        if same and event.subject not in ranks and len(ranks) >= limits.DERIVE_RANKED_MAX:
            return f"there are {limits.DERIVE_RANKED_MAX} subjects in the period already"
    return None


def needed(rule: Rule) -> tuple[str, ...]:
    """Return the names of the fields that the rule needs in an event."""
    if rule.kind == "geofence":
        return ("x", "y")
    return () if rule.kind == "stale" else (rule.value,)


def due(rule: Rule, state: State) -> int | None:
    """Return when (us) the group publishes something although no event comes, None for never."""
    if state is None:
        return None
    if rule.kind in PERIODIC and state["sum"] is not None:
        return int(state["start"]) + _length(rule)
    if rule.kind == "stale" and not state["stale"]:
        return int(state["last"]) + _length(rule)
    return None


def is_fresh(rule: Rule, state: State) -> bool:
    """Return whether the state means the same as none, so that nobody needs to keep it."""
    return state is None or (rule.kind in {"threshold", "geofence"} and not state)


def forgotten(rule: Rule, state: State) -> int | None:
    """Return when (us) a group may be forgotten if no event comes, None if it may not be.

    That is long after its last period: until then the state refuses messages that come late.
    """
    if state is None or rule.kind not in PERIODIC or state["sum"] is not None:
        return None
    return int(state["start"]) + int(limits.DERIVE_REMEMBERED_S * US)


def _length(rule: Rule) -> int:
    return int(rule.options["seconds"] * US)


def _number(text: str) -> float | None:
    """Return a finite decimal number, None for all else that `float` takes, such as `nan`."""
    number = float(text) if _is_number(text) else math.inf
    return number if math.isfinite(number) else None


def _say(rule: Rule, subject: str, ts: int, content: str, **fields: str) -> Derived:
    """Return the message that a rule publishes for a subject; its template replaces `content`."""
    if rule.message is not None:
        content = fill(rule.message, subject, {"value": content, **fields})
    return Derived(rule.name, rule.target(subject), content, ts, fields)


def _last(rule: Rule, _: State, event: WatchedMessage | Tick) -> Out:
    if isinstance(event, Tick):
        return None, []
    return None, [_say(rule, event.subject, event.ts, event.fields[rule.value])]


def _threshold(rule: Rule, state: State, event: WatchedMessage | Tick) -> Out:
    """Publish when the value rises above, and with `clear` not again until it fell below that."""
    if isinstance(event, Tick):
        return state, []
    value = float(event.fields[rule.value])
    clear = rule.options["clear"]
    # Between `clear` and `above` the state stays, so a value that wavers there is silent.
    if clear is not None and state and value >= clear:
        return True, []
    if value > rule.options["above"]:
        said = _say(rule, event.subject, event.ts, event.fields[rule.value], state="above")
        return clear is not None, [said]
    if state:
        return False, [_say(rule, event.subject, event.ts, event.fields[rule.value], state="clear")]
    return False, []


def _periodic(
    add: Callable[[State, float, WatchedMessage], State],
    close: Callable[[Rule, State, int], Derived],
) -> Callable[[Rule, State, WatchedMessage | Tick], Out]:
    """Return an operator over periods that follow each other, aligned to the Unix epoch.

    `add` takes a sum (None at first), a value and its event, and returns the new sum. `close` takes
    the state of a period and the time (us) at which it ended, and returns its message.
    """

    def operator(rule: Rule, state: State, event: WatchedMessage | Tick) -> Out:
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
        # A group may have several subjects: the first one of the period fills the templates.
        subject = event.subject if state["sum"] is None else state["subject"]
        return {"start": start, "subject": subject, "sum": add(state["sum"], value, event)}, said

    return operator


def _add_moments(total: State, value: float, _: WatchedMessage) -> State:
    """Return the sum of a window: the number of values, their sum, the least, the greatest."""
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


def _add_bar(bar: State, value: float, _: WatchedMessage) -> State:
    """Return the sum of a bar: the first value, the greatest, the least, the last."""
    if bar is None:
        return [value] * 4
    open_, high, low, _close = bar
    return [open_, max(high, value), min(low, value), value]


def _close_bar(rule: Rule, state: State, end: int) -> Derived:
    names = ("open", "high", "low", "close")
    fields = {name: f"{value:g}" for name, value in zip(names, state["sum"], strict=True)}
    return _say(rule, state["subject"], end, fields["close"], **fields)


def _add_rank(ranks: State, value: float, event: WatchedMessage) -> State:
    """Return the last value of each subject of the period; changes what it is given.

    A copy for each message would take longer the more subjects there are.
    """
    ranks = {} if ranks is None else ranks
    ranks[event.subject] = value
    return ranks


def _close_rank(rule: Rule, state: State, end: int) -> Derived:
    """Return the list of the greatest values; equal ones are in the order of their subjects."""
    ranked = sorted(state["sum"].items(), key=lambda pair: (-pair[1], pair[0]))
    top = ranked[: int(rule.options["count"])]
    content = json.dumps([{"subject": subject, "value": value} for subject, value in top])
    return _say(rule, state["subject"], end, content)


def _stale(rule: Rule, state: State, event: WatchedMessage | Tick) -> Out:
    """Publish once when nothing came for the length, and once when something comes again."""
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
    # A later batch may bring an older event, which must not take the time of silence back.
    last = max(event.ts, state["last"] if state else 0)
    return {"last": last, "subject": event.subject, "stale": False}, said


def _geofence(rule: Rule, state: State, event: WatchedMessage | Tick) -> Out:
    """Publish when the point (fields x and y) enters or leaves the area.

    A first point outside publishes nothing, since it has not left the area.
    """
    if isinstance(event, Tick):
        return state, []
    x, y = float(event.fields["x"]), float(event.fields["y"])
    within = inside(x, y, rule.options["area"])
    if within == bool(state):
        return within, []
    word = "entered" if within else "left"
    return within, [_say(rule, event.subject, event.ts, word, state=word)]


def inside(x: float, y: float, area: tuple[tuple[float, float], ...]) -> bool:
    """Return whether the point lies in the polygon.

    A ray from a point inside crosses the border an odd number of times (Shimrat 1962, "Algorithm
    112: Position of point relative to polygon").
    """
    crossings = False
    for (x1, y1), (x2, y2) in zip(area, (*area[1:], area[0]), strict=True):
        if (y1 > y) != (y2 > y) and x < (x2 - x1) * (y - y1) / (y2 - y1) + x1:
            crossings = not crossings
    return crossings


OPERATORS: dict[str, Callable[[Rule, State, WatchedMessage | Tick], Out]] = {
    "last": _last,
    "threshold": _threshold,
    "window": _periodic(_add_moments, _close_window),
    "ohlc": _periodic(_add_bar, _close_bar),
    "top": _periodic(_add_rank, _close_rank),
    "stale": _stale,
    "geofence": _geofence,
}
