"""Faults of the machines under members (disks, clocks, cables), and clients that do not read."""

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from mdserver.limits import NS_PER_S
from simulation.chaos.members import Member
from simulation.chaos.profiles import (
    CLOCK_SET,
    CUT_OFF,
    DISK_FULL,
    POWER_CUT,
    POWER_CUT_ALL,
    SHUFFLE,
    SLOW_CONSUMERS,
)
from simulation.chaos.statuses import NoAnswerError, ask
from simulation.plan import Fault

if TYPE_CHECKING:
    from simulation.chaos.faults import Faults

JUMP_MAX_S = 100_000
CLOCK_READ_S = 2.5  # until libfaketime looks again, which counts whole seconds
FULL_S = 2.0  # at least, once it was noticed
SHUFFLED_S = 3.0  # at least
UNREAD_S = 4.0
CUT_OFF_S = 12.0  # so long that TCP repeats what it has sent at intervals of seconds
MOVED_WITHIN_S = 6.0  # docs/cluster.md says 4 s until they are told
LINKED_WITHIN_S = 6.0  # docs/cluster.md says 5 s
NOTICED_WITHIN_S = 60  # what a member says of its disk
NO_SPACE = "No space left on device"


class MachineFaults:
    """Done with the means of `Faults`: victims are its own, and so is the turn."""

    def __init__(self, faults: "Faults") -> None:
        self._faults = faults
        self._cluster = faults.cluster
        self.do: dict[str, Callable[[Fault], Awaitable[bool]]] = {
            SHUFFLE: self._shuffle,
            CLOCK_SET: self._set_clock,
            DISK_FULL: self._fill_disk,
            POWER_CUT: self._cut_power,
            POWER_CUT_ALL: self._cut_power,
            SLOW_CONSUMERS: self._stop_reading,
            CUT_OFF: self._cut_off,
        }

    async def _shuffle(self, fault: Fault) -> bool:
        if not self._cluster.wire.alters:
            return False
        self._cluster.mark(fault.first, fault.kind)
        await self._cluster.shuffle(fault.first, 1)
        await trio.sleep(SHUFFLED_S + fault.lasting / NS_PER_S)
        await self._cluster.shuffle(fault.first, -1)
        return True

    async def _set_clock(self, fault: Fault) -> bool:
        """Set the wall clock of a member that goes on; libfaketime looks every second or two.

        It is told to reload, which changes nothing: the line in its log says what time it has.
        """
        member = await self._faults.victim(fault, self._faults.order(fault), ends=False)
        if member is None or not member.clock.can_be_set:
            return False
        jump_s = fault.draw % (2 * JUMP_MAX_S) - JUMP_MAX_S
        self._cluster.mark(member.number, f"{fault.kind} {jump_s:+d} s")
        member.clock.set(jump_s)
        self._faults.again(member)
        await trio.sleep(CLOCK_READ_S)
        member.reload()
        await trio.sleep(1 + fault.lasting / NS_PER_S)
        member.clock.set(0)
        return True

    async def _fill_disk(self, fault: Fault) -> bool:
        """Fill a member's disk. It says so in one line, is not ready, and goes on with room."""
        async with self._faults.turn:
            if not await self._faults.all_proven():
                return False
            member = self._cluster.members[fault.first]
            assert member.disk is not None
            blocked = member.said("journal blocked")
            self._cluster.mark(member.number, fault.kind)
            member.disk.fill()
            try:
                if await self._noticed(member, "journal blocked", blocked + 1):
                    await self._not_ready(member)
                await trio.sleep(FULL_S + fault.lasting / NS_PER_S)
                # What it deletes may make room for a moment.
                lines = member.said("journal blocked") - member.said("journal goes on")
                if lines > 1:
                    self._faults.tell(f"{member.name} said {lines} times that its disk is full")
            finally:
                member.disk.empty()
            await self._noticed(member, "journal goes on", member.said("journal blocked"))
            return await self._faults.all_proven()

    async def _noticed(self, member: Member, event: str, times: int) -> bool:
        """Wait until a member has logged an event so often; tell it if that takes too long."""
        with trio.move_on_after(NOTICED_WITHIN_S):
            while member.said(event) < times:
                await self._cluster.looked.park()
            return True
        self._faults.tell(f"{member.name} did not say `{event}` within {NOTICED_WITHIN_S} s")
        return False

    async def _not_ready(self, member: Member) -> None:
        """Wait until a member with a full disk says why it is not ready."""
        said = "that it is ready"
        with trio.move_on_after(NOTICED_WITHIN_S):
            while True:
                try:
                    await ask(self._cluster.wire.monitor(member.number), "/health/ready")
                except NoAnswerError as error:
                    said = str(error)
                    if NO_SPACE in said:
                        return
                await self._cluster.looked.park()
        self._faults.tell(f"{member.name} has a full disk and says {said}")

    async def _cut_power(self, fault: Fault) -> bool:
        """Kill one member or all, and start them with what was synced on their disks."""
        cluster, rng = self._cluster, random.Random(fault.draw)
        async with self._faults.turn:
            if not await self._faults.all_proven():
                return False
            await trio.sleep(fault.lasting / NS_PER_S)
            members = [cluster.members[fault.first]]
            if fault.kind == POWER_CUT_ALL:
                members = rng.sample(cluster.members, len(cluster.members))
            for member in members:
                cluster.mark(member.number, fault.kind)
                member.kill()
            cluster.judge()
            for member in members:
                assert member.disk is not None
                lost = await member.disk.power_cut()
                self._faults.bytes_lost += sum(lost.values())
                cluster.mark(member.number, f"not on the disk: {lost or 'nothing'}", fault=False)
                cluster.start(member)
                await trio.sleep(rng.choice((0, 0.1, 1)))
            return await self._faults.all_proven()

    async def _cut_off(self, fault: Fault) -> bool:
        """Cut a seed off from all others, for so long that its clients have to be elsewhere."""
        cluster = self._cluster
        async with self._faults.turn:
            if not await self._faults.all_proven():
                return False
            turned = [*cluster.members[fault.first :], *cluster.members[: fault.first]]
            victim = max(turned, key=lambda member: len(self._faults.clients_of(member.name)))
            others = [member.number for member in cluster.members if member is not victim]
            pairs = [
                pair
                for other in others
                for pair in ((victim.number, other), (other, victim.number))
            ]
            before = self._faults.clients_of(victim.name)
            cluster.mark(victim.number, fault.kind)
            await cluster.block(pairs)
            await cluster.serve(MOVED_WITHIN_S)
            left = [name for name in before if name in self._faults.clients_of(victim.name)]
            if left:
                self._faults.tell(
                    f"{victim.name} was out of contact for {MOVED_WITHIN_S} s, and {left} are "
                    "still connected to it"
                )
            await cluster.serve(CUT_OFF_S - MOVED_WITHIN_S)
            self._faults.unserved()
            await trio.sleep(fault.lasting / NS_PER_S)
            await cluster.unblock(pairs)
            cluster.mark(victim.number, "in contact", fault=False)
            await self._linked_again(victim)
            return await self._faults.all_proven()

    async def _linked_again(self, member: Member) -> None:
        """Wait until a member sees a majority again; tell it if that takes too long."""
        cluster = self._cluster
        since, until = trio.current_time(), cluster.time_served() + LINKED_WITHIN_S
        while cluster.time_served() < until:
            status = cluster.statuses.get(member.number)
            if status is not None and status.at > since and status.quorum:
                return
            await cluster.looked.park()
        self._faults.tell(f"{member.name} sees no majority {LINKED_WITHIN_S} s after its cut")

    async def _stop_reading(self, fault: Fault) -> bool:
        """The clients of a member that has some read nothing for a while."""
        _, route = self._faults.door(fault)
        route.back.set(unread=True)
        await trio.sleep(UNREAD_S + fault.lasting / NS_PER_S)
        route.back.set(unread=False)
        return True
