"""Members that are whole servers: listeners, connections, engine and peer links on Trio.

Only the sockets, the disk under the vote record and the clocks are simulated.
"""

from typing import TYPE_CHECKING

import trio
from attrs import evolve

from mdserver.cluster.messages import PeerDiscovered
from mdserver.cluster.node import TICK, Input
from mdserver.core.inputs import TimerDue
from mdserver.core.outputs import Committed, Output, Trace
from mdserver.errors import leaves
from mdserver.server.clients.turn import Turn
from mdserver.server.engine import Engine
from mdserver.server.http.router import Router
from mdserver.server.peers.peers import Peers, PeerSettings
from mdserver.server.server import Server
from mdserver.server.settings import ServerSettings
from simulation.members import Member
from simulation.run import sentence_of
from simulation.server.clock import ReadsClock
from simulation.server.sessions import CLIENT_PORT, PEER_PORT, ServerSession
from simulation.server.wires import Name

if TYPE_CHECKING:
    from simulation.server.world import ServerWorld


MOVED_BY = 100


class CrashedError(Exception):
    """The simulated process is gone: its engine takes nothing any more."""


class ServerMember(Member):
    """One member over all its lives."""

    world: "ServerWorld"
    engine: Engine | None = None
    _scope: trio.CancelScope
    _peers: Peers
    _heard: dict[str, None]

    def _begin(self) -> None:
        assert self.node is not None
        sockets = self.world.links.sockets(self.name)
        server = Server(
            ServerSettings(listen=(Name(self.name, CLIENT_PORT),)),
            self.node,
            Router(self.node.unready),
            self.world,
            self.clock.now,
            sockets=sockets,
        )
        self.engine = engine = server.engine
        server.sessions.turn = Turn(ReadsClock())
        self._peers = peers = Peers(self._peer_settings(), engine, self.world, sockets)
        engine.routes = evolve(
            engine.routes,
            send_peer=peers.send,
            peer_discovered=self._discovered,
            close_peer=peers.close,
            persist=self._persist,
            write_wal=self._write_wal,
            admin_reply=self._operated,
            committed=self._committed,
            trace=self._traced,
            after_dispatch=(peers.flush, server.sessions.flusher.wake),
        )
        self._heard = {}
        self._scope = trio.CancelScope()
        self.world.nursery.start_soon(self._serve, server, peers, self._scope)

    def _peer_settings(self) -> PeerSettings:
        moved = self._moved()
        me = Name(self.name, PEER_PORT)
        return PeerSettings(
            listen=me,
            bind=moved.get(self.name, me),
            members=tuple(Name(name, PEER_PORT) for name in self.listed),
            moved=moved,
            seeds=self.world.seeds,
            groups=self.world.plan.groups,
            mode="Standard" if self.world.plan.standard else "Guaranteed",
            password="simulated",
        )

    def _moved(self) -> dict[str, Name]:
        """Where the members are whose machines were replaced: each time at another port."""
        moves = self.world.moves.items()
        return {name: Name(name, PEER_PORT + MOVED_BY * times) for name, times in moves}

    def _discovered(self, output: PeerDiscovered) -> None:
        """Dial a member that no list names. Names here say nothing of a port."""
        self._heard[output.peer] = None
        self._dial()

    def _dial(self) -> None:
        names = dict.fromkeys((*self.listed, *self._heard))
        self._peers.relist(tuple(Name(name, PEER_PORT) for name in names), self._moved())

    def relist(self, names: tuple[str, ...]) -> None:
        """Read another list; links are dialed by it from now on."""
        super().relist(names)
        if self.engine is not None:
            self._dial()

    async def _serve(self, server: Server, peers: Peers, scope: trio.CancelScope) -> None:
        try:
            with scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(server.serve)
                    await nursery.start(peers.run)
                    server.engine.dispatch(TimerDue(TICK))
        except* Exception as group:
            self.world.found(sentence_of(leaves(server.engine.failure or group)[0]))

    def _committed(self, output: Committed) -> None:
        self.world.committed(self, output)

    def _traced(self, output: Trace) -> None:
        self.world.step_traced(self, output)

    def step(self, input: Input) -> list[Output]:  # noqa: A002 - the design's word
        """Take one step of the engine, which carries out what comes of it."""
        if self.engine is not None:
            self.engine.dispatch(input)
        return []

    def pause(self) -> None:
        """Nothing comes in or goes out any more: a task cannot be stopped in the middle."""
        self.paused = True
        links = self.world.links
        for other in self.world.names:
            if other != self.name:
                links.block(self.name, other)
                links.block(other, self.name)
        for session in self._clients():
            session.block()

    def resume(self) -> None:
        """Let pass what was held."""
        if not self.paused:
            return
        self.paused = False
        links = self.world.links
        for other in self.world.names:
            if other != self.name:
                links.unblock(self.name, other)
                links.unblock(other, self.name)
        for session in self._clients():
            session.unblock()

    def _clients(self) -> list[ServerSession]:
        return [session for session in self.world.sessions if session.member is self]

    def crash(self, kept: int) -> None:
        """Die at once, with all tasks and sockets; nothing is said any more."""
        if self.engine is None or self.node is None:
            return
        self.resume()
        self.stop()
        for session in self._clients():
            session.end("the member is gone")
        super().crash(kept)

    def stop(self) -> None:
        """End all tasks; its node takes nothing any more."""
        if self.engine is not None:
            self.engine.failure = CrashedError()
            self.engine = None
            self._scope.cancel()
