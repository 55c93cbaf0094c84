"""The links between members: made when both are there, cut by faults, made again.

Each side notices for itself that a link is up or gone. Messages are encoded once and decoded by
each receiver, so that no two members ever share an object.
"""

import random
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from mdserver.cluster.messages import AnyPeerMessage
from mdserver.codec.frames import FrameReader
from mdserver.codec.peer import MESSAGE
from simulation.network import Direction, Wires
from simulation.strays import Overheard
from simulation.versions import shake_hands

if TYPE_CHECKING:
    from simulation.world import World

Pair = tuple[str, str]


class Link:
    """One connection. `noticed` are the sides for which it is up."""

    __slots__ = ("ended", "noticed", "readers", "ways")

    def __init__(self, ways: dict[str, Direction]) -> None:
        self.ways = ways  # receiver -> the way to it
        self.readers = {name: FrameReader(frozenset((MESSAGE,))) for name in ways}
        self.noticed: dict[str, None] = {}
        self.ended = False


class Links:
    """All pairs of members."""

    def __init__(self, world: "World", rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.wires = Wires()
        self.overhearing: list[Overheard] = []
        self._links: dict[Pair, Link] = {}

    @staticmethod
    def _pair(one: str, other: str) -> Pair:
        return (one, other) if one < other else (other, one)

    def whole(self, pair: Pair) -> Link | None:
        """Return the link of a pair if both sides know of it, and nothing holds it up."""
        link = self._links.get(pair)
        if link is None or link.ended or len(link.noticed) < len(pair):
            return None
        held = self.wires.blocked(*pair) or self.wires.blocked(*reversed(pair))
        return None if held else link

    def _lag(self) -> int:
        return self.rng.randint(self.world.plan.delay_min, 2 * self.world.plan.delay_max)

    def started(self, name: str) -> None:
        """A member is there: it and the others connect."""
        for other in self.world.names:
            if other != name:
                self._connect_later(self._pair(name, other))

    def _connect_later(self, pair: Pair) -> None:
        delay = self._lag() + self.rng.randint(0, 200_000_000)
        self.world.heap.after(delay, lambda: self._connect(pair))

    def _connect(self, pair: Pair) -> None:
        world = self.world
        if pair in self._links or any(world.members[name].node is None for name in pair):
            return
        if self.wires.blocked(*pair) or self.wires.blocked(*reversed(pair)):
            return  # made when the block goes
        self._shake_hands(pair)
        now = world.heap.now
        ups = {name: now + self._lag() for name in pair}
        delay = (world.plan.delay_min, world.plan.delay_max)
        link = self._links[pair] = Link(
            {name: Direction(world.heap, self.rng, delay, ups[name]) for name in pair}
        )
        for name, other in (pair, pair[::-1]):
            world.heap.at(ups[name], partial(self._up, link, name, other))

    def _shake_hands(self, pair: Pair) -> None:
        """Have two members of different versions open their link as servers do."""
        members = [self.world.members[name] for name in pair]
        one, other = ((member.name, member.version) for member in members)
        if one[1] is not other[1]:
            groups, seeds = self.world.plan.groups, list(self.world.seeds)
            for dialer, listener in ((one, other), (other, one)):
                shake_hands(dialer, listener, (groups, seeds, "Guaranteed"))
            self.world.cover("a link between two versions")

    def _up(self, link: Link, name: str, other: str) -> None:
        if not link.ended:
            link.noticed[name] = None
            self.world.members[name].linked(other)

    def send(
        self, sender: str, receivers: tuple[str, ...], message: AnyPeerMessage, slow: int
    ) -> None:
        """Send over the links that the sender knows to be up."""
        data = self.world.members[sender].version.frame(message)
        self.world.hash(sender.encode() + data)
        for receiver in receivers:
            link = self._links.get(self._pair(sender, receiver))
            if link is None or sender not in link.noticed:
                continue
            extra = slow + self.world.members[receiver].slow
            for piece in self._pieces(data):
                arrive = partial(self._arrived, link, sender, receiver, piece)
                link.ways[receiver].send(arrive, extra)
        if self.overhearing:
            # Nobody overhears what is said for having overheard this.
            listening, self.overhearing = self.overhearing, []
            self.overhearing = [said for said in listening if not said(sender, message)]

    def _pieces(self, data: bytes) -> list[bytes]:
        """What a link carries at a time: whole frames, or any pieces of them."""
        if not self.world.split:
            return [data]
        cuts = sorted(self.rng.randrange(len(data) + 1) for _ in range(self.rng.randrange(3)))
        return [data[a:b] for a, b in pairwise((0, *cuts, len(data))) if a < b]

    def _arrived(self, link: Link, sender: str, receiver: str, piece: bytes) -> None:
        member = self.world.members[receiver]
        complete = member.version.messages(link.readers[receiver].feed(piece))
        if complete:
            member.received(sender, complete)

    def cut(self, one: str, other: str, gone: str = "") -> None:
        """Break a link; each side that is still there notices in its own time."""
        pair = self._pair(one, other)
        link = self._links.get(pair)
        if link is None or link.ended:
            return
        link.ended = True
        world = self.world
        last = world.heap.now
        for name, peer in (pair, pair[::-1]):
            noticed = world.heap.now + (0 if name == gone else self._lag())
            last = max(last, noticed)
            link.ways[name].end(noticed)
            if name != gone:
                world.heap.at(noticed, partial(self._down, link, name, peer))
        world.heap.at(last, lambda: self._over(pair, link))
        world.cover("link cut")

    def _down(self, link: Link, name: str, peer: str) -> None:
        if name in link.noticed:
            del link.noticed[name]
            self.world.members[name].unlinked(peer)

    def _over(self, pair: Pair, link: Link) -> None:
        if self._links.get(pair) is link:
            del self._links[pair]
            self._connect_later(pair)

    def crashed(self, name: str) -> None:
        """A member is gone: all its links end, and it notices nothing."""
        for other in self.world.names:
            if other == name:
                continue
            link = self._links.get(self._pair(name, other))
            if link is not None:
                link.noticed.pop(name, None)
                self.cut(name, other, gone=name)

    def block(self, sender: str, receiver: str) -> None:
        """Nothing passes this way any more."""
        if self.wires.block(sender, receiver):
            link = self._links.get(self._pair(sender, receiver))
            if link is not None:
                link.ways[receiver].block()

    def unblock(self, sender: str, receiver: str) -> None:
        """Let what was held pass."""
        if self.wires.unblock(sender, receiver):
            pair = self._pair(sender, receiver)
            link = self._links.get(pair)
            if link is None:
                self._connect_later(pair)
            else:
                link.ways[receiver].unblock()
