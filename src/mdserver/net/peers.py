"""Peer links over TCP: who dials whom, the handshake, frames both ways.

Each pair of members has one link. The member with the smaller address dials; the other one does so
too when it has waited for a while, since a new member may be unknown to those it joins.
"""

import random
import secrets

import trio
from attrs import frozen

from mdserver.cluster.messages import ClosePeer, PeerDown, PeerReceived, PeerUp, SendPeer
from mdserver.codec.peer import (
    NONCE_BYTES,
    Greeting,
    Handshake,
    RefusedError,
    Side,
    message_frame,
    messages,
)  # fmt: skip
from mdserver.config.values import Address
from mdserver.errors import RemoteProtocolError, StartError
from mdserver.limits import (
    CLUSTER_MEMBERS_MAX,
    PEER_BACK_OFF_MAX_S,
    PEER_FRAME_BYTES_MAX,
    PEER_HANDSHAKE_TIMEOUT_S,
    PEER_LINKS_MAX,
    PEER_OUTBOX_BYTES_MAX,
    PEER_WRITE_TIMEOUT_S,
)  # fmt: skip
from mdserver.net.connection import Logger
from mdserver.net.engine import Engine

READ_BYTES = 256 * 1024
FIRST_BACK_OFF_S = 0.05
LARGER_DIALS_AFTER_S = 1.0


@frozen(kw_only=True)
class PeerSettings:
    """What the links are told.

    `listen` is where others find this member, `bind` where it listens itself, `members` where the
    others are.
    """

    listen: Address
    bind: Address
    members: tuple[Address, ...]
    seeds: tuple[str, ...]
    groups: int
    mode: str
    password: str

    @property
    def me(self) -> str:
        """This member's name: its peer address."""
        return str(self.listen)

    def greeting(self) -> Greeting:
        """A greeting with a fresh nonce."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return Greeting(self.me, nonce, self.groups, list(self.seeds), self.mode)


class Link:
    """One open link. What is put waits, by reference, until the writer takes all of it at once."""

    __slots__ = ("closed", "peer", "size", "stream", "waiting", "wanted")

    def __init__(self, peer: str, stream: trio.SocketStream) -> None:
        self.peer = peer
        self.stream = stream
        self.waiting: list[bytes] = []
        self.size = 0
        self.wanted = trio.Event()
        self.closed: str | None = None

    def put(self, data: bytes) -> None:
        """Have a frame sent; a link that takes too little for too long is closed."""
        self.waiting.append(data)
        self.size += len(data)
        if self.size > PEER_OUTBOX_BYTES_MAX:
            self.close("it reads too slowly")
        self.wanted.set()

    def close(self, reason: str) -> None:
        """End the link; both of its loops notice."""
        self.closed = self.closed or reason
        self.wanted.set()

    async def write(self) -> None:
        """Send what waits, all of it at once, until the link is closed."""
        while self.closed is None:
            await self.wanted.wait()
            self.wanted = trio.Event()
            frames, self.waiting, self.size = self.waiting, [], 0
            if frames and self.closed is None:
                with trio.fail_after(PEER_WRITE_TIMEOUT_S):
                    await self.stream.send_all(b"".join(frames))


class Peers:
    """All links of one member."""

    def __init__(self, settings: PeerSettings, engine: Engine, log: Logger) -> None:
        self._settings = settings
        self._engine = engine
        self._log = log
        self._links: dict[str, Link] = {}
        self._opening = 0
        self._complaints: dict[str, str] = {}
        engine.carry(SendPeer, self._send)
        engine.carry(ClosePeer, self._close)

    # The node's side

    def _send(self, output: SendPeer) -> None:
        data: bytes | None = None
        for peer in output.peers:
            link = self._links.get(peer)
            if link is not None:
                data = data or message_frame(output.message)
                if len(data) > PEER_FRAME_BYTES_MAX:
                    # The other side would refuse it, and the link with it, again and again.
                    self._complain(peer, f"a group's log and cache take {len(data)} bytes")
                else:
                    link.put(data)

    def _close(self, output: ClosePeer) -> None:
        link = self._links.get(output.peer)
        if link is not None:
            link.close(output.reason)

    # Opening

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep links to all members until cancelled. Raises StartError for a port in use."""
        where = self._settings.bind
        host = None if where.host == "*" else where.host
        try:
            listeners = await trio.open_tcp_listeners(where.port, host=host)
        except OSError as error:
            raise StartError(f"Cannot listen on {where} for members: {error.strerror}") from None
        async with trio.open_nursery() as nursery:
            for address in self._settings.members:
                if str(address) != self._settings.me:
                    nursery.start_soon(self._dial, address)
            task_status.started()
            await trio.serve_listeners(self._accepted, listeners, handler_nursery=nursery)

    async def _dial(self, address: Address) -> None:
        """Dial a member whenever there is no link to it."""
        name = str(address)
        pause = 0.0 if self._settings.me < name else LARGER_DIALS_AFTER_S
        back_off = FIRST_BACK_OFF_S
        while True:
            await trio.sleep(pause)
            pause = FIRST_BACK_OFF_S if self._settings.me < name else LARGER_DIALS_AFTER_S
            if name in self._links:
                back_off = FIRST_BACK_OFF_S
                continue
            handshake = Handshake(
                Side.DIALER, self._settings.greeting(), self._settings.password, name
            )
            try:
                with trio.fail_after(PEER_HANDSHAKE_TIMEOUT_S):
                    stream = await trio.open_tcp_stream(address.host, address.port)
            except (OSError, trio.TooSlowError):
                back_off = min(2 * back_off, PEER_BACK_OFF_MAX_S)
                pause = back_off * (0.5 + random.random() / 2)  # noqa: S311 - spreads, hides nothing
                continue
            if not await self._serve(stream, handshake, name):
                pause = PEER_BACK_OFF_MAX_S

    async def _accepted(self, stream: trio.SocketStream) -> None:
        if self._opening + len(self._links) >= PEER_LINKS_MAX:
            await trio.aclose_forcefully(stream)
            return
        handshake = Handshake(Side.LISTENER, self._settings.greeting(), self._settings.password)
        await self._serve(stream, handshake, "a caller")

    async def _serve(self, stream: trio.SocketStream, handshake: Handshake, name: str) -> bool:
        """One link from its handshake to its end: what goes wrong here stays here."""
        opened = False
        try:
            async with stream:
                self._opening += 1
                try:
                    await self._open(stream, handshake)
                finally:
                    self._opening -= 1
                opened = True
                self._complaints.pop(name, None)
                await self._carry(Link(handshake.peer, stream), handshake)
        except* (RemoteProtocolError, trio.TooSlowError, OSError, trio.BrokenResourceError,
                 trio.ClosedResourceError) as group:  # fmt: skip
            if not opened:
                self._complain(name, str(first(group)) or "it does not answer")
        except* Exception as group:
            self._log.exception("peer link failed", peer=name, error=repr(first(group)))
        return opened

    def _complain(self, name: str, reason: str) -> None:
        """Say once why a link does not come about, not at each try."""
        if self._complaints.get(name) != reason and len(self._complaints) < CLUSTER_MEMBERS_MAX:
            self._complaints[name] = reason
            self._log.warning("no link", peer=name, reason=reason)

    async def _open(self, stream: trio.SocketStream, handshake: Handshake) -> None:
        with trio.fail_after(PEER_HANDSHAKE_TIMEOUT_S):
            try:
                await stream.send_all(handshake.begin())
                while not handshake.done:
                    data = await stream.receive_some(READ_BYTES)
                    if not data:
                        raise RemoteProtocolError("the other side closed during the handshake")
                    answer = handshake.feed(bytes(data))
                    if answer:
                        await stream.send_all(answer)
            except RefusedError:
                raise
            except RemoteProtocolError as error:
                await stream.send_all(handshake.refusal(error))
                raise

    async def _carry(self, link: Link, handshake: Handshake) -> None:
        """An open link: tell the node, read and write until either side ends it."""
        older = self._links.get(link.peer)
        if older is not None:
            older.close("a newer link took its place")
        self._links[link.peer] = link
        self._engine.dispatch(PeerUp(link.peer))
        reason = "it closed the link"
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, link, nursery.cancel_scope)
                await self._read(link, handshake)
                nursery.cancel_scope.cancel()
        finally:
            if self._links.get(link.peer) is link:
                del self._links[link.peer]
                self._engine.dispatch(PeerDown(link.peer))
            self._log.warning("link down", peer=link.peer, reason=link.closed or reason)

    async def _write(self, link: Link, scope: trio.CancelScope) -> None:
        try:
            await link.write()
        finally:
            scope.cancel()

    async def _read(self, link: Link, handshake: Handshake) -> None:
        frames = handshake.early
        while True:
            received = messages(frames)
            if received:
                self._engine.dispatch(PeerReceived(link.peer, received))
            data = await link.stream.receive_some(READ_BYTES)
            if not data or link.closed is not None:
                return
            frames = handshake.reader.feed(bytes(data))


def first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error in a group of groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
