"""The server of one process: its nurseries and timers, its start and its drain.

    bound --rights given up--> accepting --drain--> draining --all gone, or deadline--> ended

The addresses are bound first, because ports below 1024 need rights that are given up afterwards.
The accept loops run in a nursery of their own, the connections in that of the server, so a drain
can stop accepting while the connections go on. It then tells the sessions to move on, spread over
time, so that their clients do not reconnect to the other servers all at once.
"""

import random
import socket
from collections.abc import Callable

import attrs
import trio

from mdserver import limits
from mdserver.codec.cors import WebRule
from mdserver.config.values import Address, loopback
from mdserver.core.events import Move
from mdserver.errors import MdserverError, StartError
from mdserver.limits import NS_PER_MS, NS_PER_S
from mdserver.server.clients.admission import Admission, descriptors_for_connections
from mdserver.server.clients.context import ServerContext
from mdserver.server.clients.exchange import Handler
from mdserver.server.clients.fanout import open_fanout
from mdserver.server.clients.flusher import Flusher
from mdserver.server.clients.listener import Listener
from mdserver.server.clients.session import NodeSessions, SessionHandler
from mdserver.server.clients.sessions import Sessions
from mdserver.server.clock import Clock, process_clock
from mdserver.server.engine import Engine, StateMachine
from mdserver.server.logger import Logger
from mdserver.server.privileges import drop_privileges
from mdserver.server.settings import ServerSettings
from mdserver.server.sockets import TCP, SocketFactory, url_of
from mdserver.server.tls import KeyStore, ListenerCertificate

BoundSocket = tuple[socket.socket, ListenerCertificate | None, frozenset[str] | None]
"""A listening socket, the certificate to show there, and the names that clients may use."""


class NodeFailedError(MdserverError):
    """`Node.step` raised, so one of the node's invariants is broken and the process has to end."""


@attrs.frozen
class MonitorListener:
    """A listener for operators: its context, with its handler, and its addresses.

    `encrypted`: it uses TLS.
    """

    context: ServerContext
    addresses: tuple[Address, ...]
    encrypted: bool


class Server:
    """One server. Construct it, complete `engine.routes` if necessary, and call `serve` once.

    `urls` are those of the listeners, `monitor_urls` those of the monitor, when they accept.
    """

    def __init__(
        self,
        settings: ServerSettings,
        node: StateMachine,
        handler: Handler,
        log: Logger,
        clock: Clock | None = None,
        session_handler: Callable[[Sessions], SessionHandler] = NodeSessions,
        sockets: SocketFactory = TCP,
        admission: Admission | None = None,
    ) -> None:
        self.settings = settings
        self._sockets = sockets
        self.urls: list[str] = []
        self.monitor_urls: list[str] = []
        self._identities: dict[KeyStore, ListenerCertificate] = {}
        self._random = random.Random()  # noqa: S311 - spreads load, guards nothing
        self.engine = Engine(node, clock or process_clock())
        self.fanout = open_fanout(settings.fanout_engine)
        flusher = Flusher(settings.batching, settings.batching_bytes, self.fanout.send)
        self.sessions = Sessions(self.engine, flusher)
        self.engine.routes = self.sessions.routes()
        self.context = ServerContext(
            settings,
            self.sessions,
            session_handler(self.sessions),
            handler,
            log,
            web=WebRule(settings.allowed_origins),
        )
        self._monitors: list[MonitorListener] = []
        possible = descriptors_for_connections()
        self._admission = admission or Admission(
            min(possible, settings.connections_max),
            settings.connections_per_address_max,
            settings.connects_per_s,
        )

    def add_monitor(self, handler: Handler) -> None:
        """Have `handler` answer requests at `monitor_listen`, but none of foreign web pages."""
        settings = self.settings
        self._add_monitor(handler, settings.monitor_listen, encrypted=settings.monitor_encrypted)

    def add_metrics(self, handler: Handler) -> None:
        """Have `handler` answer requests at `metrics_listen`, but none of foreign web pages."""
        settings = self.settings
        self._add_monitor(handler, settings.metrics_listen, encrypted=settings.metrics_encrypted)

    def _add_monitor(
        self, handler: Handler, addresses: tuple[Address, ...], *, encrypted: bool
    ) -> None:
        context = attrs.evolve(
            self.context,
            handler=handler,
            upgrade_paths=(),
            awaiting={},
            draining=trio.Event(),
            web=WebRule(frozenset(), own_pages=True),
            settings=attrs.evolve(self.settings, proxies=(), proxy_protocol=False),
        )
        self._monitors.append(MonitorListener(context, addresses, encrypted))

    @property
    def connections(self) -> int:
        """The number of connections of clients that are open."""
        return self._admission.total

    @property
    def connections_total(self) -> int:
        """The number of connections that were let in since the start."""
        return self._admission.entered

    async def serve(
        self, *, task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; `task_status` gets the URLs of all listeners once they accept.

        Raises StartError if an address cannot be listened on.
        """
        settings = self.settings
        clients: list[BoundSocket] = []
        monitors: list[list[BoundSocket]] = [[] for _ in self._monitors]
        try:
            self._bind(settings.listen, encrypted=False, to=clients)
            self._bind(settings.listen_encrypted, encrypted=True, to=clients)
            for monitor, bound in zip(self._monitors, monitors, strict=True):
                self._bind(monitor.addresses, encrypted=monitor.encrypted, to=bound)
            if settings.run_as_user is not None:
                drop_privileges(settings.run_as_user)
            async with trio.open_nursery() as nursery:
                self.sessions.tasks = nursery
                nursery.start_soon(self._end_when_failed)
                nursery.start_soon(run_timers, self.engine)
                nursery.start_soon(self.sessions.flusher.run)
                await nursery.start(accept, clients, self.context, self._admission, nursery)
                for monitor, bound in zip(self._monitors, monitors, strict=True):
                    most = limits.MONITOR_CONNECTIONS_MAX
                    admission = Admission(most, most)
                    await nursery.start(accept, bound, monitor.context, admission, nursery)
                self.urls = [url_of(sock, secure=bool(identity)) for sock, identity, _ in clients]
                self.monitor_urls = [
                    url_of(sock, secure=bool(identity))
                    for bound in monitors
                    for sock, identity, _ in bound
                ]
                task_status.started(self.urls)
        finally:
            for sock, *_ in (*clients, *(each for bound in monitors for each in bound)):
                sock.close()

    async def _end_when_failed(self) -> None:
        await self.engine.failed.wait()
        raise NodeFailedError("The node broke one of its invariants") from self.engine.failure

    @property
    def unready(self) -> str | None:
        """The reason why clients should not be sent here now, None if they may be."""
        return "draining" if self.context.draining.is_set() else None

    async def drain(self, servers: list[str] | None = None) -> None:
        """Stop accepting, tell the sessions to move on to `servers`, and wait until they have.

        Returns when all connections have ended, or after the deadline; then cancel `serve`.
        """
        self.context.draining.set()
        for connection in list(self.context.awaiting):
            connection.end_idle()
        spread_ms = self._tell_to_move(servers)
        with trio.move_on_after((spread_ms + limits.DRAIN_GRACE_MS) / 1000):
            await self._admission.emptied()
        for outbox in list(self.sessions.outboxes.values()):
            outbox.end(limits.CLOSE_SHUTTING_DOWN, "The server is shutting down.")
        with trio.move_on_after(self.settings.close_timeout / NS_PER_S):
            await self._admission.emptied()

    def _tell_to_move(self, servers: list[str] | None) -> int:
        """Tell each session to move after a random delay; return the longest delay (ms)."""
        sessions = self.sessions
        outboxes = list(sessions.outboxes.values())
        most = self.settings.drain_timeout // 2 // NS_PER_MS
        spread_ms = len(outboxes) * 1000 // limits.DRAIN_SESSIONS_PER_S
        spread_ms = min(max(spread_ms, limits.DRAIN_SPREAD_MS_MIN), most)
        for outbox in outboxes:
            delay_ms = self._random.randrange(spread_ms + 1)
            if outbox.put(Move(delay_ms=delay_ms, reason="drain", servers=servers)):
                sessions.flusher.dirty.append(outbox)
        sessions.flusher.wake()
        return spread_ms if outboxes else 0

    def _bind(
        self, addresses: tuple[Address, ...], *, encrypted: bool, to: list[BoundSocket]
    ) -> None:
        for address in addresses:
            identity = self._identity(address) if encrypted else None
            hosts = hosts_of(address, self.settings.allowed_hosts)
            to += [(sock, identity, hosts) for sock in self._sockets.listen(address)]

    def _identity(self, address: Address) -> ListenerCertificate:
        store = dict(self.settings.key_stores).get(address, self.settings.key_store)
        if store is None:
            raise StartError(
                f"Listening on {address} with TLS needs a certificate: set KeyStore, or "
                f"KeyStore.{address}"
            )
        if store not in self._identities:
            self._identities[store] = ListenerCertificate(store, self.settings.ciphers)
        return self._identities[store]

    @property
    def identities(self) -> list[ListenerCertificate]:
        """The certificates of the listeners."""
        return list(self._identities.values())


async def accept(
    bound: list[BoundSocket],
    context: ServerContext,
    admission: Admission,
    nursery: trio.Nursery,
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    """Accept at all sockets until the server drains; the connections run in `nursery`."""
    async with trio.open_nursery() as accepting:
        for sock, identity, hosts in bound:
            here = attrs.evolve(context, web=attrs.evolve(context.web, hosts=hosts))
            accepting.start_soon(Listener(sock, here, admission, identity).run, nursery)
        task_status.started()
        await context.draining.wait()
        accepting.cancel_scope.cancel()


def hosts_of(address: Address, allowed: frozenset[str] | None) -> frozenset[str] | None:
    """Return the names under which clients may call this server at an address; None for any.

    Without a list, a server that listens on a loopback address takes only the names of that
    address. A web page that has its own name resolve to the loopback address (DNS rebinding) is
    thus refused.
    """
    if allowed is None or (not allowed and not loopback(address.host)):
        return None
    return allowed | {address.host.lower()}


async def run_timers(engine: Engine) -> None:
    """Wait for the first timer of the wheel and act on those that are due, until cancelled."""
    while True:
        earlier = trio.Event()
        engine.earlier_timer = earlier.set
        next_at = engine.timers.next_at()
        seconds = 3600.0 if next_at is None else max(0, next_at - engine.clock()) / NS_PER_S
        with trio.move_on_after(seconds):
            await earlier.wait()
        engine.timers_due()
