"""Joins the node to the server: takes inputs, and routes outputs to the parts that carry them out.

The node is a pure state machine: `step` takes one input and returns outputs, which are to be
carried out in order. The engine is the only caller of `step`. It keeps the three promises that the
node's contract rests on:

- One step at a time. An input that arises while outputs are carried out (for instance a connection
  that closes because of a `Disconnect`) waits until all of them are done. So `step` is never
  re-entered, and the outputs of two steps never mix.
- In order, and at once. When `dispatch` returns, every output has been carried out: messages are in
  the outboxes, lines are with the threads that write them. Nothing here awaits.
- All or nothing. `step` is total, so if it raises, an invariant is broken: `failed` is set and
  nothing is stepped any more. The same holds for outputs to other members and to the disk, because
  a member that goes on without its vote or its log would break its promises to the others. A
  failure of an output for one client concerns that client only: its session ends, and the client
  recovers when it reconnects.

Which function carries out which kind of output is one table, `OutputRoutes`. The composition root
(`mdserver.server.app`) fills it in; no part of the server puts itself into it.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import structlog
import trio
from attrs import frozen

from mdserver.cluster.kafka_messages import Consume, Produce
from mdserver.cluster.messages import AdminReply, ClosePeer, PeerDiscovered, Persist, SendPeer
from mdserver.cluster.wal import WriteWal
from mdserver.core.inputs import TimerDue
from mdserver.core.outputs import (
    Announced,
    Authorize,
    CancelTimer,
    Committed,
    Deliver,
    Disconnect,
    Log,
    Output,
    Send,
    SetTimer,
    Trace,
)
from mdserver.errors import LocalProtocolError
from mdserver.server.clock import Clock
from mdserver.server.timers import TimerWheel

ClientOutput = Send | Disconnect | Authorize | Log
FOR_CLIENTS = (Send, Disconnect, Authorize, Log)
log = structlog.get_logger()


class StateMachine(Protocol):
    """The interface of the node."""

    def step(self, input: Any, now: int) -> list[Output]:  # noqa: A002 - the design's word
        """Take one input at `now` (ns); return the outputs, in order."""


def ignore(_: object) -> None:
    """Do nothing: the route for outputs that this server does not need."""


def refuse(output: object) -> None:
    """Raise LocalProtocolError: the node has an output that this server has no part for."""
    raise LocalProtocolError(f"nobody carries out {type(output).__name__}")


@frozen(kw_only=True)
class OutputRoutes:
    """The function that carries out each kind of output.

    `deliver` is given the deliveries of one step that follow each other and have the same sessions.
    `failed` is called with an output for clients whose function raised. The functions of
    `after_dispatch` are called in order when all outputs of a dispatch were carried out, with the
    time (ns) of its last step: they send what the others only collected. One that raises ends the
    engine, because some of what was collected may be for other members and would be lost.
    """

    deliver: Callable[[Sequence[Deliver]], None] = refuse
    send: Callable[[Send], None] = refuse
    disconnect: Callable[[Disconnect], None] = refuse
    failed: Callable[[ClientOutput], None] = ignore
    authorize: Callable[[Authorize], None] = ignore
    committed: Callable[[Committed], None] = ignore
    log: Callable[[Log], None] = ignore
    trace: Callable[[Trace], None] = ignore
    announced: Callable[[Announced], None] = ignore
    send_peer: Callable[[SendPeer], None] = refuse
    peer_discovered: Callable[[PeerDiscovered], None] = refuse
    close_peer: Callable[[ClosePeer], None] = refuse
    persist: Callable[[Persist], None] = refuse
    write_wal: Callable[[WriteWal], None] = refuse
    admin_reply: Callable[[AdminReply], None] = refuse
    produce: Callable[[Produce], None] = refuse
    consume: Callable[[Consume], None] = refuse
    after_dispatch: tuple[Callable[[int], None], ...] = ()


class TimedPart(Hashable, Protocol):
    """A part of the server that has a timer of its own."""

    def timer_due(self, now: int) -> None:
        """Act on the timer, which is due at `now` (ns)."""


class Engine:
    """The owner of the node and of the timers.

    `failure` is the exception that stopped the node, None while it runs. `earlier_timer` is called
    when a timer was set that is due before all others.
    """

    def __init__(self, node: StateMachine, clock: Clock) -> None:
        self.node = node
        self.clock = clock
        self.timers = TimerWheel()
        self.earlier_timer: Callable[[], None] = _do_nothing
        self.failed = trio.Event()
        self.failure: Exception | None = None
        self._waiting: deque[Any] = deque()
        self._stepping = False
        self.routes = OutputRoutes()

    @property
    def routes(self) -> OutputRoutes:
        """The table of routes; may be replaced between two dispatches."""
        return self._routes

    @routes.setter
    def routes(self, routes: OutputRoutes) -> None:
        self._routes = routes
        self._deliver = routes.deliver
        self._after_dispatch = routes.after_dispatch
        self._route_of: dict[type, Callable[[Any], None]] = {
            Send: routes.send,
            Disconnect: routes.disconnect,
            SetTimer: self._set_node_timer,
            CancelTimer: self._cancel_node_timer,
            Authorize: routes.authorize,
            Committed: routes.committed,
            Log: routes.log,
            Trace: routes.trace,
            Announced: routes.announced,
            SendPeer: routes.send_peer,
            PeerDiscovered: routes.peer_discovered,
            ClosePeer: routes.close_peer,
            Persist: routes.persist,
            WriteWal: routes.write_wal,
            AdminReply: routes.admin_reply,
            Produce: routes.produce,
            Consume: routes.consume,
        }

    def dispatch(self, input: object) -> None:  # noqa: A002 - the design's word
        """Give an input to the node and carry its outputs out.

        During another dispatch the input is queued, and taken before the outer call returns. Does
        nothing when the engine has failed. Raises the exception of the node, of an output to
        another member or to the disk, or of `after_dispatch`; the engine has failed then.
        """
        if self._stepping:
            self._waiting.append(input)
            return
        if self.failure is not None:
            return
        self._stepping = True
        try:
            while True:
                now = self.clock()
                self._carry_out(self.node.step(input, now))
                if not self._waiting:
                    break
                input = self._waiting.popleft()  # noqa: A001
        except Exception as error:
            self.failure = error
            self.failed.set()
            raise
        finally:
            self._stepping = False
        try:
            for after in self._after_dispatch:
                after(now)
        except Exception as error:
            # Some of what was collected for other members may never be sent.
            self.failure = error
            self.failed.set()
            raise

    def _carry_out(self, outputs: Sequence[Output]) -> None:
        """Carry the outputs of one step out, in order."""
        route_of = self._route_of
        # Consecutive deliveries to the same sessions are carried out together: that costs each
        # outbox hardly more than one of them. The order of outputs stays as it is.
        run: list[Deliver] = []
        for output in outputs:
            if run and (type(output) is not Deliver or output.sessions is not run[0].sessions):
                self._deliver(run)
                run = []
            if type(output) is Deliver:
                run.append(output)
                continue
            try:
                route_of[type(output)](output)
            except Exception:
                if not isinstance(output, FOR_CLIENTS):
                    raise
                log.exception("output failed", output=type(output).__name__)
                self._routes.failed(output)
        if run:
            self._deliver(run)

    def set_timer(self, part: TimedPart, at: int) -> None:
        """Have `part.timer_due` called at `at` (ns); this replaces the earlier time, if any."""
        if self.timers.set(part, at):
            self.earlier_timer()

    def cancel_timer(self, part: TimedPart) -> None:
        """Cancel the timer of a part; does nothing if it has none."""
        self.timers.cancel(part)

    def timers_due(self) -> None:
        """Act on the timers that are due: those of the node are inputs, the others are calls."""
        now = self.clock()
        for key in self.timers.due(now):
            if isinstance(key, tuple):
                self.dispatch(TimerDue(key))
            else:
                _call_timer(key, now)

    def _set_node_timer(self, output: SetTimer) -> None:
        if self.timers.set(output.timer, output.at):
            self.earlier_timer()

    def _cancel_node_timer(self, output: CancelTimer) -> None:
        self.timers.cancel(output.timer)


def _call_timer(part: Any, now: int) -> None:
    # An exception here is a bug, and concerns one connection only.
    try:
        part.timer_due(now)
    except Exception:
        log.exception("timer failed")


def _do_nothing() -> None:
    """Do nothing: the callback is not set yet."""
