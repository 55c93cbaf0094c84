"""Count what the server executes for a publication: instructions and calls of its own Python code.

`mdserver run` runs in the main thread under `sys.settrace`, as in `tests.house.way`. Counts do not
depend on how fast the computer is or what else it does, so a change of some percent shows. What
functions in C do is not in them.

Run as a program it prints the counts as JSON.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from types import FrameType
from typing import Any

from attrs import frozen

from mdserver.cli.main import exit_status
from tests.house.way import ROOT, SETTINGS, TIMEOUT_S, Client, ReadyLine

WARM_UP = 10
ROUNDS = 15
TOGETHER = 20
QUIET_S = 0.01


@frozen
class Scenario:
    """Publications that arrive together, each to a subject with this many subscribers."""

    name: str
    publications: int = 1
    subscribers: int = 1


SCENARIOS = (
    Scenario("a publication to one subscriber"),
    Scenario(f"one of {TOGETHER} publications of a read, a subscriber each", TOGETHER),
    Scenario(f"a publication to {TOGETHER} subscribers", 1, TOGETHER),
)


class Tracer:
    """A trace function that counts instructions and calls of functions of the server."""

    def __init__(self) -> None:
        self.instructions = 0
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(ROOT):
            return None
        self.calls += 1
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self.inside

    def inside(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Count an instruction of a function of the server."""
        if event == "opcode":
            self.instructions += 1
        return self.inside

    def settled(self) -> tuple[int, int]:
        """Wait until nothing is counted any more; return instructions and calls."""
        deadline = time.monotonic() + TIMEOUT_S
        before = (-1, -1)
        while (now := (self.instructions, self.calls)) != before and time.monotonic() < deadline:
            before = now
            time.sleep(QUIET_S)
        return now


def measured() -> dict[str, dict[str, float]]:
    """Return instructions and calls for a publication in each scenario, by their names."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.guard.counts"],
        capture_output=True,
        text=True,
        timeout=6 * TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"the measurement failed: {done.stderr}")
    counts: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return counts


def play(port: int, scenario: Scenario, tracer: Tracer) -> dict[str, float]:
    """Return the median counts of a publication over some rounds."""
    subjects = [f"/guard/{scenario.subscribers}/{at}" for at in range(scenario.publications)]
    found = []
    with ExitStack() as stack:
        publisher = stack.enter_context(closing(Client(port)))
        subscribers = []
        for subject in subjects:
            for _ in range(scenario.subscribers):
                subscriber = stack.enter_context(closing(Client(port)))
                subscriber.send(op="subscribe", subjects=[subject])
                subscriber.send(op="ping", t="there")
                subscriber.wait_for(b'"there"')
                subscribers.append(subscriber)
        for number in range(WARM_UP + ROUNDS):
            before = tracer.settled()
            frames = [
                frame(op="publish", subject=subject, content=f"n{number}.", id=f"{number}-{at}.")
                for at, subject in enumerate(subjects)
            ]
            publisher.sock.sendall(b"".join(frames))
            for subscriber in subscribers:
                subscriber.wait_for(f"n{number}.".encode())
            publisher.wait_for(f'"{number}-{len(subjects) - 1}."'.encode())
            after = tracer.settled()
            if number >= WARM_UP:
                found.append([late - early for early, late in zip(before, after, strict=True)])
    instructions, calls = (statistics.median(each) for each in zip(*found, strict=True))
    return {
        "instructions": instructions / scenario.publications,
        "calls": calls / scenario.publications,
    }


def frame(**command: object) -> bytes:
    """Return a command in one WebSocket frame of fewer than 126 bytes; its mask is zeros."""
    payload = json.dumps(command).encode()
    assert len(payload) < 126
    return bytes((0x81, 0x80 | len(payload))) + bytes(4) + payload


def run() -> int:
    """Run the server and the clients; print the counts."""
    tracer = Tracer()
    counts: dict[str, dict[str, float]] = {}

    def client(port: int) -> None:
        try:
            counts.update({each.name: play(port, each, tracer) for each in SCENARIOS})
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def ready(port: int) -> None:
        threading.Thread(target=client, args=(port,), daemon=True).start()

    stdout, sys.stdout = sys.stdout, ReadyLine(ready)  # type: ignore[assignment]
    sys.settrace(tracer)
    try:
        status = exit_status(["run", *settings()])
    finally:
        sys.settrace(None)
        sys.stdout = stdout
    if status == 0:
        print(json.dumps(counts))
    return status


def settings() -> Iterator[str]:
    """Yield the options of the server: no monitor, whose samples would be counted."""
    for one in (*SETTINGS, "Monitor="):
        yield from ("--set", one)


if __name__ == "__main__":
    sys.exit(run())
