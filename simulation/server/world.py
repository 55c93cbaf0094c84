"""A world in which members are whole servers, in one process and one Trio run."""

import random

import trio

from simulation.clients import Client
from simulation.plan import Plan
from simulation.run import sentence_of
from simulation.server.clock import TrioHeap
from simulation.server.links import ServerLinks
from simulation.server.members import ServerMember
from simulation.server.sessions import ServerSession
from simulation.world import World


class ServerWorld(World):
    """Like `World`; also what servers log to. Made inside of the Trio run."""

    links: ServerLinks
    heap: TrioHeap

    def __init__(self, plan: Plan, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.sessions: dict[ServerSession, None] = {}
        self.logged: list[tuple[int, str, dict[str, object]]] = []
        super().__init__(plan, split=True)

    def _make_heap(self) -> TrioHeap:
        return TrioHeap()

    def _make_links(self, rng: random.Random) -> ServerLinks:
        return ServerLinks(self, rng)

    def _make_member(self, name: str, rng: random.Random) -> ServerMember:
        return ServerMember(self, name, rng)

    def open(self, client: Client, attempt: int, member: str) -> ServerSession:
        """A client connects to a member."""
        found = self.members[member]
        assert isinstance(found, ServerMember)
        return ServerSession(self, client, attempt, found, client.rng)

    def trace(self, values: dict[str, object]) -> None:
        """Write a step of the protocol down; two runs are compared by them."""
        super().trace(values)
        self.hash(repr(values).encode())

    async def play(self) -> None:
        """Let the events happen; an error in one ends the run, not the process."""
        try:
            await self.heap.run()
        except Exception as error:
            self.found(sentence_of(error))

    # The servers' log

    def warning(self, event: str, **values: object) -> None:
        """Keep it, for whoever looks for what happened."""
        self.logged.append((self.heap.now, event, values))

    def exception(self, event: str, **values: object) -> None:
        """A bug: the run fails."""
        self.found(f"{event}: {values}")

    def found(self, what: str) -> None:
        """Something that no server may do ends the run."""
        self.watch.now = self.heap.now
        self.watch.violate("exception", what)
