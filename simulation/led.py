"""Runs that are led along the steps of a counterexample (`spec.counterexamples`).

Three seeds vote, and each epoch of the counterexample has a coordinator of its own that is no seed,
as in the specification. While a run is led, nothing passes between seeds and coordinators but what
the step at hand needs: the way to a seed is open until it took the step, and the ways from those
seeds whose promises or acknowledgements a coordinator goes by until it went by them. Links keep
their order, so what was held before comes first. A step that does not come about is passed over.
Behind the last coordinator the first one has its turn again.

Three steps are not of the specification, whose models put no disk back: `Keep` copies the disk of a
seed, `PutBack` ends the seed and starts it with that copy, and in `Meet` the seeds and the
coordinator of the epoch hear each other for a while.
"""

import random
from collections.abc import Iterable
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING

from attrs import frozen

from mdserver.cluster.messages import HandOver
from mdserver.core.commands import Connect, Publish
from mdserver.core.inputs import Opened, Received
from mdserver.core.publishers import PublisherKeys
from mdserver.limits import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from simulation.cluster import Disk
    from simulation.members import Member
    from simulation.world import World

BEGIN = 4 * NS_PER_S
PATIENCE = NS_PER_S
BEFORE_A_CRASH = 20 * NS_PER_MS
LOOKED_AT = 200 * NS_PER_MS
LOOK_EVERY = NS_PER_MS // 5  # what is wrong once all hear each other again may not last long
MEETING = NS_PER_S
READMIT_EVERY = NS_PER_S
TAKEN = ("Sync", "ColdSync", "Install")
TRACES = {
    "Promise": ("Promise",),
    "Elect": ("Elect",),
    "Shortcut": ("Elect",),
    "Sync": TAKEN,
    "Activate": ("Activate",),
    "Accept": ("Accept",),
    "Commit": ("Commit",),
    "Register": ("Register",),
    "Readmit": ("Readmit", "Register"),  # without an election for the loss it is a mere Register
    "Install": TAKEN,
    "InstallFromPeers": TAKEN,
}
"""The actions of the specification, and the steps in traces that they are."""

Way = tuple[str, str]


@frozen
class LedStep:
    """An action of a seed, or of the coordinator of an epoch (1 for the first one).

    `counted` are the seeds whose promises or acknowledgements the coordinator goes by.
    """

    action: str
    epoch: int = 0
    seed: int = -1
    counted: tuple[int, ...] = ()
    publisher: str = ""
    number: int = 0


class Led:
    """Leads the run of a world along its plan's steps."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self._steps = list(world.plan.led)
        self._places: list[Member] = []
        self._stood: dict[int, None] = {}
        self._shut: dict[Way, None] = {}
        self._kept: dict[int, Disk] = {}
        self._lost: dict[int, None] = {}
        self._waiting = 0  # the number of the step that is waited for
        if self._steps:
            world.heap.at(BEGIN, self._begin)

    def _begin(self) -> None:
        world = self.world
        views = [m.node.group_statistics(0) for m in world.members.values() if m.node]
        first = max(views, key=lambda view: view.epoch).coordinator
        others = [name for name in world.names if name not in world.seeds and name != first]
        self._places = [world.members[name] for name in others]
        self._only(())
        self._next()

    # Who hears whom

    def _only(self, ways: Iterable[Way]) -> None:
        """Let these ways be open, those from each coordinator to later ones, and no others."""
        world, order = self.world, [place.name for place in self._places]
        later = {(one, other) for at, one in enumerate(order) for other in order[at + 1 :]}
        opened = later | set(ways)
        for way in ((a, b) for a in world.names for b in world.names if a != b):
            if way in opened and way in self._shut:
                del self._shut[way]
                world.links.unblock(*way)
            elif way not in opened and way not in self._shut:
                self._shut[way] = None
                world.links.block(*way)

    def _seed(self, number: int) -> "Member":
        return self.world.members[self.world.seeds[number]]

    def _coordinator(self, epoch: int) -> "Member":
        return self._places[(epoch - 1) % len(self._places)]

    # The steps

    def _next(self) -> None:
        self.world.look()
        if not self._steps:
            for way in list(self._shut):
                self.world.links.unblock(*way)
            self._shut = {}
            for delay in range(0, LOOKED_AT, LOOK_EVERY):
                self.world.heap.after(delay, self.world.look)
            self._take_back()
            return
        step = self._steps.pop(0)
        coordinator = self._coordinator(step.epoch)
        match step.action:
            case "Publish":
                self._publish(coordinator, step)
                self._next()
            case "Crash" | "LoseVote" | "PutBack":
                self._crash(step)
            case "Keep":
                self._kept[step.seed] = self._seed(step.seed).disk.copy()
                self._next()
            case "Meet":
                self._only(permutations((*self.world.seeds, coordinator.name), 2))
                self.world.heap.after(MEETING, self._go_on)
            case "Promise" | "Shortcut" if step.epoch not in self._stood:
                self._stand(step, self.world.heap.now + PATIENCE)
            case _:
                self._lead(step, coordinator)

    def _lead(self, step: LedStep, coordinator: "Member") -> None:
        """Open the ways that a step needs until it was taken, or for as long as one waits."""
        seeds = [self.world.members[name] for name in self.world.seeds]
        taker = coordinator if step.counted else seeds[step.seed]
        to, back = (coordinator.name, taker.name), (taker.name, coordinator.name)
        match step.action:
            case "Register":
                self._only((to, back))
                taker = coordinator
            case "Readmit":
                # An operator's word counts once the seed has heard a majority of the others.
                self._only((*permutations(self.world.seeds, 2), to, back))
                taker = coordinator
            case "Install":
                self._only((to, back))
            case "Shortcut":
                self._only(())
                taker = coordinator
            case "InstallFromPeers":
                peers = [seed.name for seed in seeds if seed is not taker]
                self._only([(a, b) for p in peers for a, b in ((p, taker.name), (taker.name, p))])
            case _ if step.counted:
                self._only((seeds[number].name, coordinator.name) for number in step.counted)
            case _:
                self._only((to,))
        self._waiting += 1
        number = self._waiting

        def strike(member: "Member") -> bool:
            if member is taker and self._waiting == number:
                self.world.cover("led to a step")
                self._waiting += 1
                self.world.heap.after(0, self._go_on)
            return self._waiting != number

        if step.action == "Readmit":
            self._readmit(seeds[step.seed], number)
        self.world.triggers += [(name, strike) for name in TRACES[step.action]]
        self.world.heap.after(PATIENCE, partial(self._passed_over, number))

    def _readmit(self, seed: "Member", number: int) -> None:
        """Give an operator's word again and again, until the step is over."""
        if self._waiting == number:
            seed.operate("readmit", seed.name)
            self.world.heap.after(LOOK_EVERY, partial(self._readmit, seed, number))

    def _passed_over(self, number: int) -> None:
        if self._waiting == number:
            self.world.cover("a step was passed over")
            self._waiting += 1
            self._go_on()

    def _go_on(self) -> None:
        self._only(())
        self._next()

    def _stand(self, step: LedStep, until: int) -> None:
        """Have a coordinator ask the next one to stand, once that follows it."""
        world, candidate = self.world, self._coordinator(step.epoch)
        assert candidate.node is not None
        view = candidate.node.group_statistics(0)
        before = self._coordinator(step.epoch - 1).name if self._stood else view.coordinator
        if (view.active and view.coordinator == before) or world.heap.now >= until:
            self._stood[step.epoch] = None
            self._lead(step, candidate)  # it may take the step at once
            candidate.received(view.coordinator, [HandOver([0])])
        else:
            world.heap.after(NS_PER_MS, lambda: self._stand(step, until))

    def _publish(self, member: "Member", step: LedStep) -> None:
        """A publisher speaks to a coordinator itself."""
        session = member.next_session()
        keys = PublisherKeys(b"simulated", random.Random(1))
        name = step.publisher
        publish = Publish(subject="/s/0", content=f"{name} {step.number}", number=step.number)
        member.step(Opened(session, "192.0.2.1"))
        member.step(Received(session, [Connect(publisher=name, publisher_key=keys.key(name))]))
        member.step(Received(session, [publish]))

    def _crash(self, step: LedStep) -> None:
        """A seed dies and starts again at once; what it had said before gets through."""
        world = self.world
        seed = self._seed(step.seed)
        self._only((seed.name, place.name) for place in self._places)

        def strike() -> None:
            self._only(())
            seed.crash(0)
            if step.action == "LoseVote":
                seed.disk.votes = None
            elif step.action == "PutBack":
                seed.disk = self._kept[step.seed].copy()
            if step.action != "Crash":
                seed.record_lost = True
                self._lost[step.seed] = None
            if 2 * len(self._lost) > len(world.seeds):
                world.checker.majority_kept = False
            seed.start()
            self.world.look()  # before its peers hear of it
            self._next()

        world.heap.after(BEFORE_A_CRASH, strike)

    def _take_back(self) -> None:
        """An operator takes those back whose record is lost, and looks again every second."""
        for number in self._lost:
            seed = self._seed(number)
            if seed.node is not None and seed.node.statistics().record_lost:
                seed.operate("readmit", seed.name)
        if self._lost and self.world.heap.now < self.world.plan.calm:
            self.world.heap.after(READMIT_EVERY, self._take_back)
