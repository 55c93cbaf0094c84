"""What the server gives its workers."""

import json
import os
import random
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import pytest
import trio
import trio.testing

from mdserver.cluster.node import Node
from mdserver.cluster.settings import alone, with_workers
from mdserver.config import LogLevel, load
from mdserver.core.settings import BrokerSettings
from mdserver.errors import StartError, leaves
from mdserver.server.clock import process_clock
from mdserver.server.engine import Engine, OutputRoutes, ignore
from mdserver.server.peers.doorstep import Complaints
from mdserver.server.peers.table import LinkTable
from mdserver.server.sockets import TCP, SocketFactory
from mdserver.server.worker import config_of
from mdserver.server.workers import control, pool, process
from mdserver.server.workers.control import Channel
from mdserver.server.workers.pool import (
    PoolSettings,
    WorkerPool,
    do_nothing,
    texts_of,
    write_stderr,
)
from mdserver.server.workers.process import Descriptors, WorkerProcess
from tests.server.peers.members import Complaints as Log


def new_pool(
    count: int = 2,
    write_log: Callable[[bytes], None] | None = None,
    sockets: SocketFactory = TCP,
) -> WorkerPool:
    node = Node(BrokerSettings(groups=4), random.Random(1), with_workers(alone("server")))
    settings = PoolSettings(count=count, server="server", secret=bytes(32), write_log=write_log)
    config = load(overrides=["Listen=127.0.0.1:0"]).config
    engine = Engine(node, process_clock())
    workers = WorkerPool(settings, config, engine, sockets, LinkTable(Complaints(Log())))
    engine.routes = OutputRoutes(
        send_peer=workers.peers.send,
        close_peer=workers.peers.close,
        peer_discovered=workers.peers.discovered,
        trace=ignore,
        after_dispatch=(workers.peers.flush,),
    )
    return workers


class NoProcess:
    """Stands for a process, whose side of the channel is in the test; notes that it was killed."""

    def __init__(self) -> None:
        self.killed = False

    def kill(self) -> None:
        self.killed = True


@asynccontextmanager
async def listening(count: int) -> AsyncIterator[tuple[WorkerPool, list[Channel]]]:
    """A pool that listens to workers, and the workers' sides of their channels."""
    workers = new_pool(count)
    ends: list[Channel] = []
    try:
        async with trio.open_nursery() as nursery:
            for slot in workers.slots:
                one, two = socket.socketpair()
                ends.append(Channel(two))
                process = cast("trio.Process", NoProcess())
                slot.worker = WorkerProcess(process, Channel(one), one, Descriptors(0, 0, 0), 0)
                slot.trouble = None
                nursery.start_soon(workers._listen, slot, slot.worker, do_nothing, trio.Event())
            yield workers, ends
            nursery.cancel_scope.cancel()
    finally:
        for end in ends:
            end.close()
        for slot in workers.slots:
            if slot.worker is not None:
                slot.worker.channel.close()
        workers.free()


async def answer(end: Channel) -> None:
    """Answer all questions."""
    async for message in end.messages():
        if isinstance(message, control.Question):
            await end.send(control.QuestionAnswer(message.number, {"status": 202}))


async def read(end: Channel) -> None:
    """Take answers, and answer nothing."""
    async for _ in end.messages():
        pass


async def test_two_workers_may_ask_each_other_at_the_same_time() -> None:
    answers: list[object] = []
    async with listening(2) as (_, ends), trio.open_nursery() as nursery:

        async def ask(end: Channel) -> None:
            answers.append(await end.ask("stream", {}))

        async with trio.open_nursery() as asking:
            for end in ends:
                nursery.start_soon(answer, end)
                asking.start_soon(ask, end)
        nursery.cancel_scope.cancel()
    assert answers == [{"status": 202}] * 2


async def test_a_silent_worker_does_not_hold_up_the_answer_of_another() -> None:
    async with listening(3) as (_, ends), trio.open_nursery() as nursery:
        nursery.start_soon(read, ends[0])
        nursery.start_soon(answer, ends[1])
        nursery.start_soon(read, ends[2])
        assert await ends[0].ask("stream", {}) == {"status": 202}
        nursery.cancel_scope.cancel()


async def test_a_worker_may_have_so_many_open_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "WORKER_QUESTIONS_MAX", 1)
    async with listening(2) as (_, ends), trio.open_nursery() as nursery:
        for end in ends:
            nursery.start_soon(read, end)
        nursery.start_soon(ends[0].ask, "stream", {})
        await trio.testing.wait_all_tasks_blocked()
        refused = await ends[0].ask("stream", {})
        assert refused["status"] == 503
        assert "Too many requests" in refused["text"]
        nursery.cancel_scope.cancel()


async def test_a_worker_that_takes_no_message_is_ended_and_the_others_are_told(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with listening(2) as (workers, ends):
        stalled, sound = (slot.worker for slot in workers.slots)
        assert stalled is not None
        assert sound is not None
        with trio.move_on_after(0.1):
            await stalled.channel.send(control.Question(1, "n", {}, bytes(1_000_000)))
        await workers.tell(control.DrainWorker())
        async with aclosing(ends[1].messages()) as messages:
            assert await anext(messages) == control.DrainWorker()
        assert [one.process.killed for one in (stalled, sound)] == [True, False]  # type: ignore[attr-defined]
        assert "took no message" in workers.slots[0].failure


async def test_a_process_that_cannot_be_made_ends_the_start_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "COMMAND", ("/nonexistent/python",))
    workers = new_pool()
    workers.bind()
    with trio.fail_after(60), pytest.raises(ExceptionGroup) as failed:
        await workers.run()
    reasons = {str(error) for error in leaves(failed.value)}
    assert reasons <= {
        f"worker {number} cannot be started: No such file or directory" for number in (1, 2)
    }


SAYS_WHAT_IT_IS_TOLD = """
import json, os, socket, struct, sys
sock = socket.socket(fileno=int(sys.argv[1]))
def message():
    (length,) = struct.unpack("!I", sock.recv(4, socket.MSG_WAITALL))
    return json.loads(sock.recv(length, socket.MSG_WAITALL))
begin = message()
os.write(begin["log"], json.dumps(message()).encode() + b"\\n")
sock.recv(1)
"""


async def test_a_level_of_the_log_reaches_workers_that_start_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-c", SAYS_WHAT_IT_IS_TOLD))
    lines: list[bytes] = []
    said = trio.Event()

    def write(line: bytes) -> None:
        lines.append(line)
        said.set()

    workers = new_pool(1, write)
    workers.bind()
    for level in [LogLevel.INFO] * 2000 + [LogLevel.DEBUG]:
        workers.log_with(level)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(workers.run)
        with trio.fail_after(60):
            await said.wait()
        nursery.cancel_scope.cancel()
    assert json.loads(lines[0])["level"] == "debug"


SAYS_IT_STARTED_AND_ENDS = """
import json, socket, struct, sys
sock = socket.socket(fileno=int(sys.argv[1]))
(length,) = struct.unpack("!I", sock.recv(4, socket.MSG_WAITALL))
sock.recv(length, socket.MSG_WAITALL)
data = json.dumps({"type": "WorkerStarted", "urls": ["http://here"]}).encode()
sock.sendall(struct.pack("!I", len(data)) + data)
"""


async def test_a_worker_that_is_made_while_a_drain_begins_is_ended_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-c", SAYS_IT_STARTED_AND_ENDS))
    made: list[WorkerProcess] = []
    workers = new_pool(1)
    workers.bind()
    two = trio.Event()
    async with trio.open_nursery() as nursery:

        async def start(inherited: Sequence[int]) -> WorkerProcess:
            made.append(await process.start_process(inherited))
            if len(made) == 2:
                await workers.drain()
                two.set()
            return made[-1]

        monkeypatch.setattr(pool, "start_process", start)
        with trio.fail_after(60):
            await nursery.start(workers.run)
            await two.wait()
            await made[1].ended.wait()
        nursery.cancel_scope.cancel()
    assert made[1].describe_end() == "signal SIGKILL"


def test_nobody_who_reads_stderr_is_no_reason_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stderr = open(writing, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - its close fails
    monkeypatch.setattr(sys, "stderr", stderr)
    write_stderr(b"a line\n")
    with suppress(BrokenPipeError):
        stderr.close()


def test_a_listener_that_fails_leaves_no_socket_open(monkeypatch: pytest.MonkeyPatch) -> None:
    two = [socket.socket() for _ in range(2)]

    def divided(sock: socket.socket, _count: int) -> list[socket.socket]:
        sock.close()
        raise StartError("no more sockets")

    monkeypatch.setattr(pool, "divided", divided)
    workers = new_pool(sockets=SocketFactory(listen=lambda _: two))
    with pytest.raises(StartError):
        workers.bind()
    assert [sock.fileno() for sock in two] == [-1, -1]
    workers.free()


def test_a_worker_gets_the_very_configuration_of_its_server(tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text(
        "Listen = 127.0.0.1:8801, [::1]:8802\n"
        "ListenEncrypted = 127.0.0.1:8443\n"
        "KeyStore.127.0.0.1:8443 = certificates/one.pem\n"
        "MonitorPassword = a secret, with = and #\n"
        "KeepAliveInterval = 12.345 s\n"
        "MaxMessageSize = 70001 B\n"
        "ProxyAddressList = 10.0.0.0/8, fd00::/8\n"
        "Workers = auto\n",
        encoding="utf-8",
    )
    config = load(file).config
    texts = texts_of(config)
    assert texts["MonitorPassword"] == "a secret, with = and #"
    assert config_of(texts) == config
    assert config_of(texts_of(load().config)) == load().config
