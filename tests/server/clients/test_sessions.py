"""Sessions by their numbers: what the node says reaches clients, and failures stay there."""

from typing import Any

import pytest

from mdserver.core.events import AnyEvent, Connected, Delivery
from mdserver.core.inputs import Closed, Opened, Received
from mdserver.core.message import Entry, MessageType, Publication
from mdserver.core.outputs import Authorize, Deliver, Disconnect, Log, Output, Send
from mdserver.limits import SUBPROTOCOL_JSON
from mdserver.server.clients.flusher import Flusher
from mdserver.server.clients.forms import WEBSOCKET_FORMS
from mdserver.server.clients.outbox import Outbox
from mdserver.server.clients.sessions import Sessions
from mdserver.server.engine import Engine, OutputRoutes

CONNECTED = Connected(
    session="1", member="m", version=1, history="h", groups=1, keepalive_ms=1, message_bytes_max=1
)
ENTRY = Entry(1, 1, Publication(subject="/a/b", content=b"x"))


class Script:
    """A node that answers every `Received` with the same outputs."""

    def __init__(self, outputs: list[Output]) -> None:
        self.outputs = outputs
        self.inputs: list[Any] = []

    def step(self, input: Any, now: int) -> list[Output]:  # noqa: A002
        self.inputs.append(input)
        return self.outputs if isinstance(input, Received) else []


class Sink:
    """Takes the events of a session; its connection is closed at once."""

    address = "127.0.0.1"

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.events: list[AnyEvent] = []
        self.ended: int | None = None

    def put(self, event: AnyEvent) -> bool:
        self.events.append(event)
        return False

    def end(self, code: int, reason: str) -> None:
        self.ended = code
        self.sessions.close(1, reason)


class Unencodable(Sink):
    """A session to which nothing can be sent."""

    def put(self, event: AnyEvent) -> bool:
        raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")


class Unused:
    """A socket, or a connection, of an outbox from which nothing is sent."""


class FailingOutbox:
    """An outbox of a form that cannot encode anything."""

    unsent = b""

    @property
    def form(self) -> object:
        raise RuntimeError("no form")


def sessions_of(*outputs: Output, **routes: Any) -> tuple[Sessions, Script]:
    node = Script(list(outputs))
    engine = Engine(node, lambda: 0)
    sessions = Sessions(engine, Flusher())
    engine.routes = OutputRoutes(
        deliver=sessions.deliver,
        send=sessions.send,
        disconnect=sessions.disconnect,
        failed=sessions.end_failed,
        **routes,
    )
    return sessions, node


def test_a_session_is_closed_once() -> None:
    sessions, node = sessions_of()
    sessions.open(1, Sink(sessions), Opened(1, "127.0.0.1"))
    sessions.close(1, "first")
    sessions.close(1, "second")
    assert node.inputs[1:] == [Closed(1, "first")]


def test_events_for_sessions_that_are_gone_go_nowhere() -> None:
    sessions, _ = sessions_of(Send(7, CONNECTED), Disconnect(7, 4000, "x"))
    sink = Sink(sessions)
    sessions.open(1, sink, Opened(1, "127.0.0.1"))
    sessions.dispatch(Received(1, []))
    assert sink.events == []
    assert sink.ended is None


def _fail(_: object) -> None:
    raise RuntimeError("this part fails")


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
    sessions, node = sessions_of(output, Send(2, CONNECTED), authorize=_fail)
    harmed, other = Unencodable(sessions), Sink(sessions)
    sessions.open(1, harmed, Opened(1, "127.0.0.1"))
    sessions.open(2, other, Opened(2, "127.0.0.1"))
    sessions.outboxes[1] = FailingOutbox()  # type: ignore[assignment]
    sessions.dispatch(Received(1, []))
    assert harmed.ended == 1011
    assert other.events == [CONNECTED]
    assert sessions.engine.failure is None
    assert sum(isinstance(one, Closed) for one in node.inputs) == 1


def test_a_line_that_cannot_be_written_is_lost_and_nothing_else() -> None:
    sessions, _ = sessions_of(Log("access", "connect", {}), Send(1, CONNECTED), log=_fail)
    sink = Sink(sessions)
    sessions.open(1, sink, Opened(1, "127.0.0.1"))
    sessions.dispatch(Received(1, []))
    assert sink.events == [CONNECTED]
    assert sink.ended is None


def test_what_one_session_gets_besides_goes_to_no_other() -> None:
    sessions, _ = sessions_of()
    form = WEBSOCKET_FORMS[SUBPROTOCOL_JSON]
    first, second = (
        Outbox(number, form, Unused(), Unused(), 1000, sessions.traffic)  # type: ignore[arg-type]
        for number in (1, 2)
    )
    sessions.outboxes |= {1: first, 2: second}
    to_all = [Deliver(Delivery(ENTRY, MessageType.UPDATE), [1, 2])]
    to_one = [Deliver(Delivery(ENTRY, MessageType.SNAPSHOT), [1])]
    live, own = (form.delivery(run[0].delivery) for run in (to_all, to_one))
    sessions.deliver(to_all)
    assert first.frames is second.frames
    sessions.deliver(to_one)
    assert (list(first.frames), list(second.frames)) == ([live, own], [live])
    sessions.deliver(to_all)
    assert (list(first.frames), list(second.frames)) == ([live, own, live], [live, live])
    assert sessions.flusher.dirty == [first, second]
