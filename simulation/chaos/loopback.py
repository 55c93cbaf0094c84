"""Plain processes on 127.0.0.1 whose links all go through the fault proxy: needs no rights."""

from collections.abc import Collection

import trio

from mdserver.codec.frames import FrameReader
from mdserver.codec.peer import GREETING, MESSAGE, PROOF, REFUSAL, TERMS, Greeting, decoded
from mdserver.errors import RemoteProtocolError
from mdserver.limits import PEER_GREETING_BYTES_MAX
from simulation.chaos.proxy import Address, Proxy
from simulation.chaos.wire import Pair, text

SLOW_S = 0.25
CUT_BYTES_MAX = 3000
KINDS = frozenset((GREETING, PROOF, REFUSAL, TERMS, MESSAGE))


async def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago; members have to know each other's beforehand."""
    ports = []
    sockets = []
    for _ in range(count):
        sock = trio.socket.socket()
        sockets.append(sock)
        await sock.bind(("127.0.0.1", 0))
        ports.append(sock.getsockname()[1])
    for sock in sockets:
        sock.close()
    return ports


def caller(first: bytes) -> str | None:
    """Which member calls, from its greeting (docs/cluster.md, "Peer links")."""
    try:
        frames = FrameReader(KINDS, PEER_GREETING_BYTES_MAX).feed(first)
        return decoded(frames[0][1], Greeting).member if frames else None
    except RemoteProtocolError:
        return "a stranger"


class Loopback:
    """See `Wire`. A blocked pair is held: what was under way comes when it is let go."""

    told = "plain processes behind the TCP fault proxy"
    alters = False
    reads = True
    disordered = 0

    def __init__(self, members: int) -> None:
        self._count = members
        self._binds: list[Address] = []
        self._clients: list[Address] = []
        self._monitors: list[Address] = []
        self._encrypted: list[Address] = []
        self.proxies: list[Proxy] = []

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start a proxy before each member."""
        count = self._count
        found: list[Address] = [("127.0.0.1", port) for port in await free_ports(4 * count)]
        self._binds, self._clients = found[:count], found[count : 2 * count]
        self._monitors, self._encrypted = found[2 * count : 3 * count], found[3 * count :]
        self.proxies = [Proxy(bind, identify=caller) for bind in self._binds]
        async with trio.open_nursery() as nursery:
            for proxy in self.proxies:
                await nursery.start(proxy.run)
            task_status.started()

    def peer(self, member: int) -> Address:
        """The proxy's address."""
        return self.proxies[member].address

    def bind(self, member: int) -> Address:
        """The member's own address."""
        return self._binds[member]

    async def another(self, member: int) -> Address:  # noqa: ARG002 - see `Wire`
        """A port that is free, which no proxy stands before."""
        (port,) = await free_ports(1)
        return "127.0.0.1", port

    def clients(self, member: int) -> Address:
        """For clients."""
        return self._clients[member]

    def encrypted(self, member: int) -> Address:
        """For clients, by TLS."""
        return self._encrypted[member]

    def monitor(self, member: int) -> Address:
        """For operators."""
        return self._monitors[member]

    def command(self, _member: int) -> list[str]:
        """Nothing."""
        return []

    async def block(self, pairs: Collection[Pair]) -> None:
        """Hold what the callers of each proxy say and what they are answered."""
        await trio.lowlevel.checkpoint()
        for called, proxy in enumerate(self.proxies):
            for calling in range(self._count):
                route = proxy.route(text(self.peer(calling)))
                route.forth.set(held=(calling, called) in pairs)
                route.back.set(held=(called, calling) in pairs)

    async def slow(self, members: Collection[int]) -> None:
        """Delay every piece that they send."""
        await trio.lowlevel.checkpoint()
        for called, proxy in enumerate(self.proxies):
            for calling in range(self._count):
                route = proxy.route(text(self.peer(calling)))
                route.forth.set(delay_s=SLOW_S if calling in members else 0.0)
                route.back.set(delay_s=SLOW_S if called in members else 0.0)

    async def shuffle(self, members: Collection[int]) -> None:
        """Raises NotImplementedError: a proxy sees bytes that TCP has put in order."""
        raise NotImplementedError

    async def cut(self, member: int, draw: int) -> None:
        """After some further bytes."""
        await trio.lowlevel.checkpoint()
        name = text(self.peer(member))
        for called, proxy in enumerate(self.proxies):
            for calling, route in proxy.routes.items():
                if called == member or calling == name:
                    route.cut(1 + draw % CUT_BYTES_MAX)
