"""A worker process (`python -m mdserver.server.worker DESCRIPTOR`), which a server starts.

The descriptor is the control channel; its first message says everything else
(`mdserver.server.workers`). Only servers start workers: there is nothing here for people.
"""

import os
import random
import signal
import socket
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Any

if __name__ == "__main__":
    # Supervisors and terminals signal all processes. The server decides what becomes of its
    # workers, and says so. The imports below take most of the start.
    for _number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(_number, signal.SIG_IGN)

import attrs
import structlog
import trio

from mdserver.cluster.node import Node
from mdserver.cluster.settings import worker_of
from mdserver.cluster.votes import Vote, VoteRecord
from mdserver.codec.http import Request, RequestRefusedError
from mdserver.config import Config, LogLevel, load
from mdserver.config.values import Address
from mdserver.core.outputs import Log
from mdserver.errors import ConfigError, MdserverError, StartError, leaves
from mdserver.limits import (
    STATISTICS_SAMPLE_MS,
    WORKER_ANSWER_MARGIN_S,
    WORKER_ASK_TIMEOUT_S,
    WORKER_LINES_AT_ONCE_BYTES,
    WORKER_LINES_BYTES_MAX,
)
from mdserver.server.app import App, build_authorizer
from mdserver.server.clients.admission import descriptors_for_connections
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.clients.sessions import Sessions
from mdserver.server.collector import spare_collector
from mdserver.server.http.answers import text_answer
from mdserver.server.http.router import SECRET_PATHS, Router
from mdserver.server.http.stream import give_commands, secret_of
from mdserver.server.logs import set_level, worker_log
from mdserver.server.monitor.commands import OperatorCommands
from mdserver.server.monitor.orders import Orders
from mdserver.server.monitor.sessions import SessionList, SessionQuery
from mdserver.server.monitor.statistics import Statistics
from mdserver.server.monitor.telemetry import connect_telemetry
from mdserver.server.server import Server
from mdserver.server.settings import broker_settings, otel_settings, server_settings
from mdserver.server.sockets import SocketFactory
from mdserver.server.workers import control
from mdserver.server.workers.control import (
    AskRefusedError,
    Channel,
    ControlError,
    first_message,
)
from mdserver.server.workers.figures import figures_of
from mdserver.server.workers.links import ServerLink, worker_name
from mdserver.server.workers.shared_counts import SharedAdmission, SharedCounts

FORWARDED = frozenset(("access", "message", "presence", "receipts"))
"""The streams of lines that are about clients. The server writes the others itself."""
LINE_BYTES = 400  # of a line without its texts, about
ORDERS_MAX = 1000  # that came while the worker starts, beyond which it reads no more for now
log = structlog.get_logger()


def main() -> None:
    """Run a worker until its server ends it, or ends."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    try:
        begin = first_message(sock)
    except (ControlError, OSError):
        raise SystemExit(1) from None  # the server is gone
    assert isinstance(begin, control.BeginWorker)
    sys.path[:] = begin.path
    for descriptor in (begin.peer, begin.log, begin.connections, sock.fileno()):
        os.set_inheritable(descriptor, False)
    config = config_of(begin.config)
    with worker_log(config, begin.log, begin.worker):
        trio.run(run, begin, config, sock)


def config_of(texts: dict[str, str]) -> Config:
    """Return the configuration with these texts. Raises ConfigError."""
    return load(overrides=[f"{name}={text}" for name, text in texts.items()]).config


async def run(begin: control.BeginWorker, config: Config, sock: socket.socket) -> None:
    """Serve clients until the server ends the worker, and report why it cannot."""
    channel = Channel(sock)
    try:
        await Worker(begin, config, channel).run()
    except* MdserverError as group:
        reasons = dict.fromkeys(str(error) for error in leaves(group))
        with suppress(trio.BrokenResourceError), trio.move_on_after(WORKER_ASK_TIMEOUT_S):
            await channel.send(control.WorkerFailed("\n".join(reasons)))
        raise SystemExit(1) from None
    except* (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # the server is gone


class Streams:
    """Commands for HTTP streams (`POST /stream/SECRET`), which may come to another worker.

    The connection of a stream's commands is not that of its events, so the kernel may give it to
    any worker. One that does not have the stream asks the others, by way of the server.
    """

    def __init__(self, sessions: Sessions, channel: Channel) -> None:
        self._sessions = sessions
        self._channel = channel

    async def give(self, request: Request, exchange: Exchange) -> Answer:
        """Give commands to a stream of any worker."""
        if not exchange.has_stream(secret_of(request)):
            kind = request.header(b"content-type")
            asked = {
                "target": request.target,
                "type": kind,
                "address": exchange.address,
                # All workers read the same clock.
                "until": time.monotonic() + WORKER_ASK_TIMEOUT_S - WORKER_ANSWER_MARGIN_S,
            }
            try:
                answer = await self._channel.ask("stream", asked, request.body)
            except AskRefusedError as error:
                raise RequestRefusedError(413, str(error)) from None
            if answer is not None:
                return text_answer(answer["text"], answer["status"])
        return await give_commands(request, exchange)

    async def given(self, ask: control.Question) -> dict[str, Any] | None:
        """Give commands that came to another worker; None if the stream is not here."""
        kind = ask.values["type"]
        headers = [] if kind is None else [(b"content-type", kind.encode("latin-1"))]
        request = Request("POST", ask.values["target"], headers, ask.body)
        secret = secret_of(request)
        if secret not in self._sessions.streams:
            return None
        exchange = Exchange(self._sessions, ask.values["address"])
        with trio.move_on_after(max(0, ask.values["until"] - time.monotonic())):
            await exchange.ready(secret)
        if time.monotonic() >= ask.values["until"]:
            # Nobody waits for this answer: commands that were given now would be given in secret.
            return {"status": 503, "text": "The stream was not ready in time: try again later.\n"}
        try:
            answer = await give_commands(request, exchange)
        except RequestRefusedError as error:
            return {"status": error.status, "text": f"{error.reason}\n"}
        return {"status": answer.status, "text": answer.body.decode()}


class LineQueue:
    """Lines for the audit logs, until they are handed over; bounded by `WORKER_LINES_BYTES_MAX`.

    `_size` is how much memory they take, about.
    """

    def __init__(self) -> None:
        self._lines: deque[control.AuditLine] = deque()
        self._size = 0
        self._lost = 0
        self._some = trio.Event()

    def take(self, line: Log) -> None:
        """Keep a line, if it is one that the server writes for its workers."""
        if line.stream not in FORWARDED:
            return
        kept = control.AuditLine(line.stream, line.name, line.values, line.address)
        size = size_of(kept)
        if self._size + size > WORKER_LINES_BYTES_MAX:
            self._lost += 1
            return
        self._lines.append(kept)
        self._size += size
        self._some.set()

    async def hand_over(self, channel: Channel) -> None:
        """Send the lines as they come, many in a message, until cancelled."""
        while True:
            await self._some.wait()
            self._some = trio.Event()
            await self.hand_over_rest(channel)

    async def hand_over_rest(self, channel: Channel) -> None:
        """Send all lines that wait."""
        while self._lines or self._lost:
            lines: list[control.AuditLine] = []
            before = self._size
            while self._lines and before - self._size < WORKER_LINES_AT_ONCE_BYTES:
                lines.append(self._lines.popleft())
                self._size -= size_of(lines[-1])
            lost, self._lost = self._lost, 0
            await channel.send(control.AuditLines(lines, lost))


def size_of(line: control.AuditLine) -> int:
    """Return how much memory a line takes, about."""
    return LINE_BYTES + sum(len(value) for value in line.values.values() if isinstance(value, str))


class Worker:
    """One worker: a server without monitor, disk and other members, that follows its server."""

    def __init__(self, begin: control.BeginWorker, config: Config, channel: Channel) -> None:
        self._channel = channel
        self._lines = LineQueue()
        counts = SharedCounts(begin.connections, begin.slots, begin.key)
        admission = SharedAdmission(
            counts,
            begin.slot,
            config.max_connections,
            descriptors_for_connections(),
            config.max_connections_per_address,
            -(-config.max_connect_rate // begin.slots),
        )
        name = worker_name(begin.server, begin.worker)
        cluster = worker_of(begin.server, name)
        broker = attrs.evolve(
            broker_settings(config), publisher_secret=begin.secret, audit_cache=False
        )
        none = [Vote() for _ in range(broker.groups)]
        votes = VoteRecord(name, "", begin.incarnation, False, none, {})
        node = Node(broker, random.SystemRandom(), cluster, votes)
        own = own_config(config)
        reported = otel_settings(config)

        # Called with requests, when `app` exists.
        def unready() -> str | None:
            return self.app.unready()

        router = Router(unready, unready)
        server = Server(
            server_settings(own),
            node,
            router,
            log,
            sockets=SocketFactory(listen=Inherited(begin.sockets).listen),
            admission=admission,
        )
        server.sessions.count_from(begin.first_session)
        self._streams = Streams(server.sessions, channel)
        router.add(SECRET_PATHS, {"POST": self._streams.give})
        peer = socket.socket(fileno=begin.peer)
        self.app = App(
            config=own,
            server=server,
            node=node,
            commands=OperatorCommands(server.engine),
            statistics=Statistics(server, node),
            orders=Orders(server.engine, lambda: self.app.config, lambda _: None),
            links=ServerLink(node, server.engine, begin.server, peer),
            authorizer=build_authorizer(config, server),
            telemetry=None if reported is None else connect_telemetry(reported, server, node, None),
            takers=(self._lines.take,),
        )
        self._sessions = SessionList(server, node)

    async def run(self) -> None:
        """Serve until the server ends the worker, or ends. Raises StartError."""
        async with trio.open_nursery() as nursery:
            put, orders = trio.open_memory_channel[control.Message](ORDERS_MAX)
            # From the beginning, for the server may end while the worker starts.
            nursery.start_soon(self._listen, put, nursery.cancel_scope)
            urls = await nursery.start(self.app.serve)
            spare_collector()
            await self._channel.send(control.WorkerStarted(urls))
            nursery.start_soon(self._lines.hand_over, self._channel)
            nursery.start_soon(self._report)
            async for message in orders:
                match message:
                    case control.DrainWorker():
                        nursery.start_soon(self._drain, nursery.cancel_scope)
                    case control.ReloadWorker(texts):
                        self._reload(texts)
                    case control.SetWorkerLogLevel(level):
                        self.app.log_with(LogLevel(level))
                    case control.Question():
                        nursery.start_soon(self._answer, message)

    async def _listen(
        self, put: trio.MemorySendChannel[control.Message], scope: trio.CancelScope
    ) -> None:
        """Pass on what the server says, then end the worker: the server has ended."""
        async for message in self._channel.messages():
            await put.send(message)
        scope.cancel()

    async def _report(self) -> None:
        """Send the statistics until cancelled."""
        while True:
            await self._channel.send(figures_of(self.app.statistics))
            await trio.sleep(STATISTICS_SAMPLE_MS / 1000)

    async def _drain(self, scope: trio.CancelScope) -> None:
        """Send the clients elsewhere, then end."""
        await self.app.drain()
        await self._lines.hand_over_rest(self._channel)
        await self._channel.send(figures_of(self.app.statistics))
        scope.cancel()

    def _reload(self, texts: dict[str, str]) -> None:
        """Take a configuration that the server has taken."""
        try:
            self.app.reload(own_config(config_of(texts)))
        except (ConfigError, StartError) as error:
            # The server used the same files a moment ago.
            log.error("reload refused", reason=str(error))
        set_level(self.app.config.log_level)

    async def _answer(self, ask: control.Question) -> None:
        """Answer a question of the server."""
        value: object = None
        match ask.what:
            case "sessions":
                value = await self._sessions.rows(SessionQuery(**ask.values))
            case "disconnect":
                value = await self._sessions.disconnect(ask.values["session"])
            case "stream":
                value = await self._streams.given(ask)
            case "subscribers":
                inspection, now = self.app.node.broker.inspection, self.app.server.engine.clock()
                views = {name: inspection.subject(name, now) for name in ask.values["subjects"]}
                value = {
                    name: 0 if view is None else view.subscribers for name, view in views.items()
                }
        await self._channel.answer(ask.number, value)


class Inherited:
    """The listening sockets that a worker inherited, for the addresses in their order."""

    def __init__(self, sockets: list[tuple[str, list[int]]]) -> None:
        self._left = list(sockets)

    def listen(self, address: Address) -> list[socket.socket]:
        """Return the sockets of the next address."""
        where, descriptors = self._left.pop(0)
        assert where == str(address)
        found = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        for sock in found:
            sock.set_inheritable(False)
            sock.setblocking(False)
        return found


def own_config(config: Config) -> Config:
    """Return what a worker does itself: its server has monitor, logs, audit logs and rights."""
    return attrs.evolve(
        config,
        workers=0,
        monitor=(),
        run_as_user=None,
        audit_access=False,
        audit_message=False,
        audit_cache=False,
        audit_stats=False,
        presence=False,
        presence_class="",
        journal=False,
    )


if __name__ == "__main__":
    main()
