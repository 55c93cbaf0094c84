"""The engine: one step at a time, outputs in order, and who carries out which."""

from typing import Any

import attrs
import pytest

from mdserver.cluster.messages import ClosePeer
from mdserver.core.commands import Ping
from mdserver.core.events import Delivery
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
    SetTimer,
)
from mdserver.errors import LocalProtocolError
from mdserver.server.engine import Engine, OutputRoutes
from mdserver.server.timers import TICK

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


def engine_of(outputs: dict[type, list[Output]], now: int = 0) -> tuple[Engine, Script]:
    node = Script(outputs)
    return Engine(node, lambda: now), node


def test_an_input_that_comes_up_while_outputs_are_carried_out_waits() -> None:
    engine, node = engine_of({Received: [Disconnect(1, 4000, "moved"), Log("server", "after", {})]})
    seen: list[int] = []
    engine.routes = OutputRoutes(
        disconnect=lambda output: engine.dispatch(Closed(output.session, output.reason)),
        log=lambda _: seen.append(len(node.inputs)),
    )
    received = Received(1, [Ping()])
    engine.dispatch(received)
    assert node.inputs == [received, Closed(1, "moved")]
    assert seen == [1]  # the log came before the node heard of the end


def test_after_a_dispatch_and_all_that_came_up_in_it_what_was_collected_is_sent() -> None:
    engine, node = engine_of({Received: [Disconnect(1, 4000, "moved")]})
    after: list[list[type]] = []
    engine.routes = OutputRoutes(
        disconnect=lambda output: engine.dispatch(Closed(output.session, output.reason)),
        after_dispatch=(lambda _: after.append([type(known) for known in node.inputs]),),
    )
    engine.dispatch(Received(1, [Ping()]))
    assert after == [[Received, Closed]]


def test_deliveries_to_the_same_sessions_go_together() -> None:
    one, other = [1, 2], [3]
    first, second, third = (
        Delivery(Entry(1, seq, Publication(subject="/a/b", content=b"x")), MessageType.UPDATE)
        for seq in (1, 2, 3)
    )
    outputs: list[Output] = [Deliver(first, one), Deliver(second, one), Deliver(third, other)]
    engine, _ = engine_of({Received: [*outputs, Log("server", "after", {}), Deliver(third, other)]})
    carried: list[Any] = []
    engine.routes = OutputRoutes(deliver=carried.append, log=carried.append)
    engine.dispatch(Received(1, []))
    assert [len(some) if isinstance(some, list) else "log" for some in carried] == [2, 1, "log", 1]


def test_every_route_is_taken() -> None:
    """Nothing that stands in `OutputRoutes` is left out of the table."""
    engine, _ = engine_of({})
    named = attrs.asdict(engine.routes, recurse=False)
    apart = {"deliver", "failed", "after_dispatch"}
    marked = {name: (lambda _, name=name: name) for name in named if name not in apart}
    engine.routes = OutputRoutes(**marked)
    carriers = engine._route_of.values()
    taken = {carrier(None) for carrier in carriers if carrier in marked.values()}
    assert taken == set(marked)


def test_timers_of_the_node_come_back_to_it() -> None:
    set_two: list[Output] = [SetTimer(("a",), TICK), SetTimer(("b",), TICK), CancelTimer(("b",))]
    engine, node = engine_of({Received: set_two}, now=TICK)
    woken: list[bool] = []
    engine.earlier_timer = lambda: woken.append(True)
    engine.dispatch(Received(1, []))
    assert woken == [True]
    engine.timers_due()
    assert node.inputs[1:] == [TimerDue(("a",))]


def test_a_part_whose_timer_fails_harms_no_other() -> None:
    class Part:
        def __init__(self, *, fails: bool) -> None:
            self.fails = fails
            self.due: int | None = None

        def timer_due(self, now: int) -> None:
            self.due = now
            assert not self.fails

    engine, _ = engine_of({}, now=TICK)
    parts = [Part(fails=True), Part(fails=False), Part(fails=False)]
    for part in parts:
        engine.set_timer(part, TICK)
    engine.cancel_timer(parts[2])
    engine.timers_due()
    assert [part.due for part in parts] == [TICK, TICK, None]


def test_a_node_that_failed_is_not_asked_again() -> None:
    class Broken(Script):
        def step(self, input: Any, now: int) -> list[Output]:  # noqa: A002
            super().step(input, now)
            raise AssertionError("an invariant")

    node = Broken({})
    engine = Engine(node, lambda: 0)
    with pytest.raises(AssertionError):
        engine.dispatch(Received(1, []))
    engine.dispatch(Received(1, []))
    assert len(node.inputs) == 1
    assert engine.failed.is_set()


def _fail(_: object) -> None:
    raise RuntimeError("this part fails")


@pytest.mark.parametrize("output", [Disconnect(1, 4000, ""), Authorize(1, 1, "connect")])
def test_an_output_for_a_client_that_fails_concerns_that_client(output: Any) -> None:
    engine, _ = engine_of({Received: [output, Log("server", "after", {})]})
    failed: list[object] = []
    logged: list[Log] = []
    engine.routes = OutputRoutes(
        disconnect=_fail, authorize=_fail, failed=failed.append, log=logged.append
    )
    engine.dispatch(Received(1, []))
    assert failed == [output]
    assert len(logged) == 1
    assert engine.failure is None


def test_a_disk_write_that_fails_ends_the_node() -> None:
    engine, _ = engine_of({Received: [Committed(1, "h", [])]})
    engine.routes = OutputRoutes(committed=_fail)
    with pytest.raises(RuntimeError):
        engine.dispatch(Received(1, []))
    assert engine.failed.is_set()


def test_what_nobody_carries_out_ends_the_node() -> None:
    engine, _ = engine_of({Opened: [ClosePeer("b", "why")]})
    with pytest.raises(LocalProtocolError, match="ClosePeer"):
        engine.dispatch(Opened(1, "127.0.0.1"))
    assert engine.failed.is_set()


def test_what_was_collected_and_cannot_be_sent_ends_the_node() -> None:
    """It may be for other members, which must not miss some of what was said to them."""
    engine, node = engine_of({})
    engine.routes = OutputRoutes(after_dispatch=(_fail,))
    with pytest.raises(RuntimeError):
        engine.dispatch(Received(1, []))
    assert engine.failed.is_set()
    engine.dispatch(Received(2, []))
    assert node.inputs == [Received(1, [])]
