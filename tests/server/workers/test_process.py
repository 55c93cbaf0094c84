"""A worker's process as the server sees it."""

import os
import signal
from pathlib import Path

import pytest
import trio

from mdserver.server.workers import process
from mdserver.server.workers.process import start_process


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
