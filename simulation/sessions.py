"""A client's connection to a member: frames in order both ways, until either side ends it."""

import random
from typing import TYPE_CHECKING

from mdserver.limits import CLOSE_GOING_AWAY
from simulation.network import Direction

if TYPE_CHECKING:
    from simulation.clients import Client
    from simulation.members import Member
    from simulation.world import World


class Session:
    """One connection. `number` is the member's name for it, `life` the member's incarnation."""

    def __init__(
        self, world: "World", client: "Client", attempt: int, member: "Member", rng: random.Random
    ) -> None:
        self.world = world
        self.client = client
        self.attempt = attempt
        self.member = member
        self.life = member.life
        self.number = member.next_session()
        self.outbox: list[bytes] = []
        self.aliases: dict[int, None] = {}
        self.over = False
        delay = (world.plan.delay_min, world.plan.delay_max)
        self.up = Direction(world.heap, rng, delay, world.heap.now)
        self.down = Direction(world.heap, rng, delay, world.heap.now)
        self.up.send(self._arrived)

    def _alive(self) -> bool:
        return self.member.node is not None and self.member.life == self.life

    def _arrived(self) -> None:
        if not self._alive() or self.world.heap.now < self.client.away_until:
            self.end("the connection was refused")
            return
        self.member.opened(self)
        if not self.over:
            self.down.send(self._stands)

    def _stands(self) -> None:
        if self.client.session is self:
            self.client.do(self.client.core.opened(self.attempt, self.world.heap.now))

    def to_member(self, frame: bytes) -> None:
        """The client sends."""
        self.up.send(lambda: self.member.said(self, frame) if self._alive() else None)

    def to_client(self, payload: bytes) -> None:
        """The member sends; several frames are already one payload."""
        self.down.send(lambda: self._heard(payload))

    def _heard(self, payload: bytes) -> None:
        if self.client.session is self:
            now = self.world.heap.now
            self.client.do(self.client.core.received(self.attempt, payload, now))

    def closed_by_client(self) -> None:
        """The client closes: what the member still sends is lost."""
        self.over = True
        self.down.end(self.world.heap.now)
        self.up.send(lambda: self.member.closed(self) if self._alive() else None)

    def closed_by_member(self, code: int, reason: str) -> None:
        """The member closes after what it sent."""
        self.over = True
        self.down.send(lambda: self._ended(code, reason))

    def end(self, reason: str) -> None:
        """The connection breaks now; each side notices in its own time."""
        if self.over:
            return
        self.over = True
        rng, heap, plan = self.world.rng, self.world.heap, self.world.plan
        noticed = heap.now + rng.randint(0, 2 * plan.delay_max)
        self.down.end(noticed)
        heap.at(noticed, lambda: self._ended(CLOSE_GOING_AWAY, reason))
        noticed = heap.now + rng.randint(0, 2 * plan.delay_max)
        self.up.end(noticed)
        heap.at(noticed, lambda: self.member.closed(self) if self._alive() else None)

    def _ended(self, code: int, reason: str) -> None:
        if self.client.session is self:
            self.client.session = None
            now = self.world.heap.now
            self.client.do(self.client.core.closed(self.attempt, code, reason, now))
