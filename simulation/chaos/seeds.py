"""Seeds that change while members run: one joins the list of seeds, or leaves it."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from simulation.chaos.members import Member
from simulation.chaos.profiles import CHANGE_SEEDS
from simulation.chaos.statuses import NoAnswerError, ask
from simulation.chaos.wire import text
from simulation.plan import Fault

if TYPE_CHECKING:
    from simulation.chaos.faults import Faults

FEWEST, MOST = 3, 5
COMPLETE_WITHIN_S = 60.0
"""While a majority of either list is there; the last restarted seed votes again within seconds."""
ORDERED_AGAIN_S = 2.0
BESIDE = ("nothing", "end the one that it is about", "end another one", "end it before")
"""What happens while seeds change. A seed may be dead when it is left out, and comes back later."""


class SeedFaults:
    """Done with the means of `Faults`. The list grows to `MOST` seeds, shrinks to `FEWEST`, and so
    on; whoever joins or leaves is drawn, so that in the end no seed of the beginning need be one.
    """

    def __init__(self, faults: "Faults") -> None:
        self._faults = faults
        self._cluster = faults.cluster
        self._grows = True
        self._orders = 0
        self.do: dict[str, Callable[[Fault], Awaitable[bool]]] = {CHANGE_SEEDS: self._change}

    async def _change(self, fault: Fault) -> bool:
        """Order one change, and wait until it is complete; what is drawn happens meanwhile."""
        cluster = self._cluster
        async with self._faults.turn:
            self._grows = len(cluster.seeds) < MOST and (
                self._grows or len(cluster.seeds) == FEWEST
            )
            member = self._drawn(fault)
            beside = BESIDE[fault.draw % (len(BESIDE) - self._grows)]
            ended = None
            if beside == BESIDE[3]:
                ended = await self._end(fault, [member])
            before = cluster.list_number
            action = "add-seed" if self._grows else "remove-seed"
            cluster.mark(member.number, f"{action}, {beside}")
            cluster.next = (
                [*cluster.seeds, member.number]
                if self._grows
                else [seed for seed in cluster.seeds if seed != member.number]
            )
            cluster.judge()
            async with trio.open_nursery() as nursery:
                if beside == BESIDE[1]:
                    nursery.start_soon(self._end_and_start, fault, [member])
                elif beside == BESIDE[2]:
                    others = [other for other in self._faults.order(fault) if other is not member]
                    nursery.start_soon(self._end_and_start, fault, others)
                done = await self._carried_out(fault, action, member, before)
            if ended is not None:
                self._faults.again(ended)
            if done:
                cluster.seeds = cluster.next
            cluster.next = None
            cluster.judge()
            return done

    def _drawn(self, fault: Fault) -> Member:
        """Return who joins the list or leaves it."""
        cluster = self._cluster
        turned = [*cluster.members[fault.first :], *cluster.members[: fault.first]]
        return next(one for one in turned if (one.number in cluster.seeds) != self._grows)

    async def _end(self, fault: Fault, order: list[Member]) -> Member | None:
        """Kill the first of these that can be spared; return it, None if there was none."""
        member = await self._faults.victim(fault, order, ends=True)
        if member is not None:
            await self._faults.end(member, fault.kind)
        return member

    async def _end_and_start(self, fault: Fault, order: list[Member]) -> None:
        member = await self._end(fault, order)
        if member is not None:
            self._faults.again(member)

    async def _carried_out(self, fault: Fault, action: str, member: Member, before: int) -> bool:
        """Have a change carried out, and wait until it is complete; tell it if that takes too long.

        An order that nobody carries out any more is given again: who took it may have been killed
        before a majority knew of it.
        """
        cluster = self._cluster
        refused = "it was not ordered yet"
        until = cluster.time_served() + COMPLETE_WITHIN_S
        again = 0.0
        while cluster.time_served() < until:
            if self._complete(before + 1):
                cluster.list_number = before + 1
                return True
            if not self._under_way(before) and trio.current_time() >= again:
                refused = await self._order(fault, action, member) or refused
                again = trio.current_time() + ORDERED_AGAIN_S
            await cluster.looked.park()
        shown = {number: status.seeds for number, status in cluster.statuses.items()}
        self._faults.tell(
            f"{action} {member.name} was not complete within {COMPLETE_WITHIN_S:g} s ({refused}): "
            f"{shown}"
        )
        return False

    async def _order(self, fault: Fault, action: str, member: Member) -> str | None:
        """Give the order to any member that runs; return why it was refused, if it was."""
        cluster = self._cluster
        up = [one for one in cluster.members if one.up]
        self._orders += 1
        asked = up[(fault.draw // len(BESIDE) + self._orders) % len(up)]
        path = f"/cluster/{action}?member={text(cluster.wire.peer(member.number))}"
        try:
            await ask(cluster.wire.monitor(asked.number), path, "POST")
        except NoAnswerError as error:
            return str(error)
        return None

    def _under_way(self, before: int) -> bool:
        """Whether any member says that a change is ordered, or done."""
        known = [status.seeds for status in self._cluster.statuses.values() if status.seeds]
        return any(seeds.number > before or seeds.next for seeds in known)

    def _complete(self, number: int) -> bool:
        """Whether every member that runs says that a list is in force, and nothing is missing."""
        cluster = self._cluster
        found = [cluster.statuses.get(member.number) for member in cluster.members if member.up]
        known = [None if status is None else status.seeds for status in found]
        return all(seeds and seeds.number == number and seeds.at_rest for seeds in known)
