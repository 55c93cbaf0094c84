"""A worker's process as the server sees it."""

import os
import signal
import sys
from pathlib import Path

import pytest
import trio

from mdserver.config import load
from mdserver.config.values import Address
from mdserver.server.sockets import listen
from mdserver.server.workers import control, process
from mdserver.server.workers.pool import texts_of
from mdserver.server.workers.process import start_process
from mdserver.server.workers.shared_counts import shared_memory


def open_descriptors() -> int:
    """How many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_process_whose_server_says_nothing_ends_and_says_how() -> None:
    worker = await start_process([])
    worker.channel.close()
    with trio.fail_after(60):
        await worker.watch()
    worker.peer.close()
    assert worker.describe_end() == "exit status 1"
    await worker.end()
    assert worker.ended.is_set()
    lines: list[bytes] = []
    with trio.fail_after(60):
        await worker.pump_log(lines.append)
    assert lines == []


async def test_a_killed_process_is_told_by_its_signal() -> None:
    worker = await start_process([])
    worker.kill()
    with trio.fail_after(60):
        await worker.watch()
        await worker.pump_log(lambda _: None)
    await worker.end()
    worker.peer.close()
    assert worker.describe_end() == "signal SIGKILL"


async def test_a_signal_without_a_name_is_told_by_its_number() -> None:
    worker = await start_process([])
    os.kill(worker.pid, signal.SIGRTMIN + 1)
    with trio.fail_after(60):
        await worker.watch()
        await worker.pump_log(lambda _: None)
    await worker.end()
    worker.peer.close()
    assert worker.describe_end() == f"signal {signal.SIGRTMIN + 1}"


async def test_a_process_that_cannot_be_started_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "COMMAND", ("/nonexistent/python",))
    with pytest.raises(FileNotFoundError):
        await start_process([])
    before = open_descriptors()
    with pytest.raises(FileNotFoundError):
        await start_process([])
    assert open_descriptors() == before


@pytest.mark.slow
async def test_a_worker_whose_server_ends_while_it_starts_ends_as_well() -> None:
    memory = shared_memory(1)
    sockets = listen(Address("127.0.0.1", 0))
    descriptors = [sock.fileno() for sock in sockets]
    worker = await start_process([memory, *descriptors])
    try:
        await worker.channel.send(
            control.BeginWorker(
                worker=1,
                slot=0,
                slots=1,
                incarnation=1,
                first_session=1,
                server="server",
                config=texts_of(load(overrides=["Listen=127.0.0.1:0", "Workers=2"]).config),
                path=sys.path,
                secret=bytes(32),
                sockets=[("127.0.0.1:0", descriptors)],
                peer=worker.descriptors.peer,
                log=worker.descriptors.log,
                connections=memory,
                key=bytes(16),
            )
        )
        worker.channel.close()
        worker.peer.close()
        with trio.fail_after(60):
            await worker.watch()
            await worker.pump_log(lambda _: None)
    finally:
        worker.kill()
        await worker.end()
        os.close(memory)
        for sock in sockets:
            sock.close()
