"""The lines of a worker for the audit logs of its server."""

import socket

import pytest
import trio

from mdserver.core.outputs import Log
from mdserver.server import worker
from mdserver.server.worker import LineQueue
from mdserver.server.workers import control
from mdserver.server.workers.control import Channel

MESSAGES = 3000


def line(number: int) -> Log:
    """A line of about 1.4 KB."""
    return Log("access", "connect", {"number": number, "token": "x" * 1000})


async def test_all_lines_that_wait_are_handed_over_before_the_end() -> None:
    one, two = socket.socketpair()
    here, there = Channel(one), Channel(two)
    queue = LineQueue()
    for number in range(MESSAGES):
        queue.take(line(number))
    queue.take(Log("stats", "of the server itself", {}))
    found: list[list[object]] = []

    async def read() -> None:
        async for message in there.messages():
            assert isinstance(message, control.AuditLines)
            assert not message.lost
            found.append([one.values["number"] for one in message.lines])

    try:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                await queue.hand_over_rest(here)
                here.close()
    finally:
        here.close()
        there.close()
    assert [number for numbers in found for number in numbers] == list(range(MESSAGES))
    assert len(found) > 1, "a message is bounded by its length"


async def test_what_waits_is_bounded_by_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "WORKER_LINES_BYTES_MAX", 10_000)
    one, two = socket.socketpair()
    here, there = Channel(one), Channel(two)
    queue = LineQueue()
    for number in range(10):
        queue.take(line(number))
    try:
        await queue.hand_over_rest(here)
        here.close()
        (message,) = [message async for message in there.messages()]
        assert isinstance(message, control.AuditLines)
        assert (len(message.lines), message.lost) == (7, 3)
    finally:
        here.close()
        there.close()
