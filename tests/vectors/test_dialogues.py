"""The dialogues with a node in process, through the codec but without a socket."""

import random
from collections import deque

import pytest

from mdserver.cluster.node import Node
from mdserver.codec.binary_form import BinaryCodec
from mdserver.codec.json_form import JSON
from mdserver.core.events import Delivery
from mdserver.core.inputs import Closed, Opened, Received, TimerDue, TimerKey
from mdserver.core.outputs import CancelTimer, Deliver, Disconnect, Output, Send, SetTimer
from mdserver.core.settings import BrokerSettings
from mdserver.errors import RemoteProtocolError
from tests.vectors.dialogue import Connection, cases, matches, play, substituted


class Direct:
    """A connection whose other end is a call."""

    def __init__(self, server: "InProcess", session: int, encoding: str) -> None:
        self.server = server
        self.session = session
        self.codec = JSON if encoding == "json" else server.binary
        self.waiting: deque[bytes | int] = deque()
        self.known: set[int] = set()

    async def send(self, payload: bytes) -> None:
        try:
            commands = self.codec.commands(payload)
        except RemoteProtocolError as error:
            self.waiting.append(error.code)
            self.server.step(Closed(self.session, error.reason))
        else:
            self.server.step(Received(self.session, commands))

    async def receive(self) -> bytes | int:
        patience = self.server.now + 10 * 10**9
        while not self.waiting:
            assert self.server.now < patience, "nothing comes"
            self.server.wait()
        return self.waiting.popleft()

    async def close(self, code: int) -> None:
        self.server.step(Closed(self.session, f"closed with {code}"))

    def deliver(self, delivery: Delivery) -> None:
        encoded = self.codec.delivery(delivery)
        if not self.codec.text and delivery.alias and delivery.alias not in self.known:
            self.known.add(delivery.alias)
            encoded = self.server.binary.alias_frame(delivery.alias) + encoded
        self.waiting.append(encoded)


class InProcess:
    """A node and the connections to it."""

    def __init__(self) -> None:
        self.node = Node(BrokerSettings(), random.Random(7))
        self.binary = BinaryCodec()
        self.sessions: dict[int, Direct] = {}
        self.timers: dict[TimerKey, int] = {}
        self.now = 1_800_000_000 * 10**9

    async def open(self, encoding: str) -> Connection:
        session = len(self.sessions) + 1
        self.sessions[session] = Direct(self, session, encoding)
        self.step(Opened(session, "127.0.0.1"))
        return self.sessions[session]

    def wait(self) -> None:
        """Let the time pass until the next timer; AssertionError where none is set."""
        assert self.timers, "nothing more will come"
        timer = min(self.timers, key=lambda key: self.timers[key])
        self.now = max(self.now, self.timers.pop(timer))
        self.step(TimerDue(timer))

    def step(self, happened: Opened | Received | Closed | TimerDue) -> None:
        self.now += 1_000_000
        for output in self.node.step(happened, self.now):
            self.carry_out(output)

    def carry_out(self, output: Output) -> None:
        if isinstance(output, Deliver):
            for session in output.sessions:
                self.sessions[session].deliver(output.delivery)
        elif isinstance(output, Send) and isinstance(output.event, Delivery):
            self.sessions[output.session].deliver(output.event)
        elif isinstance(output, Send):
            connection = self.sessions[output.session]
            connection.waiting.append(connection.codec.event(output.event))
        elif isinstance(output, SetTimer):
            self.timers[output.timer] = output.at
        elif isinstance(output, CancelTimer):
            self.timers.pop(output.timer, None)
        elif isinstance(output, Disconnect):
            self.sessions[output.session].waiting.append(output.code)


@pytest.mark.parametrize(("name", "encoding"), cases())
async def test_a_dialogue(name: str, encoding: str) -> None:
    assert await play(name, encoding, "r1", InProcess().open) > 0


def test_the_player_tells_values_apart() -> None:
    known: dict[str, object] = {}
    assert matches(1, 1, known)
    assert not matches(True, 1, known)
    assert not matches(None, "?a", known)
    assert matches("x", "?a", known)
    assert not matches("y", "?a", known)
    assert substituted({"/{run}": ["?a", "{x*3}"]}, "r", known) == {"/r": ["x", "xxx"]}


async def test_the_player_notices_another_answer() -> None:
    class Wrong(InProcess):
        def carry_out(self, output: Output) -> None:
            if not isinstance(output, Deliver):
                super().carry_out(output)

    with pytest.raises(AssertionError):
        await play(*cases()[6], "r1", Wrong().open)
