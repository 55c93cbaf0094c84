"""The server: its nurseries, its timers, its start and its end."""

import socket
from collections.abc import Callable

import trio

from mdserver.config.values import Address
from mdserver.errors import StartError
from mdserver.limits import NS_PER_S
from mdserver.net.clock import Clock, process_clock
from mdserver.net.connection import Logger, Shared
from mdserver.net.engine import Engine, Stepping
from mdserver.net.exchange import Handler
from mdserver.net.flusher import Flusher
from mdserver.net.listener import Admission, Listener, listen, url_of
from mdserver.net.session import Behaviour, NodeSessions
from mdserver.net.settings import ServerSettings
from mdserver.net.tls import Identity, KeyStore


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
        self.engine = Engine(node, clock or process_clock(), Flusher())
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
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_timers, self.engine)
                nursery.start_soon(self.engine.flusher.run)
                for sock, identity in listeners:
                    listener = Listener(sock, self._shared, self._admission, identity)
                    nursery.start_soon(listener.run, nursery)
                self.urls = [
                    url_of(sock, secure=identity is not None) for sock, identity in listeners
                ]
                task_status.started(self.urls)
        finally:
            for sock, _ in listeners:
                sock.close()

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
