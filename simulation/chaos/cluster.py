"""The cluster of a chaos run: members, the wire between them, and the doors for their clients."""

import math
from collections import Counter
from collections.abc import Callable, Collection
from itertools import combinations
from pathlib import Path

import trio
from attrs import define

from simulation.chaos.identity import Change
from simulation.chaos.members import Member
from simulation.chaos.plan import Plan
from simulation.chaos.proxy import Proxy
from simulation.chaos.releases import unpack
from simulation.chaos.statuses import NORMAL, NoAnswerError, Status, status_of
from simulation.chaos.wire import Pair, Wire, text
from simulation.diagram import Mark

LOOK_EVERY_S = 0.25
RELEASE_FOLDER = "release"  # in the folder of a run: the release before, if members run it


@define
class Availability:
    """How long the cluster could have taken publications, and took none.

    It can while a majority of seeds is up, in contact and votes.
    """

    since: float = math.inf  # able, or last acknowledged, whichever is later
    longest_s: float = 0.0

    def now_able(self, able: bool, at: float) -> None:
        """Whether it can, from now on."""
        if not able:
            self._measure(at)
            self.since = math.inf
        elif self.since == math.inf:
            self.since = at

    def acked(self, at: float) -> None:
        """A publication was acknowledged."""
        self._measure(at)
        if self.since != math.inf:
            self.since = at

    def _measure(self, at: float) -> None:
        self.longest_s = max(self.longest_s, at - self.since)


class Cluster:
    """Starts and watches members; `tell` takes what must never happen."""

    def __init__(self, plan: Plan, wire: Wire, folder: Path, tell: Callable[[str], None]) -> None:
        self.plan = plan
        self.wire = wire
        self.folder = folder
        self.seeds = range(plan.seeds)
        release = unpack(folder / RELEASE_FOLDER) if plan.upgraded else None
        self.members = [
            Member(number, wire, folder, tell, journal=plan.journal, release=release)
            for number in range(plan.members)
        ]
        self.doors: list[Proxy] = []
        self.doomed: dict[int, None] = {}  # members whose process is about to end
        self.statuses: dict[int, Status] = {}
        self.epochs: dict[int, int] = {}
        self.coordinators: dict[int, str] = {}
        self.changes = 0  # of coordinators
        self.marks: list[Mark] = []
        self.available = Availability()
        self._began = 0.0
        self.looked = trio.lowlevel.ParkingLot()
        self._blocked: Counter[Pair] = Counter()
        self._slow: Counter[int] = Counter()
        self._wiring = trio.Lock()
        self._nursery: trio.Nursery | None = None
        self._places: dict[int, str] = {}  # of members that are listed -> their entry

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start all members, and watch them until cancelled; then none of them is left."""
        self._began = trio.current_time()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self.wire.run)
            try:
                for member in self.members:
                    door = Proxy(self.wire.clients(member.number))
                    await nursery.start(door.run)
                    self.doors.append(door)
                for member in self.members:
                    self.enlist(member.number)
                for member in self.members:
                    member.write_list(self._places.values())
                    self.start(member)
                    nursery.start_soon(self._look, member)
                task_status.started()
                await trio.sleep_forever()
            finally:
                for member in self.members:
                    member.kill()

    def mark(self, member: int | None, what: str, *, fault: bool = True) -> None:
        """Note for the diagram what happened, at a member or (None) to all."""
        at_s = trio.current_time() - self._began
        column = 0 if member is None else 1 + member
        self.marks.append(Mark(at_s, column, what, fault=fault))

    # Members

    def start(self, member: Member) -> None:
        """Start its process."""
        assert self._nursery is not None
        door = self.doors[member.number].address
        process = member.start(self.plan.seeds, door)
        self.mark(member.number, "start", fault=False)
        self._nursery.start_soon(member.watch, process)

    async def refused(self, member: Member, change: Change) -> None:
        """Start a member that is down with another identity, and see it refused."""
        door = self.doors[member.number].address
        self.mark(member.number, f"start with another identity: {change.name}")
        await member.refused(self.plan.seeds, door, change)

    # Who is a member, and where

    def enlist(self, number: int) -> None:
        """Have a member in the lists from now on, with the address where it is; see `spread`."""
        member = self.members[number]
        name = text(self.wire.peer(number))
        at = member.moved_to
        self._places[number] = name if at is None else f"{name}@{text(at)}"
        self._places = dict(sorted(self._places.items()))

    def strike(self, number: int) -> None:
        """Have a member that is no seed in the lists no more."""
        del self._places[number]

    def spread(self, *, told: bool = True) -> None:
        """Write the lists; where `told`, members that run read them at once."""
        for member in self.members:
            member.write_list(self._places.values())
            if told:
                member.reload()

    def spare(self, member: Member) -> bool:
        """Whether a majority of the seeds keeps its logs without this one."""
        left = [
            seed
            for seed in self.seeds
            if seed != member.number and seed not in self.doomed and self.members[seed].proven
        ]
        return member.number not in self.seeds or 2 * len(left) > len(self.seeds)

    def able(self) -> bool:
        """Whether a majority of seeds is up, votes, and is in contact with each other."""
        up = [seed for seed in self.seeds if self.members[seed].up and self.members[seed].proven]
        return any(
            not any(self._blocked[a, b] or self._blocked[b, a] for a, b in combinations(some, 2))
            for some in combinations(up, len(self.seeds) // 2 + 1)
        )

    # Watching

    async def _look(self, member: Member) -> None:
        """Ask a member again and again what it is."""
        name = text(self.wire.peer(member.number))
        address = self.wire.monitor(member.number)
        while True:
            starts = member.starts
            try:
                status = await status_of(address, name)
            except NoAnswerError:
                status = None
            self._changed(member.number, self.statuses.get(member.number), status)
            if status is not None:
                if starts == member.starts and member.running and status.state in NORMAL:
                    member.prove()
                self._compare(status)
            self.judge()
            self.looked.unpark_all()
            await trio.sleep(LOOK_EVERY_S)

    def _changed(self, member: int, before: Status | None, status: Status | None) -> None:
        if status is None:
            self.statuses.pop(member, None)
        else:
            self.statuses[member] = status
        was, is_now = (found.shown if found else "no answer" for found in (before, status))
        if was != is_now:
            self.mark(member, is_now, fault=False)

    def _compare(self, status: Status) -> None:
        for group, (who, epoch) in enumerate(zip(status.coordinators, status.epochs, strict=True)):
            if who is None or epoch <= self.epochs.get(group, 0):
                continue
            before = self.coordinators.get(group)
            self.epochs[group], self.coordinators[group] = epoch, who
            if before is not None and before != who:
                self.changes += 1
                self.mark(self._number(who), f"coordinates group {group}", fault=False)

    def _number(self, name: str) -> int:
        names = [text(self.wire.peer(number)) for number in range(self.plan.members)]
        return names.index(name)

    def judge(self) -> None:
        """Whether publications could be taken, after whatever changed."""
        self.available.now_able(self.able(), trio.current_time())

    # The wire

    async def block(self, pairs: Collection[Pair]) -> None:
        """Block pairs, until `unblock` with the same."""
        async with self._wiring:
            self._blocked.update(pairs)
            self.judge()
            await self.wire.block([pair for pair, count in self._blocked.items() if count])

    async def unblock(self, pairs: Collection[Pair]) -> None:
        """One reason less to block them."""
        async with self._wiring:
            self._blocked.subtract(pairs)
            await self.wire.block([pair for pair, count in self._blocked.items() if count])
            self.judge()

    async def slow(self, member: int, change: int) -> None:
        """One reason more (1) or less (-1) for a member to send slowly."""
        async with self._wiring:
            self._slow[member] += change
            await self.wire.slow([member for member, count in self._slow.items() if count])

    # The end

    def unrest(self) -> str | None:
        """What is not as it should be when all is well; None if everything is."""
        for member in self.members:
            status = self.statuses.get(member.number)
            if member.running is None:
                return f"{member.name} is down"
            if status is None:
                return f"{member.name} does not answer operators"
            if status.trouble is not None:
                return f"{member.name} {status.trouble}"
        committed = [self.statuses[member.number].committed for member in self.members]
        if any(row != committed[0] for row in committed):
            return f"members are committed up to {committed}"
        return None
