"""The server: its nurseries, its timers, its start and its end."""

import socket
from collections.abc import Callable, Sequence

import trio

from mdserver.limits import NS_PER_S
from mdserver.net.clock import Clock, process_clock
from mdserver.net.connection import Logger, Shared
from mdserver.net.engine import Engine, Stepping
from mdserver.net.exchange import Handler
from mdserver.net.flusher import Flusher
from mdserver.net.listener import Admission, Listener, listen, url_of
from mdserver.net.session import Behaviour, NodeSessions
from mdserver.net.settings import ServerSettings


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
                for sock in listeners:
                    listener = Listener(sock, self._shared, self._admission)
                    nursery.start_soon(listener.run, nursery)
                self.urls = [url_of(sock) for sock in listeners]
                task_status.started(self.urls)
        finally:
            for sock in listeners:
                sock.close()

    def _listen(self) -> Sequence[socket.socket]:
        listeners: list[socket.socket] = []
        try:
            for address in self.settings.listen:
                listeners += listen(address)
        except BaseException:
            for sock in listeners:
                sock.close()
            raise
        return listeners


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
