"""Clients that do more than publish and subscribe for good: what a run may have beside the others.

Each of them keeps the rules of the checker as every client does: what it sees of a subject goes on
without a hole while it is subscribed, whichever way it asked for it.
"""

import random
from functools import partial
from typing import TYPE_CHECKING, Any

from mdserver.client.core import values
from mdserver.core.commands import Publish
from mdserver.core.message import Qos
from mdserver.limits import NS_PER_MS
from simulation.clients import Client

if TYPE_CHECKING:
    from simulation.world import World

TURNS = (2, 5, 15)
"""How often such a client changes its mind in a run."""
SHORTLY = 4
"""After at most so many times the longest delay it often goes on, with messages under way."""
LOOSE = (5, 30, 100)
"""How many publications come without numbers in a run."""
STANDARD = "standard "
"""How the content of a STANDARD publication begins; these have no position to be judged by."""


class Restless(Client):
    """A subscriber by pattern or with options, that holds, leaves out and takes again.

    `kind` is what it does: "pattern", "conflation", "history", "pause", "hold", "leave".
    """

    KINDS = ("pattern", "conflation", "history", "pause", "hold", "leave")

    def __init__(self, world: "World", name: str, rng: random.Random) -> None:
        super().__init__(world, name, rng, publisher=False)
        self.kind = rng.choice(self.KINDS)
        self.stopped = False

    def subscribe(self, subjects: list[str]) -> None:
        """Subscribe in its own way."""
        self.recorder.subscribed(self.world.heap.now, subjects)
        self.world.cover(f"a subscriber with a habit: {self.kind}")
        match self.kind:
            case "pattern":
                self.do(self.core.subscribe([self.rng.choice(("/s/*", "/**"))]))
            case "conflation":
                self.do(self.core.subscribe(subjects, conflation_ms=self.rng.choice((20, 500))))
            case "history":
                self.do(self.core.subscribe(subjects, history=self.rng.choice((1, 5, 100))))
            case _:
                self.do(self.core.subscribe(subjects))

    def turn(self) -> None:
        """Stop receiving, or go on."""
        if self.stopped:
            self.back()
            return
        match self.kind:
            case "pause":
                self.do(self.core.pause())
            case "hold":
                self.do(self.core.hold(self.world.subjects))
            case "leave":
                self.do(self.core.unsubscribe(self.world.subjects))
            case _:
                return
        self.stopped = True

    def back(self) -> None:
        """Go on, if it stopped."""
        if not self.stopped:
            return
        self.stopped = False
        self.world.cover(f"back after: {self.kind}")
        match self.kind:
            case "pause":
                self.do(self.core.resume())
            case "hold":
                self.do(self.core.release(self.world.subjects))
            case "leave":
                self.recorder.positions.clear()
                self.subscribe(self.world.subjects)

    def _confirmed(self, output: values.Subscribed) -> None:
        # It paused before that: what it was brought was dropped, and comes anew when it goes on.
        if not self.stopped:
            super()._confirmed(output)

    def _messages(self, output: values.DeliverMessages) -> None:
        conflated = self.kind == "conflation"
        now, history = self.world.heap.now, self.core.positions.history
        self.recorder.messages(now, history, output.messages, conflated=conflated)


class Loose(Client):
    """A publisher that numbers nothing: it repeats what had no result, so it may come twice.

    Some of its publications have fields, and some are STANDARD: those are sent at most once.
    """

    def __init__(self, world: "World", name: str, rng: random.Random) -> None:
        super().__init__(world, name, rng, publisher=False)

    def publish(self, subject: str, name: str) -> None:
        """Publish one message in some way."""
        drawn = self.rng.random()
        more: dict[str, Any] = {}
        if drawn < 0.3:
            more["qos"] = Qos.STANDARD
            name = f"{STANDARD}{name}"
        elif drawn < 0.6:
            more["fields"] = {self.rng.choice("abc"): name}
        self.world.cover(f"published with {', '.join(more) or 'nothing more'}")
        number, outputs = self.core.publish(Publish(subject=subject, content=name, **more))
        self.recorder.published(self.world.heap.now, number, name, subject, once=False)
        self.do(outputs)


def schedule(world: "World") -> None:
    """Have clients with habits do what they do until the calm."""
    plan, heap = world.plan, world.heap
    rng = random.Random(f"{plan.seed} habits")
    for restless in world.restless:
        for _ in range(rng.choice(TURNS)):
            at = rng.randrange(plan.calm)
            heap.at(at, restless.turn)
            if rng.random() < 0.5:
                heap.at(at + rng.randrange(SHORTLY * plan.delay_max), restless.back)
        heap.at(plan.calm - NS_PER_MS, restless.back)
    for loose in world.loose:
        for number in range(rng.choice(LOOSE)):
            subject = rng.choice(world.subjects)
            name = f"{loose.name}-{number}"
            heap.at(rng.randrange(plan.calm), partial(loose.publish, subject, name))
