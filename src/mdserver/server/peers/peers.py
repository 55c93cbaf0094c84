"""Peer links over TCP: who dials whom, the handshake, and the life of a link.

Each pair of members shares one link. The member with the smaller address dials. The other one dials
too after it has waited for a while, because a new member may be unknown to those that it joins. Two
new members learn of each other from the members that they join (`PeerDiscovered`).

A member is called by the address that it began with, for as long as the cluster lasts. Where it is
dialed may change while this member runs (`Peers.relist`): the handshake proves who answers there.

    connected --TLS, if configured--> handshake --both proven--> open --close--> closed
        |                                 |
        '-------- refused, broken or too slow ----> closed

*connected* and *handshake*: neither side has proved anything, so a caller holds a place of the
`Doorstep` and has `PEER_HANDSHAKE_TIMEOUT_S`. Only a side that has proved itself gets the reason of
a refusal (`mdserver.codec.peer`).
*open*: the link is in `Peers.links`, and the node was given `PeerUp`. The node may send from now
on, and what the link receives goes to it as `PeerReceived`, in order.
*closed*: `Link.close` was called, by the node or because the socket failed. The link leaves
`Peers.links`, and the node is given `PeerDown`.

There is at most one open link to a member. A newer one takes the place of an older one, which may
belong to a process that has crashed without closing it. The node is then given `PeerUp` a second
time, without a `PeerDown`, and treats the older link as lost.

What goes wrong on one link ends that link only (`Peers._serve`).
"""

import random
import secrets
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import trio
from attrs import Factory, evolve, frozen

from mdserver.cluster.messages import (
    PeerDiscovered,
    PeerDown,
    PeerReceived,
    PeerUp,
)
from mdserver.codec.peer import (
    NONCE_BYTES,
    Greeting,
    Handshake,
    MessageAssembler,
    RefusedError,
    Side,
    Terms,
    refusal,
)
from mdserver.config import values
from mdserver.config.values import Address
from mdserver.errors import RemoteProtocolError, leaves
from mdserver.limits import (
    PEER_BACK_OFF_MAX_S,
    PEER_FORGOTTEN_S,
    PEER_HANDSHAKE_TIMEOUT_S,
    PEER_LINKS_MAX,
    PEER_UNACKNOWLEDGED_S,
)
from mdserver.server.engine import Engine
from mdserver.server.logger import Logger
from mdserver.server.peers.doorstep import Complaints, Doorstep
from mdserver.server.peers.link import Link, receive, send_all
from mdserver.server.peers.mutual import MutualIdentity, begins_with_tls, binding_of, broken
from mdserver.server.peers.table import LinkTable
from mdserver.server.sockets import TCP, SocketFactory, accept_each, end_unacknowledged
from mdserver.server.tls import say_goodbye

READ_BYTES = 256 * 1024
FIRST_BACK_OFF_S = 0.05
LARGER_DIALS_AFTER_S = 1.0


@frozen(kw_only=True)
class PeerSettings:
    """The settings of a member's links.

    `listen` is the address that names this member, `bind` the one that it binds, `members` are the
    names of all listed members, and `moved` says where those are found that are somewhere else.
    With an `identity` links are encrypted, and the other members have to show a certificate too.
    """

    listen: Address
    bind: Address
    members: tuple[Address, ...]
    seeds: tuple[str, ...]
    groups: int
    mode: str
    password: str
    identity: MutualIdentity | None = None
    moved: Mapping[str, Address] = Factory(dict)

    @property
    def me(self) -> str:
        """Return this member's name: its peer address."""
        return str(self.listen)

    def found_at(self, name: Address) -> Address:
        """Return the address at which a member is found now."""
        return self.moved.get(str(name), name)

    def greeting(self) -> Greeting:
        """Return a greeting with a fresh nonce."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return Greeting(self.me, nonce)

    @property
    def terms(self) -> Terms:
        """Return the settings that have to be the same at all members."""
        return Terms(self.groups, list(self.seeds), self.mode)


class Peers(LinkTable):
    """All links of one member, those to its workers included.

    `_dialed` has the names of the members that a task dials.
    """

    def __init__(
        self, settings: PeerSettings, engine: Engine, log: Logger, sockets: SocketFactory = TCP
    ) -> None:
        super().__init__(Complaints(log))
        self._settings = settings
        self._sockets = sockets
        self._engine = engine
        self._log = log
        self._buffer = bytearray(READ_BYTES)
        self._doorstep = Doorstep(settings.found_at(name).host for name in settings.members)
        self._dialed: dict[str, None] = {}
        self._nursery: trio.Nursery | None = None

    def discovered(self, output: PeerDiscovered) -> None:
        """Begin to dial a member that no list names, unless that happens already."""
        if len(self._dialed) >= PEER_LINKS_MAX:
            return
        try:
            address = values.address(0).parse(output.peer)
        except ValueError as error:
            self._complaints.say(output.peer, str(error))
            return
        self._begin_to_dial(address)

    def relist(self, members: tuple[Address, ...], moved: Mapping[str, Address]) -> None:
        """Take a new list of members, and where those are found that have moved.

        Links that are open stay open, also to members that are not listed any more.
        """
        self._settings = evolve(self._settings, members=members, moved=moved)
        self._doorstep.relist(self._settings.found_at(name).host for name in members)
        for name in members:
            self._begin_to_dial(name)

    def _begin_to_dial(self, name: Address) -> None:
        """Begin to dial a member, unless that happens already or it is this one."""
        called = str(name)
        if self._nursery is not None and called not in (self._settings.me, *self._dialed):
            self._dialed[called] = None
            self._nursery.start_soon(self._dial, name)

    # Opening

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep links to all members until cancelled. Raises StartError for a port in use."""
        async with trio.open_nursery() as nursery:

            def accepted(sock: socket.socket, address: str) -> None:
                nursery.start_soon(self._serve, sock, Side.LISTENER, "", address)

            for listening in self._sockets.listen(self._settings.bind):
                nursery.start_soon(accept_each, listening, accepted, self._unaccepted)
            self._nursery = nursery
            for name in self._settings.members:
                self._begin_to_dial(name)
            task_status.started()

    def _unaccepted(self, error: OSError) -> None:
        self._complaints.say("any caller", broken(error))

    async def _dial(self, member: Address) -> None:
        """Dial a member whenever there is no link to it, at the address where it is found then.

        A member that is not in the list is given up after `PEER_FORGOTTEN_S` without a link.
        """
        name = str(member)
        gone = trio.current_time() + PEER_FORGOTTEN_S
        pause = 0.0 if self._settings.me < name else LARGER_DIALS_AFTER_S
        back_off = FIRST_BACK_OFF_S
        while True:
            await trio.sleep(pause)
            pause = FIRST_BACK_OFF_S if self._settings.me < name else LARGER_DIALS_AFTER_S
            if name in self.links:
                back_off = FIRST_BACK_OFF_S
                gone = trio.current_time() + PEER_FORGOTTEN_S
                continue
            if member not in self._settings.members and trio.current_time() > gone:
                del self._dialed[name]
                self._doorstep.forget(name)
                self._complaints.forget(name)
                return
            address = self._settings.found_at(member)
            try:
                with trio.fail_after(PEER_HANDSHAKE_TIMEOUT_S):
                    sock = await self._sockets.dial(address)
            except (OSError, trio.TooSlowError):
                back_off = min(2 * back_off, PEER_BACK_OFF_MAX_S)
                pause = back_off * (0.5 + random.random() / 2)  # noqa: S311 - spreads, hides nothing
                continue
            if not await self._serve(sock, Side.DIALER, name, str(address)):
                # It answers but the handshake failed, usually because of its configuration or of
                # this member's. That needs an operator, so there is no hurry.
                pause = PEER_BACK_OFF_MAX_S

    async def _serve(self, sock: socket.socket, side: Side, expected: str, where: str) -> bool:
        """Serve one link from its handshake to its end; return whether the handshake succeeded.

        Takes over `sock` and closes it. `expected` is the name of the member that was dialed, empty
        for a caller; `where` is its address for the log. Raises only Cancelled.
        """
        name = expected
        opened = False
        try:
            end_unacknowledged(sock, PEER_UNACKNOWLEDGED_S)
            with self._unproven(side, where), trio.fail_after(PEER_HANDSHAKE_TIMEOUT_S):
                if self._settings.identity is not None:
                    sock = await self._encrypted(sock, side, self._settings.identity)
                handshake = await self._open(sock, side, expected)
            if handshake.peer not in self.links and len(self.links) >= PEER_LINKS_MAX:
                raise RemoteProtocolError(f"there are {PEER_LINKS_MAX} links, which is all")
            opened = True
            self._complaints.forget(name)
            if side is Side.DIALER:
                # A name in the list may resolve to this address, from which that member will call.
                self._doorstep.reach(expected, sock.getpeername()[0])
            await self._run_link(Link(handshake.peer, sock), handshake)
        except* (RemoteProtocolError, trio.TooSlowError, OSError) as group:
            self._complaints.say(name, describe_error(leaves(group)[0]), where)
        except* Exception as group:
            self._log.exception("peer link failed", peer=name, error=repr(leaves(group)[0]))
        finally:
            if isinstance(sock, ssl.SSLSocket):
                say_goodbye(sock)
            sock.close()
        return opened

    @contextmanager
    def _unproven(self, side: Side, address: str) -> Iterator[None]:
        """Hold a place of the `Doorstep` during the block, in which a caller proves itself.

        Raises RemoteProtocolError if another caller takes the place. A member that was dialed needs
        no place: this member decides whom it dials.
        """
        if side is Side.DIALER:
            yield
            return
        place = self._doorstep.enter(address)
        try:
            with place.scope:
                yield
        finally:
            self._doorstep.leave(place)
        if place.scope.cancelled_caught:
            raise RemoteProtocolError("it proved nothing, and its place was needed")

    async def _encrypted(
        self, sock: socket.socket, side: Side, identity: MutualIdentity
    ) -> socket.socket:
        if side is Side.LISTENER and not await begins_with_tls(sock):
            error = RemoteProtocolError(
                f"the links of {self._settings.me} are encrypted: ClusterMemberKeyStore is not "
                "set at the other member"
            )
            # The reason may be said to a stranger: that TLS is spoken here is no secret.
            await refuse(sock, error, proven=True)
            raise error
        return await identity.encrypt(sock, side)

    async def _open(self, sock: socket.socket, side: Side, expected: str) -> Handshake:
        """Carry the handshake out; return it when both sides have proved themselves.

        Raises RemoteProtocolError if the other side is refused or refuses, OSError if the
        connection breaks.
        """
        settings = self._settings
        binding = binding_of(sock)
        handshake = Handshake(
            side, settings.greeting(), settings.terms, settings.password, expected, binding
        )
        answer = handshake.begin()
        if binding and side is Side.DIALER:
            # The listener greets when it has accepted the certificate. If it refuses the
            # certificate, it closes with an alert. Bytes that it had not read by then would make
            # its kernel reset the connection, and the alert with the reason would be lost. So the
            # dialer sends nothing before it has received the greeting.
            answer += handshake.feed(await self._received(sock))
        try:
            while True:
                await send_all(sock, answer)
                if handshake.done:
                    return handshake
                answer = handshake.feed(await self._received(sock))
        except RefusedError:
            raise
        except RemoteProtocolError as error:
            await refuse(sock, error, proven=handshake.proven)
            raise

    async def _received(self, sock: socket.socket) -> bytes:
        data = await receive(sock, self._buffer)
        if not data:
            raise RemoteProtocolError("the other side closed during the handshake")
        return data

    async def _run_link(self, link: Link, handshake: Handshake) -> None:
        """Run an open link until either side ends it, between `PeerUp` and `PeerDown`."""
        older = self.links.get(link.peer)
        if older is not None:
            older.close("a newer link took its place")
        self.links[link.peer] = link
        self._engine.dispatch(PeerUp(link.peer))
        try:
            with link.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(link.drain)
                    await self._read(link, handshake)
        finally:
            # If a newer link took this one's place, the member is not down.
            if self.links.get(link.peer) is link:
                del self.links[link.peer]
                self._engine.dispatch(PeerDown(link.peer))
            self._log.warning("link down", peer=link.peer, reason=link.closed or "this member ends")

    async def _read(self, link: Link, handshake: Handshake) -> None:
        """Give the node what the link receives, and close the link when the stream ends.

        Once the link is closed, nothing more of it goes to the node. A newer link may take its
        place while this task has received bytes and waits for its turn. The node relies on it that
        everything from the older link comes before the `PeerUp` of the newer one: after that a
        contact forwards again what it considers lost, and the coordinator would take it twice.
        """
        frames, messages = handshake.early, MessageAssembler()
        try:
            while link.closed is None:
                received = messages.take(frames)
                # Also without a whole message: parts of a large one show that the peer is alive.
                if frames:
                    self._engine.dispatch(PeerReceived(link.peer, received))
                data = await receive(link.sock, self._buffer)
                if not data:
                    link.close("it closed the link")
                    return
                frames = handshake.reader.feed(data)
        except OSError as error:
            link.close(broken(error))
        except RemoteProtocolError as error:
            link.close(error.reason)


async def refuse(sock: socket.socket, error: RemoteProtocolError, *, proven: bool) -> None:
    """Send a refusal if the connection still takes it; with `proven` it contains the reason."""
    with suppress(OSError):
        await send_all(sock, refusal(error, proven=proven))


def describe_error(error: BaseException) -> str:
    """Return in one line why there is no link."""
    if isinstance(error, trio.TooSlowError):
        return "it does not answer"
    return broken(error) if isinstance(error, OSError) else str(error)
