"""Commands for a stream that come to another worker than the one that has it."""

import socket
import time

import trio
import trio.testing

from mdserver.core.outputs import Authorize
from mdserver.server.worker import Streams
from mdserver.server.workers import control
from mdserver.server.workers.control import Channel
from tests.server.serving import serving

SESSION = 7


def question(until: float) -> control.Question:
    values = {"target": "/stream/secret", "type": None, "address": "127.0.0.1", "until": until}
    return control.Question(1, "stream", values, b'{"op":"ping"}\n')


async def test_commands_are_not_given_when_nobody_waits_for_the_answer() -> None:
    one, two = socket.socketpair()
    channel = Channel(one)
    try:
        async with serving() as server:
            sessions = server.sessions
            streams = Streams(sessions, channel)
            assert await streams.given(question(time.monotonic() + 60)) is None
            sessions.streams["secret"] = SESSION
            late = await streams.given(question(time.monotonic() - 1))
            assert late is not None
            assert (late["status"], "not ready in time" in late["text"]) == (503, True)
            in_time = await streams.given(question(time.monotonic() + 60))
            assert in_time == {"status": 202, "text": ""}
            # An authorizer that does not answer holds commands up.
            sessions.authorizations.through(lambda _: None)(Authorize(1, SESSION, "subscribe"))
            with trio.fail_after(60):
                held_up = await streams.given(question(time.monotonic() + 0.1))
            assert held_up == late
    finally:
        channel.close()
        two.close()
