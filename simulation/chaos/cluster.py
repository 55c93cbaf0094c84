"""The cluster of a chaos run: members, the wire between them, and the doors for their clients."""

import os
from collections import Counter
from collections.abc import Callable, Collection
from itertools import combinations
from pathlib import Path

import trio

from simulation.chaos.identity import Change
from simulation.chaos.members import Member
from simulation.chaos.plan import Plan
from simulation.chaos.processor import Served, Waiting
from simulation.chaos.promises import HeldByMajorities, Known
from simulation.chaos.proxy import Proxy
from simulation.chaos.releases import unpack
from simulation.chaos.silence import Silence
from simulation.chaos.statuses import NORMAL, NoAnswerError, Status, status_of
from simulation.chaos.timeline import Moment, Timeline
from simulation.chaos.wire import Pair, Wire, text
from simulation.diagram import Mark

LOOK_EVERY_S = 0.25
RELEASE_FOLDER = "release"  # in the folder of a run: the release before, if members run it


class Cluster:
    """Starts and watches members; `tell` takes what must never happen.

    `broken` takes promises that members break, `starting` is told which one is about to start.
    `majorities`: None once a majority of seeds may have lost its memory, or if nobody votes.
    """

    def __init__(
        self,
        plan: Plan,
        wire: Wire,
        folder: Path,
        tell: Callable[[str], None],
        broken: Callable[[str], None] = lambda _: None,
        starting: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._broken = broken
        self._starting = starting
        self.majorities = None if plan.standard else HeldByMajorities()
        self.plan = plan
        self._tell = tell
        self.wire = wire
        self.folder = folder
        self.seeds = list(range(plan.seeds))
        self.next: list[int] | None = None  # the seeds that are to follow, while they change
        self.list_number = 1  # of the list of seeds
        release = unpack(folder / RELEASE_FOLDER) if plan.upgraded else None
        self.members = [
            Member(number, wire, folder, tell, plan, release=release)
            for number in range(plan.members)
        ]
        self.doors: list[Proxy] = []
        self.doomed: dict[int, None] = {}  # members whose process is about to end
        self.statuses: dict[int, Status] = {}
        self.epochs: dict[int, int] = {}
        self.coordinators: dict[int, str] = {}
        self.changes = 0  # of coordinators
        self.marks: list[Mark] = []
        self.timeline = Timeline()
        self.silence = Silence()
        self.waiting = Waiting()
        self._served = Served()
        self._began = 0.0
        self.looked = trio.lowlevel.ParkingLot()
        self._blocked: Counter[Pair] = Counter()
        self._slow: Counter[int] = Counter()
        self._shuffled: Counter[int] = Counter()
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
                await self._make_disks()
                for member in self.members:
                    target = self.wire.encrypted if self.plan.encrypted else self.wire.clients
                    door = Proxy(target(member.number), narrow=self.plan.narrow)
                    await nursery.start(door.run)
                    self.doors.append(door)
                for member in self.members:
                    self.enlist(member.number)
                for member in self.members:
                    member.write_list(self._places.values())
                    self.start(member)
                    nursery.start_soon(self._look, member)
                nursery.start_soon(self._look_at_processors)
                task_status.started()
                await trio.sleep_forever()
            finally:
                for member in self.members:
                    member.kill()
                await self._leave_disks()

    async def _make_disks(self) -> None:
        """Give each member its disk, if it has one."""
        for member in self.members:
            if member.disk is not None:
                await member.disk.make()

    async def _leave_disks(self) -> None:
        """Have each disk's files in an ordinary folder; one that fails does not keep the others."""
        for member in self.members:
            if member.disk is None or not member.disk.folder.is_mount():
                continue
            try:
                await member.disk.leave()
            except (OSError, RuntimeError, trio.TooSlowError) as error:
                self._tell(f"the disk of {member.name} was not left: {error}")

    def mark(self, member: int | None, what: str, *, fault: bool = True) -> None:
        """Note for the diagram what happened, at a member or (None) to all."""
        column = 0 if member is None else 1 + member
        self.marks.append(Mark(self.at_s(), column, what, fault=fault))
        if fault:
            self.timeline.mark(self.at_s(), member)

    def at_s(self) -> float:
        """Return the seconds since the run began."""
        return trio.current_time() - self._began

    # Members

    def start(self, member: Member) -> None:
        """Start its process."""
        assert self._nursery is not None
        self._starting(member.number)
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

    @property
    def lists(self) -> list[list[int]]:
        """The seeds; while they change both lists of them, as a majority of either is needed.

        Until that is over, one that is only in the second list counts for neither.
        """
        return [self.seeds] if self.next is None else [self.seeds, self.next]

    def spare(self, member: Member) -> bool:
        """Whether a majority of the seeds keeps its logs without this one."""
        left = [
            seed
            for seed in self.seeds
            if seed != member.number and seed not in self.doomed and self.members[seed].proven
        ]
        return all(member.number not in seeds or majority(left, seeds) for seeds in self.lists)

    def able(self) -> bool:
        """Whether a majority of seeds is up, votes, and is in contact with each other."""
        up = [seed for seed in self.seeds if self.members[seed].up and self.members[seed].proven]
        return any(
            all(majority(some, seeds) for seeds in self.lists)
            and not any(
                self._blocked[a, b] or self._blocked[b, a] for a, b in combinations(some, 2)
            )
            for size in range(len(self.seeds) // 2 + 1, len(up) + 1)
            for some in combinations(up, size)
        )

    # Watching

    async def _look(self, member: Member) -> None:
        """Ask a member again and again what it is."""
        name = text(self.wire.peer(member.number))
        address = self.wire.monitor(member.number)
        while True:
            starts = member.starts
            known = None if self.majorities is None else self.majorities.known()
            try:
                status = await status_of(address, name)
            except NoAnswerError:
                status = None
            self._changed(member.number, self.statuses.get(member.number), status)
            if status is not None:
                if starts == member.starts and member.running and status.state in NORMAL:
                    member.prove()
                self._compare(status)
            if starts == member.starts:
                self._count(member.number, status, known)
            self.judge()
            self.looked.unpark_all()
            await trio.sleep(LOOK_EVERY_S)

    async def _look_at_processors(self) -> None:
        """Note how long this process and the seeds' wait for one.

        Others are not needed for an acknowledgement, nor is a seed that does not vote yet: it is
        no part of a majority that is `able`.
        """
        while True:
            seeds = [self.members[number] for number in self.seeds]
            needed = [m.running.pid for m in seeds if m.running and m.proven and not m.paused]
            self.waiting.look([os.getpid(), *needed])
            self._served.note(trio.current_time(), self.time_served())
            await trio.sleep(LOOK_EVERY_S)

    def time_served(self) -> float:
        """Return the seconds that passed, but for those in which a seed waited for a processor.

        What a seed does not do while others have the processors is not held against it.
        """
        return trio.current_time() - self.waiting.total_s

    def served_since(self, seconds: float) -> float:
        """Return the time from which on so many seconds of `time_served` have passed.

        Of those that pass on the clock, `WALL_MAX_S` are the most that count as less.
        """
        return self._served.since(trio.current_time(), self.time_served() - seconds)

    async def serve(self, seconds: float) -> None:
        """Wait until so many seconds of `time_served` have passed, or `WALL_MAX_S` by the clock."""
        began = trio.current_time()
        while self.served_since(seconds) < began:
            await self.looked.park()

    def _count(self, member: int, status: Status | None, known: Known | None) -> None:
        """Look whether a majority of seeds still holds what is committed."""
        if self.majorities is None or known is None:
            return
        if status is None or not self.members[member].up:
            self.majorities.gone(member)
            return
        seeds = self.seeds if self.next is None else ()
        problem = self.majorities.see(member, status, known, seeds)
        if problem is not None:
            self._broken(problem)
            self.majorities = None  # told once

    def _changed(self, member: int, before: Status | None, status: Status | None) -> None:
        if status is None:
            self.statuses.pop(member, None)
        else:
            self.statuses[member] = status
        was, is_now = (found.shown if found else "no answer" for found in (before, status))
        if was != is_now:
            self.timeline.states.append(Moment(self.at_s(), is_now, member))
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
        able = self.able()
        self.silence.now_able(able, trio.current_time(), self.time_served())

    def acked(self) -> None:
        """A publication was acknowledged."""
        self.silence.acked(trio.current_time(), self.time_served())
        self.timeline.acks[int(self.at_s())] += 1

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

    async def shuffle(self, member: int, change: int) -> None:
        """One reason more (1) or less (-1) for a member's packets to be put out of order."""
        async with self._wiring:
            self._shuffled[member] += change
            members = [member for member, count in self._shuffled.items() if count]
            await self.wire.shuffle(members)

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


def majority(some: Collection[int], seeds: Collection[int]) -> bool:
    """Whether more than half of the seeds are among some members."""
    return 2 * sum(seed in some for seed in seeds) > len(seeds)
