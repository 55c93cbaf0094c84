"""The server: its nurseries, its timers, its start and its end."""

import os
import pwd
import random
import socket
from collections.abc import Callable

import trio

from mdserver import limits
from mdserver.config.values import Address
from mdserver.core.events import Move
from mdserver.errors import MdserverError, StartError
from mdserver.limits import NS_PER_MS, NS_PER_S
from mdserver.net.clock import Clock, process_clock
from mdserver.net.connection import Logger, Shared
from mdserver.net.engine import Engine, Stepping
from mdserver.net.exchange import Handler
from mdserver.net.flusher import Flusher
from mdserver.net.listener import Admission, Listener, listen, url_of
from mdserver.net.session import Behaviour, NodeSessions
from mdserver.net.settings import ServerSettings
from mdserver.net.tls import Identity, KeyStore


class NodeFailedError(MdserverError):
    """`Node.step` raised, which it never does unless it is wrong: the process has to end."""


class Server:
    """One server. Make it, add carriers to `engine` if need be, then `serve` once.

    `urls` are those of the listeners, once they accept.
    """

    def __init__(
        self,
        settings: ServerSettings,
        node: Stepping,
        handler: Handler,
        log: Logger,
        clock: Clock | None = None,
        behaviour: Callable[[Engine], Behaviour] = NodeSessions,
    ) -> None:
        self.settings = settings
        self.urls: list[str] = []
        self._identities: dict[KeyStore, Identity] = {}
        self._random = random.Random()  # noqa: S311 - spreads load, guards nothing
        self.engine = Engine(
            node, clock or process_clock(), Flusher(settings.batching, settings.batching_bytes)
        )
        self._shared = Shared(settings, self.engine, behaviour(self.engine), handler, log)
        self._admission = Admission(settings.connections_max, settings.connections_per_address_max)

    @property
    def connections(self) -> int:
        """How many connections of clients are open."""
        return self._admission.total

    async def serve(
        self, *, task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; `task_status` gets the URLs of all listeners once they accept.

        Raises StartError where an address cannot be listened on.
        """
        listeners = self._listen()
        try:
            if self.settings.run_as_user is not None:
                become(self.settings.run_as_user)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_when_failed)
                nursery.start_soon(run_timers, self.engine)
                nursery.start_soon(self.engine.flusher.run)
                await nursery.start(self._accept, listeners, nursery)
                self.urls = [
                    url_of(sock, secure=identity is not None) for sock, identity in listeners
                ]
                task_status.started(self.urls)
        finally:
            for sock, _ in listeners:
                sock.close()

    async def _accept(
        self,
        listeners: list[tuple[socket.socket, Identity | None]],
        nursery: trio.Nursery,
        *,
        task_status: trio.TaskStatus[None],
    ) -> None:
        async with trio.open_nursery() as accepting:
            for sock, identity in listeners:
                listener = Listener(sock, self._shared, self._admission, identity)
                accepting.start_soon(listener.run, nursery)
            task_status.started()
            await self._shared.draining.wait()
            accepting.cancel_scope.cancel()

    async def _end_when_failed(self) -> None:
        await self.engine.failed.wait()
        raise NodeFailedError("The node broke one of its invariants") from self.engine.failure

    @property
    def unready(self) -> str | None:
        """Why clients should not be sent here now; None where they may be."""
        return "draining" if self._shared.draining.is_set() else None

    async def drain(self, servers: list[str] | None = None) -> None:
        """End gracefully: accept nobody, tell the sessions to move on, to `servers`, and wait.

        Returns when all connections have ended, or after the deadline; then cancel `serve`.
        """
        engine = self.engine
        self._shared.draining.set()
        for connection in list(self._shared.awaiting):
            connection.end_idle()
        spread_ms = self._tell_to_move(servers)
        with trio.move_on_after((spread_ms + limits.DRAIN_GRACE_MS) / 1000):
            await self._admission.emptied()
        for outbox in list(engine.outboxes.values()):
            outbox.end(limits.CLOSE_SHUTTING_DOWN, "The server is shutting down.")
        with trio.move_on_after(self.settings.close_timeout / NS_PER_S):
            await self._admission.emptied()

    def _tell_to_move(self, servers: list[str] | None) -> int:
        """The span of milliseconds over which the sessions are to come to the other members."""
        engine = self.engine
        outboxes = list(engine.outboxes.values())
        most = self.settings.drain_timeout // 2 // NS_PER_MS
        spread_ms = len(outboxes) * 1000 // limits.DRAIN_SESSIONS_PER_S
        spread_ms = min(max(spread_ms, limits.DRAIN_SPREAD_MS_MIN), most)
        for outbox in outboxes:
            delay_ms = self._random.randrange(spread_ms + 1)
            if outbox.put(Move(delay_ms=delay_ms, reason="drain", servers=servers)):
                engine.flusher.dirty.append(outbox)
        engine.flusher.wake()
        return spread_ms if outboxes else 0

    def _listen(self) -> list[tuple[socket.socket, Identity | None]]:
        settings = self.settings
        listeners: list[tuple[socket.socket, Identity | None]] = []
        try:
            for address in settings.listen:
                listeners += [(sock, None) for sock in listen(address)]
            for address in settings.listen_encrypted:
                identity = self._identity(address)
                listeners += [(sock, identity) for sock in listen(address)]
        except BaseException:
            for sock, _ in listeners:
                sock.close()
            raise
        return listeners

    def _identity(self, address: Address) -> Identity:
        store = dict(self.settings.key_stores).get(address, self.settings.key_store)
        if store is None:
            raise StartError(
                f"ListenEncrypted = {address} needs a certificate: set KeyStore, or "
                f"KeyStore.{address}"
            )
        if store not in self._identities:
            self._identities[store] = Identity(store, self.settings.ciphers)
        return self._identities[store]

    def reload_certificates(self) -> None:
        """Read all key stores again; connections that are open keep theirs.

        Raises StartError for the first that cannot be used; that one stays as it was.
        """
        for identity in self._identities.values():
            identity.reload()


async def run_timers(engine: Engine) -> None:
    """Wake up whenever the first timer of the wheel is due."""
    while True:
        earlier = trio.Event()
        engine.earlier_timer = earlier.set
        next_at = engine.timers.next_at()
        seconds = 3600.0 if next_at is None else max(0, next_at - engine.clock()) / NS_PER_S
        with trio.move_on_after(seconds):
            await earlier.wait()
        engine.timers_due()


def become(user: str) -> None:
    """Give up the rights of root for those of `user`, once the ports are bound.

    Raises StartError where there is no such user or the process may not change.
    """
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise StartError(f"RunAsUser = {user}: there is no such user") from None
    if entry.pw_uid == os.geteuid():
        return
    try:
        os.initgroups(user, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    except PermissionError:
        raise StartError(
            f"RunAsUser = {user}: only root can change its user; start the server as root"
        ) from None
