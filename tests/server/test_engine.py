"""The engine between a node and its sessions; what reaches sockets is in the other files."""

from typing import Any

import pytest

from mdserver.core.commands import Ping
from mdserver.core.events import AnyEvent, Connected, Delivery
from mdserver.core.inputs import Closed, Opened, Received, TimerDue
from mdserver.core.message import Entry, MessageType, Publication
from mdserver.core.outputs import (
    Authorize,
    CancelTimer,
    Committed,
    Deliver,
    Disconnect,
    Log,
    Output,
    Send,
    SetTimer,
)
from mdserver.server.clients.flusher import Flusher
from mdserver.server.engine import Engine
from mdserver.server.timers import TICK

CONNECTED = Connected(
    session="1", member="m", version=1, history="h", groups=1, keepalive_ms=1, message_bytes_max=1
)

ENTRY = Entry(1, 1, Publication(subject="/a/b", content=b"x"))


class Script:
    """A node that answers each input with the outputs that it was given for its class."""

    def __init__(self, outputs: dict[type, list[Output]]) -> None:
        self.outputs = outputs
        self.inputs: list[Any] = []
        self.inside = False

    def step(self, input: Any, now: int) -> list[Output]:  # noqa: A002
        assert not self.inside
        self.inside = True
        self.inputs.append(input)
        self.inside = False
        return self.outputs.get(type(input), [])


class Sink:
    """Takes the events of a session; closing it tells the engine at once."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.events: list[AnyEvent] = []
        self.ended: int | None = None

    def put(self, event: AnyEvent) -> bool:
        self.events.append(event)
        return False

    def end(self, code: int, reason: str) -> None:
        self.ended = code
        self.engine.closed(1, reason)


def engine_of(outputs: dict[type, list[Output]], now: int = 0) -> tuple[Engine, Script]:
    node = Script(outputs)
    return Engine(node, lambda: now, Flusher()), node


def test_an_input_that_comes_up_while_outputs_are_carried_out_waits() -> None:
    outputs: list[Output] = [Disconnect(1, 4000, "moved"), Log("server", "after", {})]
    engine, node = engine_of({Received: outputs})
    seen: list[int] = []
    engine.carry(Log, lambda _: seen.append(len(node.inputs)))
    sink = Sink(engine)
    opened = Opened(1, "127.0.0.1")
    engine.opened(1, sink, opened)
    received = Received(1, [Ping()])
    engine.dispatch(received)
    assert sink.ended == 4000
    assert node.inputs == [opened, received, Closed(1, "moved")]
    assert seen == [2]  # the log came before the node heard of the end


def test_a_dispatch_is_settled_once_after_all_that_came_up_in_it() -> None:
    engine, node = engine_of({Received: [Disconnect(1, 4000, "moved")]})
    settled: list[list[type]] = []
    engine.opened(1, Sink(engine), Opened(1, "127.0.0.1"))
    engine.settled = lambda: settled.append([type(known) for known in node.inputs])
    engine.dispatch(Received(1, [Ping()]))
    assert settled == [[Opened, Received, Closed]]


def test_a_session_is_closed_once() -> None:
    engine, node = engine_of({})
    engine.opened(1, Sink(engine), Opened(1, "127.0.0.1"))
    engine.closed(1, "first")
    engine.closed(1, "second")
    assert node.inputs[1:] == [Closed(1, "first")]


def test_events_for_sessions_that_are_gone_go_nowhere() -> None:
    engine, _ = engine_of({Received: [Send(7, CONNECTED), Disconnect(7, 4000, "x")]})
    sink = Sink(engine)
    engine.opened(1, sink, Opened(1, "127.0.0.1"))
    engine.dispatch(Received(1, []))
    assert sink.events == []
    assert sink.ended is None


def test_timers_of_the_node_come_back_to_it() -> None:
    set_two: list[Output] = [SetTimer(("a",), TICK), SetTimer(("b",), TICK), CancelTimer(("b",))]
    engine, node = engine_of({Received: set_two}, now=TICK)
    woken: list[bool] = []
    engine.earlier_timer = lambda: woken.append(True)
    engine.dispatch(Received(1, []))
    assert woken == [True]
    engine.timers_due()
    assert node.inputs[1:] == [TimerDue(("a",))]


def test_a_node_that_failed_is_not_asked_again() -> None:
    class Broken(Script):
        def step(self, input: Any, now: int) -> list[Output]:  # noqa: A002
            super().step(input, now)
            raise AssertionError("an invariant")

    node = Broken({})
    engine = Engine(node, lambda: 0, Flusher())
    with pytest.raises(AssertionError):
        engine.dispatch(Received(1, []))
    engine.dispatch(Received(1, []))
    assert len(node.inputs) == 1
    assert engine.failed.is_set()


class Unencodable(Sink):
    """A session to which nothing can be sent."""

    def put(self, event: AnyEvent) -> bool:
        raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")


@pytest.mark.parametrize(
    "output",
    [
        Send(1, CONNECTED),
        Authorize(1, 1, "connect"),
        Deliver(Delivery(ENTRY, MessageType.UPDATE), [1]),
    ],
    ids=lambda output: type(output).__name__,
)
def test_an_output_that_fails_ends_its_session_and_no_other(output: Output) -> None:
    engine, node = engine_of({Received: [output, Send(2, CONNECTED)]})
    engine.carry(Authorize, _fail)
    harmed, other = Unencodable(engine), Sink(engine)
    engine.opened(1, harmed, Opened(1, "127.0.0.1"))
    engine.opened(2, other, Opened(2, "127.0.0.1"))
    engine.outboxes[1] = FailingOutbox()  # type: ignore[assignment]
    engine.dispatch(Received(1, []))
    assert harmed.ended == 1011
    assert other.events == [CONNECTED]
    assert engine.failure is None
    assert sum(isinstance(one, Closed) for one in node.inputs) == 1


class FailingOutbox:
    """An outbox of a form that cannot encode anything."""

    unsent = b""

    @property
    def form(self) -> object:
        raise RuntimeError("no form")


def _fail(_: object) -> None:
    raise RuntimeError("this carrier fails")


def test_a_line_that_cannot_be_written_is_lost_and_nothing_else() -> None:
    engine, _ = engine_of({Received: [Log("access", "connect", {}), Send(1, CONNECTED)]})
    engine.carry(Log, _fail)
    sink = Sink(engine)
    engine.opened(1, sink, Opened(1, "127.0.0.1"))
    engine.dispatch(Received(1, []))
    assert sink.events == [CONNECTED]
    assert sink.ended is None


def test_a_disk_write_that_fails_ends_the_node() -> None:
    engine, _ = engine_of({Received: [Committed(1, "h", [])]})
    engine.carry(Committed, _fail)
    with pytest.raises(RuntimeError):
        engine.dispatch(Received(1, []))
    assert engine.failed.is_set()
