"""The open links of a process: where the node's messages to others go.

A server has one table for its links to other members and to its workers, and a worker one for the
link to its server. What differs is how links come to be (`mdserver.server.peers.peers`,
`mdserver.server.workers.links`).
"""

from mdserver.cluster.messages import ClosePeer, PeerDiscovered, SendPeer
from mdserver.codec.peer import message_frame
from mdserver.limits import PEER_MESSAGE_BYTES_MAX
from mdserver.server.peers.doorstep import Complaints
from mdserver.server.peers.link import Link


class LinkTable:
    """Maps the name of each peer to its open link, and carries out what the node says to peers.

    `_dirty` are the links that got messages since the last `flush`.
    """

    def __init__(self, complaints: Complaints) -> None:
        self.links: dict[str, Link] = {}
        self._complaints = complaints
        self._dirty: list[Link] = []

    # Outputs of the node (`OutputRoutes`).

    def send(self, output: SendPeer) -> None:
        """Put a message into the links to its recipients; peers without a link miss it.

        The message is encoded once for all of them, and not at all if none has a link.
        """
        data: bytes | None = None
        for peer in output.peers:
            link = self.links.get(peer)
            if link is not None:
                data = data or message_frame(output.message)
                if len(data) > PEER_MESSAGE_BYTES_MAX:
                    # The other side would refuse the message and close the link. The node would
                    # send it again over the next link, so nothing else would get through either.
                    self._complaints.say(peer, f"a group's log and cache take {len(data)} bytes")
                elif link.put(data):
                    self._dirty.append(link)

    def flush(self, now: int) -> None:  # noqa: ARG002 - see `OutputRoutes`
        """Send what was put into links since the last call, one send a link."""
        for link in self._dirty:
            link.flush()
        self._dirty.clear()

    def close(self, output: ClosePeer) -> None:
        """Close the link to a peer, if there is one."""
        link = self.links.get(output.peer)
        if link is not None:
            link.close(output.reason)

    def discovered(self, output: PeerDiscovered) -> None:
        """Do nothing: only members need links to those that they hear of."""
