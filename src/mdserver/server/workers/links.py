"""The peer protocol over a socket pair, between the server and its workers.

A link begins without a handshake: only these two processes can have the two ends. Its other end is
the end of a process, so there is nothing to dial again; the server starts another worker.
"""

import socket

import structlog
import trio

from mdserver.cluster.messages import PeerDown, PeerReceived, PeerUp
from mdserver.cluster.node import TICK, Node
from mdserver.codec.frames import FrameReader
from mdserver.codec.peer import MESSAGE, PART, MessageAssembler
from mdserver.core.inputs import TimerDue
from mdserver.errors import RemoteProtocolError, StartError
from mdserver.limits import PEER_FRAME_BYTES_MAX
from mdserver.server.engine import Engine
from mdserver.server.peers.doorstep import Complaints
from mdserver.server.peers.link import Link, receive
from mdserver.server.peers.table import LinkTable

READ_BYTES = 256 * 1024
ENDED = "the other process ended"
log = structlog.get_logger()


class LocalLinks:
    """Runs the links of the server to its workers, or the link of a worker to the server.

    `to_workers` says which of the two. Open links are in `table`.
    """

    def __init__(self, engine: Engine, table: LinkTable, *, to_workers: bool) -> None:
        self.table = table
        self._engine = engine
        self._to_workers = to_workers
        self._buffer = bytearray(READ_BYTES)

    async def run(self, peer: str, sock: socket.socket) -> str:
        """Run a link until either side ends it; return the reason. Takes over `sock`."""
        sock.setblocking(False)
        link = self.table.links[peer] = Link(peer, sock)
        self._engine.dispatch(PeerUp(peer, self._to_workers))
        try:
            with link.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(link.drain)
                    await self._read(link)
        finally:
            del self.table.links[peer]
            sock.close()
            self._engine.dispatch(PeerDown(peer))
        return ENDED if link.failed or link.closed is None else link.closed

    async def _read(self, link: Link) -> None:
        """Give the node what the link receives, and close the link when the stream ends."""
        reader, messages = (
            FrameReader(frozenset((MESSAGE, PART)), PEER_FRAME_BYTES_MAX),
            MessageAssembler(),
        )
        try:
            while link.closed is None:
                data = await receive(link.sock, self._buffer)
                if not data:
                    link.close(ENDED)
                    return
                received = messages.take(reader.feed(data))
                self._engine.dispatch(PeerReceived(link.peer, received))
        except OSError:
            link.close(ENDED)
        except RemoteProtocolError as error:
            link.close(error.reason)


class ServerLink:
    """The link of a worker to its server; see `member.Links` for those of a member to others.

    `peers` has that link.
    """

    votes = None

    def __init__(self, node: Node, engine: Engine, server: str, sock: socket.socket) -> None:
        self.peers = LinkTable(Complaints(log))
        self._links = LocalLinks(engine, self.peers, to_workers=False)
        self._node = node
        self._engine = engine
        self._server = server
        self._sock = sock
        self._started = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the link until the server ends it; started once the worker has a copy of the cache.

        Clients that came before that would be sent away again. If the server serves nobody, as one
        that joins its cluster, that is all that there is to wait for. Raises StartError if the link
        ends before that.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_link)
            while not self._node.members.joined and self._node.service.told.unready is None:
                # The node looks at each tick whether it follows all groups.
                self._engine.dispatch(TimerDue(TICK))
                await trio.sleep(0.005)
            self._started = True
            task_status.started()

    async def _run_link(self) -> None:
        """Run the link until its end. Raises StartError if the worker had no copy of the cache."""
        reason = await self._links.run(self._server, self._sock)
        if not self._started:
            raise StartError(f"the link to the server ended during the start: {reason}")


def worker_name(server: str, number: int) -> str:
    """Return the name of a worker in the peer protocol."""
    return f"{server}/worker-{number}"
