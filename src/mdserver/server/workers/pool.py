"""Starts the workers of a server, and starts those again that end (see the package)."""

import heapq
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import itemgetter
from typing import Any

import attrs
import structlog
import trio
from attrs import define, evolve, field, frozen

from mdserver.config import PARAMETERS, Config, LogLevel
from mdserver.core.outputs import Log
from mdserver.errors import StartError
from mdserver.limits import (
    DRAIN_TIMEOUT_S,
    NS_PER_MS,
    WORKER_BACK_OFF_MAX_S,
    WORKER_BACK_OFF_MS,
    WORKER_END_S,
    WORKER_SESSIONS_MAX,
    WORKER_SILENT_S,
    WORKER_START_S,
    WORKER_STEADY_S,
)
from mdserver.server.engine import Engine
from mdserver.server.monitor.sessions import Row, SessionQuery
from mdserver.server.sockets import BACKLOG, SocketFactory, divided
from mdserver.server.tls import KeyStore, ListenerCertificate
from mdserver.server.workers import control
from mdserver.server.workers.control import Channel, ControlError
from mdserver.server.workers.figures import WorkerFigures, summed
from mdserver.server.workers.links import ENDED, LocalLinks, worker_name
from mdserver.server.workers.process import WorkerProcess, start_process
from mdserver.server.workers.shared_counts import SharedCounts, shared_memory

LISTENING_WITHOUT_WORKER_S = 1.0
"""How long connections wait at the sockets of a worker that ended; beyond that others take them."""
ORDERS_MAX = 1000  # of an operator, that workers have not been told yet
log = structlog.get_logger()


@define(eq=False)
class Slot:
    """The place of one worker: its number from 1 on, its listening sockets, and who is in it now.

    `sockets` has those of each address, in the order of the configuration. `own`: no other worker
    accepts at them. `starts` is how often a worker was started here; `heard_at` when it last gave
    a sign of life. `trouble` is the reason why no worker serves here now, None if one does.
    """

    number: int
    sockets: list[tuple[str, list[socket.socket]]] = field(factory=list)
    own: bool = True
    worker: WorkerProcess | None = None
    heard_at: float = 0.0
    trouble: str | None = "starting"
    failure: str = ""
    urls: list[str] = field(factory=list)


@frozen
class PoolSettings:
    """What all workers are given: `server` is the server's name in the peer protocol.

    `secret` is that of the publishers' keys. `write_log` takes lines of the workers' logs, None if
    they go to stderr.
    """

    count: int
    server: str
    secret: bytes
    write_log: Callable[[bytes], None] | None


class WorkerPool:
    """The workers of one server. `takers` are given their lines for audit logs.

    `links` carries out what the node says to them.
    """

    votes = None  # as `member.Links`

    def __init__(
        self, settings: PoolSettings, config: Config, engine: Engine, sockets: SocketFactory
    ) -> None:
        self.config = config
        self.peers = LocalLinks(engine)
        self.figures = WorkerFigures()
        self.takers: Sequence[Callable[[Log], None]] = ()
        self.slots = [Slot(number) for number in range(1, settings.count + 1)]
        # Workers read the files themselves. Mistakes in them are found here, once for all workers.
        stores = dict(config.key_stores)
        files = [stores.get(address, config.key_store) for address in config.listen_encrypted]
        self.identities = [
            ListenerCertificate(KeyStore(*one), config.cipher_list) for one in dict.fromkeys(files)
        ]
        self._settings = settings
        self._sockets = sockets
        self._memory = shared_memory(settings.count)
        self._key = secrets.token_bytes(16)
        self._counts = SharedCounts(self._memory, settings.count, self._key)
        self._started = 0
        self._incarnation = time.time_ns() // NS_PER_MS
        self._draining = trio.Event()
        self._orders, self._ordered = trio.open_memory_channel[control.Message](ORDERS_MAX)

    # State

    @property
    def urls(self) -> list[str]:
        """The URLs at which all workers accept connections."""
        return self.slots[0].urls

    @property
    def unready(self) -> str | None:
        """Why clients should not be sent here now, None if they may be: some worker serves."""
        if all(slot.trouble is not None for slot in self.slots):
            return f"no worker serves: {self.slots[0].trouble}"
        return None

    @property
    def trouble(self) -> str | None:
        """Which workers do not serve, in one clause; None if all do."""
        found = [
            f"worker {slot.number} does not serve: {slot.trouble}"
            for slot in self.slots
            if slot.trouble is not None
        ]
        return "; ".join(found) or None

    # Life

    def bind(self) -> None:
        """Listen at all addresses, for all workers. Raises StartError."""
        try:
            for address in (*self.config.listen, *self.config.listen_encrypted):
                for slot in self.slots:
                    slot.sockets.append((str(address), []))
                for sock in self._sockets.listen(address):
                    if sock in self._sockets.held:
                        each = [sock] * len(self.slots)
                        for slot in self.slots:
                            slot.own = False
                    else:
                        each = divided(sock, len(self.slots))
                    for slot, one in zip(self.slots, each, strict=True):
                        slot.sockets[-1][1].append(one)
        except BaseException:
            self._close_sockets()
            raise

    def _close_sockets(self) -> None:
        for slot in self.slots:
            for _, socks in slot.sockets:
                for sock in socks:
                    sock.close()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the workers until cancelled; started once all of them serve.

        Call `bind` before. Raises StartError if one cannot be started the first time.
        """
        try:
            async with trio.open_nursery() as nursery:
                async with trio.open_nursery() as starting:
                    for slot in self.slots:
                        starting.start_soon(nursery.start, self._keep, slot)
                task_status.started()
                nursery.start_soon(self._watch_for_silence)
                async for order in self._ordered:
                    await self.tell(order)
        finally:
            self._close_sockets()
            self._counts.close()
            os.close(self._memory)

    async def drain(self) -> None:
        """Have all workers send their clients elsewhere; return when all have ended."""
        self._draining.set()
        self._close_sockets()
        await self.tell(control.DrainWorker())
        with trio.move_on_after(DRAIN_TIMEOUT_S):
            for slot in self.slots:
                if slot.worker is not None:
                    await slot.worker.ended.wait()

    async def _keep(self, slot: Slot, *, task_status: trio.TaskStatus[None]) -> None:
        """Have a worker in a slot until the server drains. Raises StartError at the first start."""
        first, back_off = True, WORKER_BACK_OFF_MS / 1000
        while not self._draining.is_set():
            began = trio.current_time()
            end = await self._run_one(slot, task_status.started if first else do_nothing)
            if self._draining.is_set():
                return
            slot.trouble = slot.failure or f"it ended: {end}"
            if first and not slot.urls:
                failure = f"worker {slot.number} ended while it started: {end}"
                raise StartError(slot.failure or failure)
            first = False
            if trio.current_time() - began >= WORKER_STEADY_S:
                back_off = WORKER_BACK_OFF_MS / 1000
            log.error(
                "worker ended",
                worker=slot.number,
                reason=slot.trouble,
                restart_in_s=round(back_off, 3),
            )
            with self._closed_to_clients(slot, back_off):
                await trio.sleep(back_off)
            back_off = min(2 * back_off, WORKER_BACK_OFF_MAX_S)

    @contextmanager
    def _closed_to_clients(self, slot: Slot, pause: float) -> Iterator[None]:
        """Leave connections to the other workers during a long pause."""
        closed: list[socket.socket] = []
        if pause > LISTENING_WITHOUT_WORKER_S and slot.own and len(self.slots) > 1:
            closed = [sock for _, socks in slot.sockets for sock in socks]
        for sock in closed:
            # It stays bound, so this needs no rights; only the kernel chooses it no more.
            sock.shutdown(socket.SHUT_RDWR)
        try:
            yield
        finally:
            if not self._draining.is_set():
                for sock in closed:
                    sock.listen(BACKLOG)

    async def _run_one(self, slot: Slot, started: Callable[[], None]) -> str:
        """Run one worker in a slot until its end; return how it ended.

        `started` is called when it serves.
        """
        slot.trouble, slot.failure = "it starts", ""
        inherited = [sock.fileno() for _, socks in slot.sockets for sock in socks]
        worker = await start_process([*dict.fromkeys(inherited), self._memory])
        slot.worker, slot.heard_at = worker, trio.current_time()
        decided = trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(worker.pump_log, self._settings.write_log or write_stderr)
                nursery.start_soon(self._link, slot, worker)
                nursery.start_soon(self._listen, slot, worker, started, decided)
                await say(worker.channel, self._begin(slot, worker))
                with trio.move_on_after(WORKER_START_S) as starting:
                    await decided.wait()
                if starting.cancelled_caught:
                    slot.failure = f"worker {slot.number} did not start in {WORKER_START_S} s"
                    worker.kill()
                await worker.watch()
                # The channels end with the process, unless it left a process of its own behind.
                nursery.cancel_scope.deadline = trio.current_time() + WORKER_END_S
        finally:
            await worker.end()
            slot.worker = None
            self._counts.clear(slot.number - 1)
            self.figures.ended(slot.number)
        return worker.describe_end()

    def _begin(self, slot: Slot, worker: WorkerProcess) -> control.BeginWorker:
        """Return the first message to a worker."""
        self._incarnation += 1
        self._started += 1
        return control.BeginWorker(
            worker=slot.number,
            slot=slot.number - 1,
            slots=len(self.slots),
            incarnation=self._incarnation,
            first_session=1 + (self._started - 1) * WORKER_SESSIONS_MAX,
            server=self._settings.server,
            config=texts_of(self.config),
            path=sys.path,
            secret=self._settings.secret,
            sockets=[(where, [sock.fileno() for sock in socks]) for where, socks in slot.sockets],
            peer=worker.descriptors.peer,
            log=worker.descriptors.log,
            connections=self._memory,
            key=self._key,
        )

    async def _link(self, slot: Slot, worker: WorkerProcess) -> None:
        """Run the peer link; a worker whose link ends before it does is replaced."""
        name = worker_name(self._settings.server, slot.number)
        reason = await self.peers.run(name, worker.peer)
        if reason != ENDED:
            slot.failure = slot.failure or f"its link broke: {reason}"
            log.error("worker's link broken", worker=slot.number, reason=reason)
        worker.kill()

    async def _listen(
        self,
        slot: Slot,
        worker: WorkerProcess,
        started: Callable[[], None],
        decided: trio.Event,
    ) -> None:
        """Take what a worker says, until its end."""
        try:
            async for message in worker.channel.messages():
                slot.heard_at = trio.current_time()
                match message:
                    case control.WorkerStarted(urls):
                        slot.urls, slot.trouble = urls, None
                        decided.set()
                        started()
                    case control.WorkerFailed(reason):
                        slot.failure = reason
                    case control.WorkerReport():
                        self.figures.take(slot.number, message)
                    case control.AuditLines(lines, lost):
                        self._write(slot, lines, lost)
                    case control.Question(number, what, values, body):
                        answer = await self._answer(slot, what, values, body)
                        await say(worker.channel, control.QuestionAnswer(number, answer))
        except ControlError as error:
            slot.failure = str(error)
            worker.kill()
        finally:
            decided.set()

    def _write(self, slot: Slot, lines: Sequence[control.AuditLine], lost: int) -> None:
        """Write a worker's lines of audit logs."""
        if lost:
            log.warning("worker's lines lost", worker=slot.number, count=lost)
        for line in lines:
            taken = Log(line.stream, line.name, line.values, line.address)
            for take in self.takers:
                take(taken)

    async def _watch_for_silence(self) -> None:
        """End workers that give no sign of life, until cancelled; others take their places."""
        while True:
            await trio.sleep(WORKER_SILENT_S / 10)
            for slot in self.slots:
                silent = trio.current_time() - slot.heard_at
                if slot.worker is not None and slot.trouble is None and silent > WORKER_SILENT_S:
                    slot.failure = f"it gave no sign of life for {WORKER_SILENT_S} s"
                    slot.worker.kill()

    # What the server says to all workers

    def reload(self, config: Config) -> None:
        """Give all workers, also those that start later, a new configuration."""
        self.config = config
        self._orders.send_nowait(control.ReloadWorker(texts_of(config)))

    def log_with(self, level: LogLevel) -> None:
        """Set the level of the workers' logs."""
        self._orders.send_nowait(control.SetWorkerLogLevel(level.value))

    async def tell(self, message: control.Message) -> None:
        """Send a message to all workers."""
        for slot in self.slots:
            if slot.worker is not None:
                await say(slot.worker.channel, message)

    async def ask_each(
        self, what: str, values: dict[str, Any], body: bytes = b"", but: Slot | None = None
    ) -> list[Any]:
        """Ask all workers at the same time; return their answers, without those of silent ones."""
        answers: list[Any] = []

        async def ask(channel: Channel) -> None:
            answer = await channel.ask(what, values, body)
            if answer is not None:
                answers.append(answer)

        async with trio.open_nursery() as nursery:
            for slot in self.slots:
                if slot.worker is not None and slot.trouble is None and slot is not but:
                    nursery.start_soon(ask, slot.worker.channel)
        return answers

    async def rows(self, query: SessionQuery) -> list[Row]:
        """Return the sessions of all workers, in order (`monitor.sessions`)."""
        found = await self.ask_each("sessions", attrs.asdict(query))
        every = [row for rows in found for row in rows]
        return heapq.nlargest(query.limit, every, key=itemgetter(query.sort))

    async def disconnect(self, name: str) -> bool:
        """End a session; return whether a worker had one of this name."""
        return any(await self.ask_each("disconnect", {"session": name}))

    async def subscribers(self, subjects: list[str]) -> dict[str, int]:
        """Return how many subscribers each subject has at all workers."""
        return summed(await self.ask_each("subscribers", {"subjects": subjects}))

    async def _answer(self, slot: Slot, what: str, values: dict[str, Any], body: bytes) -> Any:
        """Answer a worker: it asks for a stream that may be at another worker."""
        answers = await self.ask_each(what, values, body, but=slot)
        return next((answer for answer in answers if answer), None)


def texts_of(config: Config) -> dict[str, str]:
    """Return each parameter with its text, secrets included."""
    return {
        name: text
        for row in PARAMETERS.values()
        for name, text in evolve(row, secret=False).shown(getattr(config, row.attribute)).items()
    }


async def say(channel: Channel, message: control.Message) -> None:
    """Send a message to a worker, which may have ended meanwhile."""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await channel.send(message)


def write_stderr(lines: bytes) -> None:
    """Write lines of a worker's log to stderr: this server has no writer of a log."""
    sys.stderr.buffer.write(lines)
    sys.stderr.buffer.flush()


def do_nothing() -> None:
    """Do nothing: only the first start of a worker is awaited."""
