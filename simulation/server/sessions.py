"""A client's connection to a server in this process: WebSocket over the simulated network."""

import random
from functools import partial
from typing import TYPE_CHECKING

from wsproto import ConnectionType, WSConnection
from wsproto import events as ws
from wsproto.connection import ConnectionState

from mdserver.limits import CLOSE_GOING_AWAY, SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON
from simulation.network import Direction
from simulation.server.wires import End, pieces
from simulation.sessions import Session

if TYPE_CHECKING:
    from simulation.clients import Client
    from simulation.server.members import ServerMember
    from simulation.server.world import ServerWorld

CLIENT_PORT, PEER_PORT = 1, 2
SUBPROTOCOLS = {"json": SUBPROTOCOL_JSON, "binary": SUBPROTOCOL_BINARY}


class ServerSession(Session):
    """The client's side in full, and the way to the server's socket."""

    world: "ServerWorld"

    def __init__(
        self,
        world: "ServerWorld",
        client: "Client",
        attempt: int,
        member: "ServerMember",
        rng: random.Random,
    ) -> None:
        self.world = world
        self.client = client
        self.attempt = attempt
        self.member = member
        self.rng = rng
        self.over = False
        self._text = world.plan.encoding == "json"
        self._parts: list[str | bytes] = []
        self._websocket = WSConnection(ConnectionType.CLIENT)
        self._end: End | None = None
        delay = (world.plan.delay_min, world.plan.delay_max)
        self.up = Direction(world.heap, rng, delay, world.heap.now)
        self.down = Direction(world.heap, rng, delay, world.heap.now)
        world.sessions[self] = None
        if member.paused:
            self.block()
        self.up.send(self._arrived)

    def _arrived(self) -> None:
        door = self.world.links.doors.get((self.member.name, CLIENT_PORT))
        if self.member.node is None or door is None or door.closed:
            self.end("the connection was refused")
            return
        if self.over:
            return
        self._end = End(self._said)
        self.world.nursery.start_soon(self._end.run)
        door.arrive(self._end.theirs, "192.0.2.1")
        self._send(
            ws.Request(
                host=self.member.name,
                target="/ws",
                subprotocols=[SUBPROTOCOLS[self.world.plan.encoding]],
            )
        )

    def block(self) -> None:
        """Hold both ways."""
        self.up.block()
        self.down.block()

    def unblock(self) -> None:
        """Let pass what was held."""
        self.up.unblock()
        self.down.unblock()

    # To the server

    def _send(self, event: ws.Event) -> None:
        if self._end is not None and not self.over:
            data = self._websocket.send(event)
            for piece in pieces(data, self.rng):
                self.up.send(partial(self._end.put, piece), self.member.slow)

    def to_member(self, frame: bytes) -> None:
        """The client sends."""
        if self._text:
            self._send(ws.TextMessage(frame.decode()))
        else:
            self._send(ws.BytesMessage(frame))

    def closed_by_client(self) -> None:
        """The client closes: what the server still sends is lost."""
        if self._websocket.state is ConnectionState.OPEN:
            self._send(ws.CloseConnection(code=1000))
        self.over = True
        self.down.end(self.world.heap.now)
        if self._end is not None:
            self.up.send(self._forget)

    def _forget(self) -> None:
        self.world.sessions.pop(self, None)
        if self._end is not None:
            self._end.close()

    # From the server

    def _said(self, data: bytes) -> None:
        for piece in pieces(data, self.rng):
            self.down.send(partial(self._heard, piece), self.member.slow)

    def _heard(self, data: bytes) -> None:
        if self.over:
            return
        if not data:
            self._gone(CLOSE_GOING_AWAY, "the connection was lost")
            return
        self._websocket.receive_data(data)
        for event in self._websocket.events():
            if not self.over:
                self._happened(event)

    def _happened(self, event: ws.Event) -> None:
        now, core = self.world.heap.now, self.client.core
        match event:
            case ws.AcceptConnection():
                self.client.do(core.opened(self.attempt, now))
            case ws.TextMessage() | ws.BytesMessage():
                self._parts.append(event.data if isinstance(event.data, str) else bytes(event.data))
                if event.message_finished:
                    whole = b"".join(p.encode() if isinstance(p, str) else p for p in self._parts)
                    self._parts.clear()
                    self.client.do(core.received(self.attempt, whole, now))
            case ws.Ping():
                self._send(event.response())
            case ws.CloseConnection():
                self._send(event.response())
                self._gone(event.code, event.reason or "")
            case ws.RejectConnection():
                self._gone(CLOSE_GOING_AWAY, f"HTTP {event.status_code}")

    def _gone(self, code: int, reason: str) -> None:
        self.over = True
        self.world.cover("disconnected by the member")
        if self._end is not None:
            self.up.send(self._forget)
        self._ended(code, reason)

    def end(self, reason: str) -> None:
        """The connection breaks now; each side notices in its own time."""
        if self.over:
            return
        self.over = True
        heap, plan = self.world.heap, self.world.plan
        heap.after(
            self.rng.randint(0, 2 * plan.delay_max), partial(self._ended, CLOSE_GOING_AWAY, reason)
        )
        noticed = heap.now + self.rng.randint(0, 2 * plan.delay_max)
        self.up.end(noticed)
        heap.at(noticed, self._forget)
