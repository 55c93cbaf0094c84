"""Starts the workers of a server, and starts those again that end (see the package)."""

import heapq
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from operator import itemgetter
from typing import Any

import attrs
import structlog
import trio
from attrs import define, evolve, field, frozen

from mdserver.codec.http import RequestRefusedError
from mdserver.config import PARAMETERS, Config, LogLevel
from mdserver.core.outputs import Log
from mdserver.errors import StartError
from mdserver.limits import (
    DRAIN_TIMEOUT_S,
    NS_PER_MS,
    WORKER_ASK_TIMEOUT_S,
    WORKER_BACK_OFF_MAX_S,
    WORKER_BACK_OFF_MS,
    WORKER_END_S,
    WORKER_QUESTIONS_MAX,
    WORKER_SESSIONS_MAX,
    WORKER_SILENT_S,
    WORKER_START_S,
    WORKER_STEADY_S,
)
from mdserver.server.engine import Engine
from mdserver.server.monitor.sessions import Row, SessionQuery
from mdserver.server.peers.table import LinkTable
from mdserver.server.sockets import BACKLOG, SocketFactory, divided
from mdserver.server.tls import KeyStore, ListenerCertificate
from mdserver.server.workers import control
from mdserver.server.workers.control import AskRefusedError, Channel, ControlError
from mdserver.server.workers.figures import WorkerFigures, summed
from mdserver.server.workers.links import ENDED, LocalLinks, worker_name
from mdserver.server.workers.presence import WorkerPresence
from mdserver.server.workers.process import WorkerProcess, start_process
from mdserver.server.workers.shared_counts import SharedCounts, shared_memory

LISTENING_WITHOUT_WORKER_S = 1.0
"""How long connections wait at the sockets of a worker that ended; beyond that others take them."""
BUSY = {"status": 503, "text": "Too many requests wait for other workers: try again later.\n"}
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

    `peers` has the links to them, and to other members. `_level` is the level of the log that an
    operator has set since the last reload, None without one. `_orders` has what all workers are
    still to be told, the last one of each kind.
    """

    def __init__(
        self,
        settings: PoolSettings,
        config: Config,
        engine: Engine,
        sockets: SocketFactory,
        table: LinkTable,
    ) -> None:
        self.config = config
        self.peers = table
        self._links = LocalLinks(engine, table, to_workers=True)
        self.figures = WorkerFigures()
        self._presence = WorkerPresence()
        self._clock = engine.clock
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
        self._level: LogLevel | None = None
        self._orders: dict[type, control.Message] = {}
        self._ordered = trio.Event()

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
                with ExitStack() as rest:
                    found = self._sockets.listen(address)
                    for sock in found:
                        rest.callback(sock.close)
                    for sock in found:
                        self._share(sock)
                    rest.pop_all()
        except BaseException:
            self._close_sockets()
            raise

    def _share(self, sock: socket.socket) -> None:
        """Give each slot its part of a listening socket. Raises StartError."""
        if sock in self._sockets.held:
            each = [sock] * len(self.slots)
            for slot in self.slots:
                slot.own = False
        else:
            each = divided(sock, len(self.slots))
        for slot, one in zip(self.slots, each, strict=True):
            slot.sockets[-1][1].append(one)

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
                while True:
                    await self._ordered.wait()
                    self._ordered, orders = trio.Event(), list(self._orders.values())
                    self._orders.clear()
                    for order in orders:
                        await self.tell(order)
        finally:
            self._close_sockets()
            self.free()

    def free(self) -> None:
        """Give back the memory that the workers share; `run` does so at its end."""
        self._counts.close()
        os.close(self._memory)

    async def drain(self) -> None:
        """Have all workers send their clients elsewhere; return when all have ended."""
        self._draining.set()
        self._close_sockets()
        # Those that do not drain in time are ended with the server.
        with trio.move_on_after(DRAIN_TIMEOUT_S + WORKER_END_S):
            await self.tell(control.DrainWorker())
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
            # A worker that is killed may be noticed by its links first, so both are said.
            slot.trouble = "; ".join(filter(None, (slot.failure, f"it ended: {end}")))
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
        try:
            worker = await start_process([*dict.fromkeys(inherited), self._memory])
        except OSError as error:
            slot.failure = f"worker {slot.number} cannot be started: {error.strerror or error}"
            return slot.failure
        slot.worker, slot.heard_at = worker, trio.current_time()
        decided = trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(worker.pump_log, self._settings.write_log or write_stderr)
                nursery.start_soon(self._link, slot, worker)
                nursery.start_soon(self._listen, slot, worker, started, decided)
                if self._draining.is_set():
                    worker.kill()  # the drain began while the process was made, and did not see it
                with trio.move_on_after(WORKER_START_S) as starting:
                    await say(worker.channel, self._begin(slot, worker))
                    if self._level is not None:
                        await say(worker.channel, control.SetWorkerLogLevel(self._level.value))
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
            for line in self._presence.ended(slot.number, self._clock()):
                self._hand_to_takers(line)
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
        reason = await self._links.run(name, worker.peer)
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
        async with trio.open_nursery() as answering:
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
                        case control.Question():
                            # In tasks: two workers may ask each other at the same time.
                            if len(answering.child_tasks) < WORKER_QUESTIONS_MAX:
                                answering.start_soon(self._answer, slot, worker, message)
                            else:
                                await reply(worker, message, BUSY)
            except ControlError as error:
                slot.failure = str(error)
                worker.kill()
            finally:
                decided.set()
                answering.cancel_scope.cancel()

    def _write(self, slot: Slot, lines: Sequence[control.AuditLine], lost: int) -> None:
        """Write a worker's lines of audit logs."""
        if lost:
            log.warning("worker's lines lost", worker=slot.number, count=lost)
        for line in lines:
            taken = Log(line.stream, line.name, line.values, line.address)
            self._presence.take(slot.number, taken)
            self._hand_to_takers(taken)

    def _hand_to_takers(self, line: Log) -> None:
        for take in self.takers:
            take(line)

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
        self.config, self._level = config, None
        self._order(control.ReloadWorker(texts_of(config)))

    def log_with(self, level: LogLevel) -> None:
        """Set the level of all workers' logs, also of those that start later."""
        self._level = level
        self._order(control.SetWorkerLogLevel(level.value))

    def _order(self, order: control.Message) -> None:
        """Have all workers told soon; an earlier order of the kind counts no more."""
        self._orders.pop(type(order), None)
        self._orders[type(order)] = order
        self._ordered.set()

    async def tell(self, message: control.Message) -> None:
        """Send a message to all workers; one that does not take it in time is replaced."""

        async def tell_one(slot: Slot, worker: WorkerProcess) -> None:
            with trio.move_on_after(WORKER_ASK_TIMEOUT_S) as telling:
                await say(worker.channel, message)
            if telling.cancelled_caught and slot.worker is worker:
                slot.failure = f"it took no message for {WORKER_ASK_TIMEOUT_S} s"
                worker.kill()

        async with trio.open_nursery() as nursery:
            for slot in self.slots:
                if slot.worker is not None:
                    nursery.start_soon(tell_one, slot, slot.worker)

    def _channels(self, but: Slot | None = None) -> list[Channel]:
        """Return the channels to all workers that serve, without the one in `but`."""
        return [
            slot.worker.channel
            for slot in self.slots
            if slot.worker is not None and slot.trouble is None and slot is not but
        ]

    async def ask_each(self, what: str, values: dict[str, Any]) -> list[Any]:
        """Ask all workers at the same time; return their answers, without those of silent ones.

        Raises RequestRefusedError if an answer is too large.
        """
        answers: list[Any] = []
        refused: list[str] = []
        async with trio.open_nursery() as nursery:
            for channel in self._channels():
                nursery.start_soon(ask, channel, answers.append, refused.append, what, values)
        if refused:
            raise RequestRefusedError(409, refused[0])
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

    async def _answer(self, slot: Slot, worker: WorkerProcess, asked: control.Question) -> None:
        """Answer a worker: it asks for a stream that may be at another worker."""
        answers: list[Any] = []
        async with trio.open_nursery() as nursery:

            def take(answer: Any) -> None:
                if answer:
                    answers.append(answer)
                    nursery.cancel_scope.cancel()  # only one worker can have it

            for channel in self._channels(but=slot):
                question = asked.what, asked.values, asked.body
                nursery.start_soon(ask, channel, take, do_nothing, *question)
        await reply(worker, asked, next(iter(answers), None))


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


async def ask(
    channel: Channel,
    take: Callable[[Any], None],
    refused: Callable[[str], None],
    what: str,
    values: dict[str, Any],
    body: bytes = b"",
) -> None:
    """Ask a worker and call `take` with the answer, if there is one in time.

    `refused` is called with the reason if there can be none.
    """
    try:
        answer = await channel.ask(what, values, body)
    except AskRefusedError as error:
        refused(str(error))
        return
    if answer is not None:
        take(answer)


async def reply(worker: WorkerProcess, asked: control.Question, answer: Any) -> None:
    """Send the answer to a question; a worker that does not take it in time has given up."""
    with trio.move_on_after(WORKER_ASK_TIMEOUT_S):
        await say(worker.channel, control.QuestionAnswer(asked.number, answer))


def write_stderr(lines: bytes) -> None:
    """Write lines of a worker's log to stderr: this server has no writer of a log."""
    with suppress(OSError):  # nobody may read there any more
        sys.stderr.buffer.write(lines)
        sys.stderr.buffer.flush()


def do_nothing(*_: object) -> None:
    """Do nothing: nobody waits for it."""
