"""The peer protocol over a socket pair, between the server and its workers.

A link begins without a handshake: only these two processes can have the two ends. Its other end is
the end of a process, so there is nothing to dial again; the server starts another worker.
"""

import socket

import trio

from mdserver.cluster.messages import (
    ClosePeer,
    PeerDiscovered,
    PeerDown,
    PeerReceived,
    PeerUp,
    SendPeer,
)
from mdserver.cluster.node import TICK, Node
from mdserver.codec.frames import FrameReader
from mdserver.codec.peer import MESSAGE, PART, MessageAssembler, message_frame
from mdserver.core.inputs import TimerDue
from mdserver.errors import RemoteProtocolError, StartError
from mdserver.limits import PEER_FRAME_BYTES_MAX
from mdserver.server.engine import Engine
from mdserver.server.peers.link import Link, receive

READ_BYTES = 256 * 1024
ENDED = "the other process ended"


class LocalLinks:
    """The links of the server to its workers, or the link of a worker to the server.

    `links` maps each name to its open link.
    """

    def __init__(self, engine: Engine) -> None:
        self.links: dict[str, Link] = {}
        self._engine = engine
        self._dirty: list[Link] = []
        self._buffer = bytearray(READ_BYTES)

    # Outputs of the node (`OutputRoutes`).

    def send(self, output: SendPeer) -> None:
        """Put a message into the links to its recipients, encoded once for all of them."""
        data: bytes | None = None
        for peer in output.peers:
            link = self.links.get(peer)
            if link is not None:
                data = data or message_frame(output.message)
                if link.put(data):
                    self._dirty.append(link)

    def flush(self, now: int) -> None:  # noqa: ARG002 - see `OutputRoutes`
        """Send what was put into links since the last call, one send a link."""
        for link in self._dirty:
            link.flush()
        self._dirty.clear()

    def close(self, output: ClosePeer) -> None:
        """Close the link to a process that broke the protocol, which ends a worker."""
        link = self.links.get(output.peer)
        if link is not None:
            link.close(output.reason)

    def discovered(self, output: PeerDiscovered) -> None:
        """Do nothing: workers need no links to each other."""

    # One link

    async def run(self, peer: str, sock: socket.socket) -> str:
        """Run a link until either side ends it; return the reason. Takes over `sock`."""
        sock.setblocking(False)
        link = self.links[peer] = Link(peer, sock)
        self._engine.dispatch(PeerUp(peer))
        try:
            with link.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(link.drain)
                    await self._read(link)
        finally:
            del self.links[peer]
            sock.close()
            self._engine.dispatch(PeerDown(peer))
        return link.closed or ENDED

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
    """The link of a worker to its server; see `member.Links` for the server's side of a cluster."""

    votes = None

    def __init__(self, node: Node, engine: Engine, server: str, sock: socket.socket) -> None:
        self.peers = LocalLinks(engine)
        self._node = node
        self._engine = engine
        self._server = server
        self._sock = sock
        self._started = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the link until the server ends it; started once the worker has a copy of the cache.

        Clients that came before that would be sent away again. Raises StartError if the link ends
        before that.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_link)
            while not self._node.members.joined:
                # The node looks at each tick whether it follows all groups.
                self._engine.dispatch(TimerDue(TICK))
                await trio.sleep(0.005)
            self._started = True
            task_status.started()

    async def _run_link(self) -> None:
        """Run the link until its end. Raises StartError if the worker had no copy of the cache."""
        reason = await self.peers.run(self._server, self._sock)
        if not self._started:
            raise StartError(f"the link to the server ended during the start: {reason}")


def worker_name(server: str, number: int) -> str:
    """Return the name of a worker in the peer protocol."""
    return f"{server}/worker-{number}"
