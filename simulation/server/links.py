"""The links between servers in one process: they dial each other over the simulated network."""

import random
import socket
from functools import partial
from typing import TYPE_CHECKING

import trio

from mdserver.config.values import Address
from mdserver.errors import StartError
from mdserver.limits import NS_PER_S
from mdserver.server.sockets import SocketFactory
from simulation.links import Links
from simulation.network import Direction
from simulation.server.wires import Door, End, pieces

if TYPE_CHECKING:
    from simulation.server.world import ServerWorld


class Wire:
    """One connection of two members: an end at each, a way to each."""

    __slots__ = ("ends", "finished", "names", "over", "ways")

    def __init__(self, dialer: str, listener: str) -> None:
        self.names = (dialer, listener)
        self.ends: dict[str, End] = {}
        self.ways: dict[str, Direction] = {}
        self.finished: dict[str, None] = {}
        self.over = False

    def other(self, name: str) -> str:
        """The other member."""
        return self.names[1] if name == self.names[0] else self.names[0]


class ServerLinks(Links):
    """All connections between members, under the faults of `Links`."""

    world: "ServerWorld"

    def __init__(self, world: "ServerWorld", rng: random.Random) -> None:
        super().__init__(world, rng)
        self.doors: dict[tuple[str, int], Door] = {}
        self._wires: dict[Wire, None] = {}

    def sockets(self, name: str) -> SocketFactory:
        """The sockets of a member."""
        return SocketFactory(listen=self._listen, dial=partial(self._dial, name))

    def started(self, name: str) -> None:
        """A member is there: it dials by itself."""

    def _listen(self, address: Address) -> list[socket.socket]:
        known = self.doors.get((address.host, address.port))
        if known is not None and not known.closed:
            raise StartError(f"Cannot listen on {address}: it is in use")
        self.doors[address.host, address.port] = door = Door(address)
        return [door]

    async def _dial(self, me: str, address: Address) -> socket.socket:
        await trio.sleep(self._lag() / NS_PER_S)
        door = self.doors.get((address.host, address.port))
        other = address.host
        if door is None or door.closed or self._blocked(me, other):
            raise ConnectionRefusedError(f"{other} does not answer")
        wire = Wire(me, other)
        plan, heap = self.world.plan, self.world.heap
        for name in wire.names:
            delay = (plan.delay_min, plan.delay_max)
            wire.ways[name] = Direction(heap, self.rng, delay, heap.now)
            wire.ends[name] = End(partial(self._said, wire, name), wire.other(name))
            self.world.nursery.start_soon(wire.ends[name].run)
        self._wires[wire] = None
        door.arrive(wire.ends[other].theirs, me)
        return wire.ends[me].theirs

    def _blocked(self, one: str, other: str) -> bool:
        return self.wires.blocked(one, other) or self.wires.blocked(other, one)

    def _said(self, wire: Wire, sender: str, data: bytes) -> None:
        receiver = wire.other(sender)
        members = self.world.members
        extra = members[sender].slow + members[receiver].slow
        for piece in pieces(data, self.rng):
            wire.ways[receiver].send(partial(wire.ends[receiver].put, piece), extra)
        if not data:
            wire.finished[sender] = None
            if len(wire.finished) == len(wire.names):
                self._end(wire)

    def _end(self, wire: Wire) -> None:
        wire.over = True
        self._wires.pop(wire, None)
        for end in wire.ends.values():
            end.close()

    def _between(self, one: str, other: str) -> list[Wire]:
        return [wire for wire in self._wires if {one, other} == set(wire.names)]

    def cut(self, one: str, other: str, gone: str = "") -> None:
        """Break the connections of two members; each that is still there notices in its time."""
        heap = self.world.heap
        for wire in self._between(one, other):
            wire.over = True
            del self._wires[wire]
            for name in wire.names:
                noticed = heap.now + (0 if name == gone else self._lag())
                wire.ways[name].end(noticed)
                heap.at(noticed, wire.ends[name].close)
            self.world.cover("link cut")

    def crashed(self, name: str) -> None:
        """A member is gone, with all its connections."""
        for other in self.world.names:
            self.cut(name, other, gone=name)

    def block(self, sender: str, receiver: str) -> None:
        """Nothing passes this way any more."""
        if self.wires.block(sender, receiver):
            for wire in self._between(sender, receiver):
                wire.ways[receiver].block()

    def unblock(self, sender: str, receiver: str) -> None:
        """Let what was held pass."""
        if self.wires.unblock(sender, receiver):
            for wire in self._between(sender, receiver):
                wire.ways[receiver].unblock()
