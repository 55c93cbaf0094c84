"""The counterexample that TLC gives for a spoilt model, as the steps of seeds and coordinators.

TLC prints the state after each step, and names the part of the module that made it, which is often
too small or too large a part to say which action it was of which seed. So a step is told by what it
changed. The simulator leads runs along such steps (`simulation/led.py`).
"""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from attrs import frozen

STATE = re.compile(r"^State \d+:[^\n]*\n((?:(?!\n\n).)*)", re.M | re.S)
VARIABLE = re.compile(r"^/\\ (\w+) = ", re.M)
TOKEN = re.compile(r'\s*("[^"]*"|<<|>>|\|->|:>|@@|-?\d+|\w+|[\[\](){},])')


class NoCounterexampleError(Exception):
    """TLC printed none, or a step of it is not known here."""


@frozen
class Step:
    """One action: of a seed (0 for the first), or of the coordinator of an epoch.

    `counted` are the seeds whose promises or acknowledgements the coordinator goes by.
    """

    action: str
    epoch: int = 0
    seed: int = -1
    counted: tuple[int, ...] = ()
    publication: str = ""


class Values:
    """Reads values as TLC prints them: sequences are tuples, functions and records dicts."""

    def __init__(self, text: str) -> None:
        self._tokens = TOKEN.findall(text)
        self._at = 0

    def value(self) -> Any:
        """Return the next value."""
        token = self._take()
        match token:
            case "<<":
                return tuple(self._until(">>"))
            case "{":
                return list(self._until("}"))
            case "[":
                return self._record()
            case "(":
                return self._function()
        if token.lstrip("-").isdigit():
            return int(token)
        return token.strip('"')

    def _take(self) -> str:
        self._at += 1
        return str(self._tokens[self._at - 1])

    def _passes(self, token: str) -> bool:
        found = bool(self._tokens[self._at] == token)
        self._at += found
        return found

    def _until(self, end: str) -> Iterator[Any]:
        while not self._passes(end):
            yield self.value()
            self._passes(",")

    def _record(self) -> dict[str, Any]:
        found = {}
        while not self._passes("]"):
            name = self._take()
            self._take()  # |->
            found[name] = self.value()
            self._passes(",")
        return found

    def _function(self) -> dict[Any, Any]:
        found = {}
        while not self._passes(")"):
            key = self.value()
            self._take()  # :>
            found[key] = self.value()
            self._passes("@@")
        return found


def states(output: str) -> list[dict[str, Any]]:
    """Return the states of the counterexample in TLC's output. Raises NoCounterexampleError."""
    found = []
    for block in STATE.findall(output):
        parts = VARIABLE.split(block)[1:]
        found.append(
            {name: Values(text).value() for name, text in zip(parts[::2], parts[1::2], strict=True)}
        )
    if not found:
        raise NoCounterexampleError("TLC printed no counterexample")
    return found


def steps(output: str) -> list[Step]:
    """Return the steps of the counterexample of a model of `GroupLog` or one that extends it.

    Raises NoCounterexampleError.
    """
    return [_step(before, after) for before, after in pairwise(states(output))]


def _step(before: Mapping[str, Any], after: Mapping[str, Any]) -> Step:
    """Return the action that made one state of another."""
    for epoch, (old, new) in enumerate(zip(before["phase"], after["phase"], strict=True), 1):
        if old != new:
            return _of_phase(epoch, old, after)
    for epoch, (old, new) in enumerate(zip(before["clog"], after["clog"], strict=True), 1):
        if old != new:
            return Step("Publish", epoch, publication=str(new[-1]["what"]))
    for epoch, (old, new) in enumerate(zip(before["commit"], after["commit"], strict=True), 1):
        if old != new:
            return Step("Commit", epoch, counted=_acked(epoch, new, after))
    for seed, name in enumerate(sorted(after["status"])):
        step = _of_seed(seed, name, before, after)
        if step is not None:
            return step
    for message in after["sent"]:
        if message not in before["sent"] and message["kind"] == "recover":
            seed = sorted(after["status"]).index(message["to"])
            lost = before["status"][message["to"]] == "lost"
            return Step("Readmit" if lost else "Register", message["epoch"], seed)
    raise NoCounterexampleError("a step of the counterexample is not known here")


def _of_phase(epoch: int, old: str, after: Mapping[str, Any]) -> Step:
    if old == "sync":
        return Step("Activate", epoch, counted=_acked(epoch, after["base"][epoch - 1], after))
    promised = [
        m["from"] for m in after["sent"] if m["kind"] in {"promise", "cold"} and m["epoch"] == epoch
    ]
    if not promised:
        return Step("Shortcut", epoch)  # a successor that no seed elected (HandOver.tla)
    return Step("Elect", epoch, counted=_numbers(promised, after))


def _of_seed(
    seed: int, name: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Step | None:
    def changed(variable: str) -> bool:
        return bool(before[variable][name] != after[variable][name])

    if changed("incarnation"):
        return Step("LoseVote" if after["status"][name] == "lost" else "Crash", seed=seed)
    epoch = after["accepted"][name]
    if changed("status"):
        action = "Install" if changed("promised") or epoch_was_told(name, epoch, after) else ""
        return Step(action or "InstallFromPeers", epoch, seed)
    if changed("accepted"):
        return Step("Sync", epoch, seed)
    if changed("log"):
        return Step("Accept", epoch, seed)
    if changed("promised"):
        return Step("Promise", after["promised"][name], seed)
    return None


def epoch_was_told(name: str, epoch: int, after: Mapping[str, Any]) -> bool:
    """Return whether the coordinator of an epoch handed a seed the log."""
    return any(
        m["kind"] == "recover" and m["to"] == name and m["epoch"] == epoch for m in after["sent"]
    )


def _acked(epoch: int, length: int, after: Mapping[str, Any]) -> tuple[int, ...]:
    return _numbers(
        [
            m["from"]
            for m in after["sent"]
            if m["kind"] == "ack" and m["epoch"] == epoch and m["length"] >= length
        ],
        after,
    )


def _numbers(names: list[str], after: Mapping[str, Any]) -> tuple[int, ...]:
    order = sorted(after["status"])
    return tuple(sorted({order.index(name) for name in names}))
