"""The faults of a plan, done to real processes."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from itertools import combinations

import trio

from mdserver.limits import NS_PER_S
from simulation.chaos.clients import PUBLISHER
from simulation.chaos.cluster import Cluster
from simulation.chaos.identity import changes
from simulation.chaos.machines import MachineFaults
from simulation.chaos.members import GROUPS, Member
from simulation.chaos.plan import BLACKOUT, CLOCK, HALF_CUT, LOSE_RESULTS, SERVED_WITHIN_S
from simulation.chaos.profiles import ANOTHER_IDENTITY, TOGETHER, UPGRADE
from simulation.chaos.proxy import Route
from simulation.chaos.seeds import SeedFaults
from simulation.chaos.statuses import NoAnswerError, ask
from simulation.chaos.wire import Pair, text
from simulation.plan import Fault

STOP_TIMEOUT_S = 60
VICTIM_TIMEOUT_S = 60  # until the last restarted seed votes again
STORM = 4
CUT_BYTES_MAX = 500
DELAY_S = 0.3
RESULTS_LOST_S = 2.0
"""Longer than an election takes, so that something is committed meanwhile; at the longest wait a
client gives its connection up by itself, which comes to the same."""
JUMP_MAX_S = 100_000
LOOK_EVERY_S = 0.25
ENDS_BY_ITSELF = frozenset(("drain", "move", "leave"))
"""Faults that end a member by SIGTERM, which ends a process that just began at once."""


class Faults:
    """Counts in `happened` what was done and in `skipped` what could not be done in time.

    While `careful`, no process ends that a majority of logs needs. `lost` is called before one
    ends all the same, and `tell` takes what must never happen. `unserved` is called again and again
    while clients have to be served in spite of a fault; `clients_of` names those whose last
    connection was to a member. `bytes_lost`: by power cuts.
    """

    def __init__(
        self,
        cluster: Cluster,
        lost: Callable[[], None],
        unserved: Callable[[], None],
        tell: Callable[[str], None],
        clients_of: Callable[[str], list[str]],
    ) -> None:
        self.cluster = cluster
        self.tell = tell
        self.clients_of = clients_of
        self.bytes_lost = 0
        self.happened: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self._lost = lost
        self.unserved = unserved
        self._busy: dict[int, None] = {}
        self._do: dict[str, Callable[[Fault], Awaitable[bool]]] = {
            "kill": self._kill,
            "kill-coordinator": self._kill,
            "restart-storm": self._storm,
            "drain": self._drain,
            "partition": self._partition,
            "one-way": self._one_way,
            "isolate-coordinator": self._isolate,
            "pause": self._pause,
            "slow-link": self._slow,
            "cut-link": self._cut,
            "stall-clients": self._stall_clients,
            "delay-clients": self._delay_clients,
            "cut-clients": self._cut_clients,
            LOSE_RESULTS: self._lose_results,
            CLOCK: self._clock,
            HALF_CUT: self._half_cut,
            BLACKOUT: self._blackout,
            UPGRADE: self._upgrade,
            "move": self._move,
            "leave": self._leave,
            **dict.fromkeys(TOGETHER, self._together),
            **dict.fromkeys(ANOTHER_IDENTITY, self._another_identity),
            **MachineFaults(self).do,
            **SeedFaults(self).do,
        }
        self.turn = trio.Lock()

    def knows(self, kinds: Iterable[str]) -> bool:
        """Whether all these faults can be done."""
        return set(kinds) <= self._do.keys()

    async def run(self, step: Callable[[int], None]) -> None:
        """All faults of the plan, each at its time; `step` is told how many have ended."""
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for fault in self.cluster.plan.faults:
                nursery.start_soon(self._one, fault, began, step)

    async def _one(self, fault: Fault, began: float, step: Callable[[int], None]) -> None:
        await trio.sleep_until(began + fault.at / NS_PER_S)
        with self.cluster.timeline.episode(fault.kind) as episode:
            done = await self._do[fault.kind](fault)
            episode.end_s = self.cluster.at_s()
        (self.happened if done else self.skipped)[fault.kind] += 1
        step(self.happened.total() + self.skipped.total())

    async def heal(self) -> None:
        """End whatever is still going on: every member runs, nothing is in the way."""
        for door in self.cluster.doors:
            calm(door.route())
        for member in self.cluster.members:
            member.resume()
            if member.running is None:
                self.cluster.start(member)
        await trio.lowlevel.checkpoint()

    # Members

    async def victim(self, fault: Fault, order: list[Member], *, ends: bool) -> Member | None:
        """The first that is up and whose end can be borne; waits for one, None after a while.

        One that is to end by itself must have started for good.
        """
        cluster = self.cluster
        with trio.move_on_after(VICTIM_TIMEOUT_S):
            while True:
                for member in order:
                    free = member.up and member.number not in self._busy
                    free = free and (member.proven or fault.kind not in ENDS_BY_ITSELF)
                    if free and (not ends or cluster.spare(member)):
                        self._busy[member.number] = None
                        if ends:
                            cluster.doomed[member.number] = None
                        return member
                await cluster.looked.park()
        return None

    def order(self, fault: Fault) -> list[Member]:
        """Any member, or first those that coordinate most."""
        members = self.cluster.members
        turned = [*members[fault.first :], *members[: fault.first]]
        if fault.kind not in {"kill-coordinator", "isolate-coordinator"}:
            return turned
        statuses = self.cluster.statuses
        return sorted(turned, key=lambda m: -(s.led if (s := statuses.get(m.number)) else 0))

    async def _kill(self, fault: Fault) -> bool:
        member = await self.victim(fault, self.order(fault), ends=True)
        if member is None:
            return False
        await self.end(member, fault.kind)
        await trio.sleep(fault.lasting / NS_PER_S / 2)
        self.again(member)
        return True

    async def _storm(self, fault: Fault) -> bool:
        member = await self.victim(fault, self.order(fault), ends=True)
        if member is None:
            return False
        for count in range(STORM):
            await self.end(member, fault.kind)
            self.cluster.start(member)
            await trio.sleep((fault.draw >> (5 * count)) % 32 / 20)
        self.again(member)
        return True

    async def _drain(self, fault: Fault) -> bool:
        member = await self.victim(fault, self.order(fault), ends=True)
        if member is None:
            return False
        cluster = self.cluster
        name = text(cluster.wire.peer(member.number))
        cluster.mark(member.number, fault.kind)
        if fault.draw % 2:
            try:
                path = f"/cluster/drain?member={name}&force=true"
                await ask(cluster.wire.monitor(member.number), path, "POST")
            except NoAnswerError as error:
                cluster.mark(member.number, str(error), fault=False)
        await member.stop(STOP_TIMEOUT_S)
        self.again(member)
        return True

    async def _clock(self, fault: Fault) -> bool:
        """Set its wall clock, and start it again: a running process looks at it only then."""
        member = await self.victim(fault, self.order(fault), ends=True)
        if member is None:
            return False
        member.clock.set(fault.draw % (2 * JUMP_MAX_S) - JUMP_MAX_S)
        await self.end(member, fault.kind)
        self.again(member)
        return True

    async def _blackout(self, fault: Fault) -> bool:
        self._lost()
        cluster = self.cluster
        cluster.mark(None, fault.kind)
        for member in cluster.members:
            member.kill()
        cluster.judge()
        await trio.sleep(fault.lasting / NS_PER_S / 4)
        for member in cluster.members:
            if member.running is None and member.number not in self._busy:
                cluster.start(member)
        return True

    async def _together(self, fault: Fault) -> bool:
        """End all members at once, in mid-stream; start them in any order. One round at a time."""
        cluster, rng = self.cluster, random.Random(fault.draw)
        async with self.turn:
            if not await self.all_proven():
                return False
            await trio.sleep(fault.lasting / NS_PER_S)
            cluster.mark(None, fault.kind)
            if fault.kind == "kill-all":
                for member in rng.sample(cluster.members, len(cluster.members)):
                    member.kill()
            else:
                async with trio.open_nursery() as nursery:
                    for member in cluster.members:
                        nursery.start_soon(member.stop, STOP_TIMEOUT_S)
            cluster.judge()
            for member in rng.sample(cluster.members, len(cluster.members)):
                await trio.sleep(rng.choice((0, 0.1, 1)))
                cluster.start(member)
            return await self.all_proven()

    async def _another_identity(self, fault: Fault) -> bool:
        """End one member or all, have them refused under another identity, and set that back.

        While it is one, the others go on.
        """
        cluster, rng = self.cluster, random.Random(f"{fault.at}")
        peers = [text(cluster.wire.peer(member.number)) for member in cluster.members]
        known = changes(peers, GROUPS, str(cluster.folder / "elsewhere"))
        change = known[fault.draw % len(known)]
        members = [cluster.members[fault.first]]
        if fault.kind == ANOTHER_IDENTITY[1]:
            members = rng.sample(cluster.members, len(cluster.members))
        async with self.turn:
            if not await self.all_proven():
                return False
            for member in members:
                cluster.mark(member.number, fault.kind)
                member.kill()
            cluster.judge()
            for member in members:
                await cluster.refused(member, change)
            for member in members:
                cluster.start(member)
            return await self.all_proven()

    async def _upgrade(self, fault: Fault) -> bool:
        """Stop a member of the release before, and start it with this one; false if none is left.

        The others serve meanwhile, so all have to vote before and after.
        """
        async with self.turn:
            if not await self.all_proven():
                return False
            old = [member for member in self.order(fault) if member.release is not None]
            if not old:
                return False
            member = old[0]
            self._busy[member.number] = self.cluster.doomed[member.number] = None
            self.cluster.mark(member.number, fault.kind)
            await member.stop(STOP_TIMEOUT_S)
            self.cluster.judge()
            member.release = None
            self.again(member)
            return await self.all_proven()

    async def _move(self, fault: Fault) -> bool:
        """End a seed, and start it at another address; some of the others hear of it late."""
        member = await self.victim(fault, self._seeds(fault), ends=True)
        if member is None:
            return False
        cluster = self.cluster
        cluster.mark(member.number, fault.kind)
        if fault.draw % 2:
            await member.stop(STOP_TIMEOUT_S)
        else:
            member.kill()
        cluster.judge()
        member.moved_to = await cluster.wire.another(member.number)
        cluster.enlist(member.number)
        told = bool(fault.draw % 3)
        cluster.spread(told=told)
        await trio.sleep(fault.lasting / NS_PER_S)
        self.again(member)
        if not told:
            await trio.sleep(fault.lasting / NS_PER_S)
            cluster.spread()
        return True

    async def _leave(self, fault: Fault) -> bool:
        """End a member that is no seed, and strike it off the lists; then it comes back."""
        members = self.cluster.members[self.cluster.plan.seeds :]
        member = await self.victim(fault, members, ends=True)
        if member is None:
            return False
        cluster = self.cluster
        cluster.mark(member.number, fault.kind)
        await member.stop(STOP_TIMEOUT_S)
        cluster.strike(member.number)
        cluster.spread()
        await trio.sleep(fault.lasting / NS_PER_S)
        if fault.draw % 2:  # else it joins before anybody lists it
            cluster.enlist(member.number)
            cluster.spread()
        self.again(member)
        await trio.sleep(fault.lasting / NS_PER_S)
        cluster.enlist(member.number)
        cluster.spread()
        return True

    def _seeds(self, fault: Fault) -> list[Member]:
        """All seeds, beginning with any."""
        seeds = [self.cluster.members[number] for number in self.cluster.seeds]
        return [*seeds[fault.first :], *seeds[: fault.first]]

    async def all_proven(self) -> bool:
        """Wait until every member votes and no other fault has it; False after a minute."""
        with trio.move_on_after(VICTIM_TIMEOUT_S):
            # One that is down has voted before: `proven` is about its process until the next.
            while self._busy or not all(m.up and m.proven for m in self.cluster.members):
                await self.cluster.looked.park()
            return True
        return False

    async def end(self, member: Member, kind: str) -> None:
        self.cluster.mark(member.number, kind)
        member.kill()
        self.cluster.judge()
        await trio.lowlevel.checkpoint()

    def again(self, member: Member) -> None:
        if member.running is None:
            self.cluster.start(member)
        del self._busy[member.number]
        self.cluster.doomed.pop(member.number, None)

    async def _pause(self, fault: Fault) -> bool:
        member = await self.victim(fault, self.order(fault), ends=False)
        if member is None:
            return False
        self.cluster.mark(member.number, f"pause {fault.lasting / NS_PER_S:.1f} s")
        member.pause()
        self.cluster.judge()
        await trio.sleep(fault.lasting / NS_PER_S)
        member.resume()
        self.again(member)
        self.cluster.judge()
        return True

    # The wire between members

    async def _blocked(self, fault: Fault, pairs: list[Pair], members: list[int]) -> bool:
        for member in members:
            self.cluster.mark(member, f"{fault.kind} {fault.lasting / NS_PER_S:.1f} s")
        await self.cluster.block(pairs)
        await trio.sleep(fault.lasting / NS_PER_S)
        await self.cluster.unblock(pairs)
        return True

    async def _partition(self, fault: Fault) -> bool:
        count = self.cluster.plan.members
        mask = 1 + fault.draw % (2**count - 2)
        one = [number for number in range(count) if mask >> number & 1]
        two = [number for number in range(count) if number not in one]
        return await self._blocked(fault, both_ways(one, two), one)

    async def _one_way(self, fault: Fault) -> bool:
        count = self.cluster.plan.members
        other = (fault.first + 1 + fault.draw % (count - 1)) % count
        return await self._blocked(fault, [(fault.first, other)], [fault.first])

    async def _isolate(self, fault: Fault) -> bool:
        """Between the member that coordinates most and the seeds; others still reach it."""
        victim = self.order(fault)[0].number
        seeds = [seed for seed in self.cluster.seeds if seed != victim]
        return await self._blocked(fault, both_ways([victim], seeds), [victim])

    async def _half_cut(self, fault: Fault) -> bool:
        """One or two links between members, each one way or both."""
        rng = random.Random(fault.draw)
        links = list(combinations(range(self.cluster.plan.members), 2))
        pairs: list[Pair] = []
        for one, other in rng.sample(links, rng.choice((1, 2))):
            pairs += rng.choice(([(one, other)], [(other, one)], [(one, other), (other, one)]))
        for one, other in pairs:
            self.cluster.mark(one, f"{fault.kind} towards {other + 1}")
        await self.cluster.block(pairs)
        with trio.move_on_after(fault.lasting / NS_PER_S):
            await self.cluster.serve(SERVED_WITHIN_S)
            while True:
                self.unserved()
                await trio.sleep(LOOK_EVERY_S)
        await self.cluster.unblock(pairs)
        return True

    async def _slow(self, fault: Fault) -> bool:
        self.cluster.mark(fault.first, f"{fault.kind} {fault.lasting / NS_PER_S:.1f} s")
        await self.cluster.slow(fault.first, 1)
        await trio.sleep(fault.lasting / NS_PER_S)
        await self.cluster.slow(fault.first, -1)
        return True

    async def _cut(self, fault: Fault) -> bool:
        self.cluster.mark(fault.first, fault.kind)
        await self.cluster.wire.cut(fault.first, fault.draw)
        return True

    # Between members and clients

    def door(self, fault: Fault) -> tuple[int, Route]:
        """A member that has clients, and the way to it."""
        doors = self.cluster.doors
        turned = [(fault.first + step) % len(doors) for step in range(len(doors))]
        number = next((n for n in turned if doors[n].route().connections), fault.first)
        self.cluster.mark(number, fault.kind)
        return number, doors[number].route()

    async def _stall_clients(self, fault: Fault) -> bool:
        _, route = self.door(fault)
        (route.back if fault.draw % 2 else route.forth).set(held=True)
        await trio.sleep(fault.lasting / NS_PER_S)
        calm(route)
        return True

    async def _delay_clients(self, fault: Fault) -> bool:
        _, route = self.door(fault)
        route.forth.set(delay_s=DELAY_S)
        route.back.set(delay_s=DELAY_S / 2)
        await trio.sleep(fault.lasting / NS_PER_S)
        calm(route)
        return True

    async def _cut_clients(self, fault: Fault) -> bool:
        """Break a member's clients off; wait for one that has any, as all may be on their way."""
        with trio.move_on_after(VICTIM_TIMEOUT_S):
            while not any(door.route().connections for door in self.cluster.doors):
                await self.cluster.looked.park()
        _, route = self.door(fault)
        await trio.lowlevel.checkpoint()
        return route.cut(1 + fault.draw % CUT_BYTES_MAX) > 0

    async def _lose_results(self, fault: Fault) -> bool:
        """Let no result come to a publisher, then break its connection; waits for a publisher.

        Whatever was committed meanwhile it repeats. A cut alone may come between publications.
        """
        cluster = self.cluster
        members = self.order(fault)
        with trio.move_on_after(VICTIM_TIMEOUT_S):
            while True:
                for member in members:
                    publishes = any(
                        name.startswith(PUBLISHER) for name in self.clients_of(member.name)
                    )
                    route = cluster.doors[member.number].route()
                    if publishes and member.up and route.connections:
                        cluster.mark(member.number, fault.kind)
                        route.back.set(held=True)
                        await cluster.serve(RESULTS_LOST_S)
                        route.cut(0)
                        calm(route)
                        return True
                await cluster.looked.park()
        return False


def both_ways(some: list[int], others: list[int]) -> list[Pair]:
    """All pairs of one of each."""
    return [pair for a in some for b in others for pair in ((a, b), (b, a))]


def calm(route: Route) -> None:
    """Neither delay nor hold."""
    route.forth.set(delay_s=0.0, held=False)
    route.back.set(delay_s=0.0, held=False, unread=False)
