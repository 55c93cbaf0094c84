"""Members in one process, with real links and real vote files."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from mdserver.bench.processes import free_ports
from mdserver.cluster.identity import Identity
from mdserver.cluster.node import TICK, Node
from mdserver.cluster.settings import ClusterSettings
from mdserver.config.values import Address
from mdserver.core.inputs import TimerDue
from mdserver.core.outputs import Log
from mdserver.core.settings import BrokerSettings
from mdserver.server.clock import process_clock
from mdserver.server.disk.votes import VoteFile, VoteWriter
from mdserver.server.engine import Engine, OutputRoutes
from mdserver.server.peers.mutual import MutualIdentity
from mdserver.server.peers.peers import Peers, PeerSettings
from mdserver.server.server import run_timers

GROUPS = 4
PASSWORD = "shared by the members"


class Complaints:
    """A log that keeps what was said."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._said = trio.Event()

    def warning(self, event: str, **values: object) -> None:
        self.lines.append(f"{event} {values}")
        self._said.set()
        self._said = trio.Event()

    async def saying(self, text: str) -> str:
        """The first line with a text in it, once there is one."""
        with trio.fail_after(60):
            while True:
                for line in self.lines:
                    if text in line:
                        return line
                await self._said.wait()

    def exception(self, event: str, **values: object) -> None:
        self.lines.append(f"BUG {event} {values}")


class Member:
    """One member in this process, with real links and a real vote file."""

    def __init__(
        self,
        folder: object,
        addresses: tuple[Address, ...],
        index: int,
        *,
        bind: Address | None = None,
        identity: MutualIdentity | None = None,
    ) -> None:
        self.me = addresses[index]
        names = tuple(str(address) for address in addresses)
        file = VoteFile(folder, str(self.me))  # type: ignore[arg-type]
        votes = file.read(Identity(str(self.me), names[:3], GROUPS))
        file.begin(votes)
        cluster = ClusterSettings(str(self.me), names)
        self.node = Node(BrokerSettings(groups=GROUPS), random.Random(index), cluster, votes)
        self.engine = Engine(self.node, process_clock())
        self.log = Complaints()
        self.joined = trio.Event()
        settings = PeerSettings(
            listen=self.me,
            bind=bind or self.me,
            members=addresses,
            seeds=cluster.seeds,
            groups=GROUPS,
            mode="Guaranteed",
            password=PASSWORD,
            identity=identity,
        )
        self.peers = Peers(settings, self.engine, self.log)
        self.writer = VoteWriter(file, self.engine)
        self.engine.routes = OutputRoutes(
            log=self._logged,
            send_peer=self.peers.send,
            peer_discovered=self.peers.discovered,
            close_peer=self.peers.close,
            persist=self.writer.persist,
            after_dispatch=(self.peers.flush,),
        )

    def _logged(self, output: Log) -> None:
        if output.name == "joined":
            self.joined.set()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_timers, self.engine)
            nursery.start_soon(self.writer.run)
            await nursery.start(self.peers.run)
            self.engine.dispatch(TimerDue(TICK))
            task_status.started()


def free_addresses(count: int) -> tuple[Address, ...]:
    return tuple(Address("127.0.0.1", port) for port in free_ports(count))


@asynccontextmanager
async def running(members: list[Member]) -> AsyncIterator[None]:
    """Members that try to meet."""
    async with trio.open_nursery() as nursery:
        for member in members:
            await nursery.start(member.run)
        yield
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def cluster(
    folder: object, identity: MutualIdentity | None = None
) -> AsyncIterator[list[Member]]:
    """Three members that are ready."""
    addresses = free_addresses(3)
    members = [Member(folder, addresses, index, identity=identity) for index in range(3)]
    async with running(members):
        with trio.fail_after(60):
            for member in members:
                await member.joined.wait()
        yield members
