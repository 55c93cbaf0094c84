"""Random walks of overlapping subscriptions of the Python client, for the JavaScript one to repeat.

A walk is a list of steps: a call with what was given, the commands that it sent, and the messages
that were taken. Marks are negative numbers here and positive ones there.
"""

import json
import random
from typing import Any

from mdserver.client.core import values as out
from mdserver.client.message import Message
from tests.client.test_sharing import READERS_MAX, Reader, SharingMachine, wander

STEPS = 40


class RecordedSharing(SharingMachine):
    """Both sides, with each step of the client written down."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        super().__init__()
        self.steps.clear()

    def step(self, call: str, *given: Any) -> dict[str, Any]:
        """Begin a step; what is sent from now on belongs to it."""
        self.steps.append({"call": call, "given": given, "sent": [], "got": []})
        return self.steps[-1]

    def transport(self, output: out.Output) -> None:
        if isinstance(output, out.Transmit):
            self.steps[-1]["sent"].append(json.loads(_positive(output.frame)))
        super().transport(output)

    def take(self, reader: Reader) -> None:
        step = self.step("take", self.readers.index(reader))
        for item in reader.subscription._mailbox._items:
            if isinstance(item, Message):
                assert item.position is not None
                step["got"].append([item.subject, item.position.seq, item.type.value])
            else:
                step["got"].append("refused")
        super().take(reader)

    def subscribe(
        self,
        interests: list[str],
        history: int = 0,
        room: int = 1_000,
        conflation_ms: int = 0,
    ) -> None:
        if len(self.readers) < READERS_MAX:
            history = history if self.histories else 0
            self.step("add", interests, history, room, conflation_ms if self.conflating else 0)
        super().subscribe(interests, history, room, conflation_ms)

    def end(self, which: int, whole: bool) -> None:
        which %= len(self.readers)
        subjects = self.readers[which].subscription.subjects
        if subjects:
            self.step("remove", which, list(subjects) if whole else subjects[:1])
        super().end(which, whole)

    def pause(self, paused: bool) -> None:
        self.step("pause" if paused else "resume")
        super().pause(paused)

    def renew_token(self) -> None:
        self.step("token")
        super().renew_token()

    def lose(self) -> None:
        self.step("lose", self.attempt)
        super().lose()

    def connect(self) -> None:
        self.step("connect")
        super().connect()

    def client_hears(self, frames: int) -> None:
        for _ in range(min(frames, len(self.to_client))):
            self.step("hear", self.attempt, _positive(self.to_client[0]))
            super().client_hears(1)


def _positive(frame: bytes) -> str:
    return frame.decode().replace('"m-', '"m')


def walk(seed: int) -> dict[str, Any]:
    """Return a walk with the number by which it can be had again."""
    it = RecordedSharing()
    wander(it, random.Random(seed), STEPS)
    return {"seed": seed, "steps": it.steps}
