"""Joins the node to the sockets: takes inputs to `Node.step` and carries its outputs out."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, Protocol, TypeVar, cast

import structlog
import trio

from mdserver.core.events import AnyEvent, Error, Status
from mdserver.core.inputs import Authorized, Closed, Opened, TimerDue
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
    Trace,
)
from mdserver.limits import CLOSE_INTERNAL_ERROR
from mdserver.server.clients.batch import Batch
from mdserver.server.clients.flusher import Flusher, flush_all
from mdserver.server.clients.forms import Form
from mdserver.server.clients.measures import Measures
from mdserver.server.clients.outbox import Outbox
from mdserver.server.clients.traffic import Traffic
from mdserver.server.clients.turn import Turn
from mdserver.server.clock import Clock
from mdserver.server.timers import TimerWheel

O = TypeVar("O", bound=Output)  # noqa: E741 - an output
FOR_CLIENTS = (Send, Disconnect, Authorize, Log)
INTERNAL_ERROR = "The server failed to do this: it is a bug. Reconnect and recover."
log = structlog.get_logger()


class Stepping(Protocol):
    """The node, as seen from here."""

    def step(self, input: Any, now: int) -> list[Output]:  # noqa: A002 - the design's word
        """Take one input; what is to be done, in order."""


class Sink(Protocol):
    """Where the events of one session go."""

    @property
    def address(self) -> str:
        """Where its client is."""

    def put(self, event: AnyEvent) -> bool:
        """Take an event; True where the flusher has to be told."""

    def end(self, code: int, reason: str) -> None:
        """Close the connection after what was put before."""


class Engine:
    """Owns the node, and knows the sessions by their numbers.

    Everything is synchronous: when `dispatch` returns, the outputs are in the outboxes. An input
    that comes up while outputs are carried out waits its turn, so `step` is never re-entered.
    `step` is total: if it raises, an invariant is broken, `failed` is set and nothing is stepped
    any more. The same holds for outputs between members and to the disk, because a member that
    goes on without its vote or its log would lie to the others. An output for a client that cannot
    be carried out ends the sessions that it is for, with 1011.
    """

    def __init__(self, node: Stepping, clock: Clock, flusher: Flusher) -> None:
        self.node = node
        self.clock = clock
        self.flusher = flusher
        self.timers = TimerWheel()
        self.earlier_timer: Callable[[], None] = _nothing
        self.settled: Callable[[], None] = _nothing
        """Called when a dispatch is at its end: all its outputs were carried out."""
        self.numbers = count(1)
        self.sinks: dict[int, Sink] = {}
        self.outboxes: dict[int, Outbox] = {}
        self.streams: dict[str, int] = {}
        """Secret paths of HTTP streams -> their sessions."""
        self.traffic = Traffic()
        self.measures = Measures()
        self._flushed = 0
        """What `deliveries` was when the flusher had sent everything last."""
        flusher.flushed = self._note_flushed
        self.turn = Turn()
        self.deliveries = 0
        """How many messages were put into outboxes since the start."""
        self.rested = 0
        """What that was when the readers had a turn last."""
        self.failed = trio.Event()
        self.failure: Exception | None = None
        self._asked: dict[int, int] = {}
        self._asking: dict[int, int] = {}
        self._decided: dict[int, trio.Event] = {}
        self._waiting: deque[Any] = deque()
        self._stepping = False
        self._carriers: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            Disconnect: self._disconnect,
            SetTimer: self._set_timer,
            CancelTimer: self._cancel_timer,
            Authorize: _ignore,
            Committed: _ignore,
            Log: _ignore,
            Trace: _ignore,
        }

    def carry(self, kind: type[O], carrier: Callable[[O], None]) -> None:
        """Have outputs of a kind, any but `Deliver`, carried out by a function.

        If it raises, the process ends, unless the output is one of FOR_CLIENTS.
        """
        if kind is Authorize:
            ask = cast("Callable[[Authorize], None]", carrier)
            self._carriers[kind] = lambda output: self._ask(output, ask)
        else:
            self._carriers[kind] = carrier

    def watch_sent(self, watch: Callable[[Send], None] | None) -> None:
        """Show each event for one session to `watch` before it is carried out; None: to nobody."""
        self._carriers[Send] = self._send if watch is None else partial(self._send_watched, watch)

    def dispatch(self, input: object) -> None:  # noqa: A002 - the design's word
        """Give an input to the node and carry its outputs out."""
        if self._stepping:
            self._waiting.append(input)
            return
        if self.failure is not None:
            return
        self._stepping = True
        try:
            while True:
                if type(input) is Authorized:
                    self._note_verdict(input)
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
        self.settled()
        if self.flusher.dirty:
            self.flusher.wake(now)

    def _carry_out(self, outputs: Sequence[Output]) -> None:
        carriers = self._carriers
        run: list[Deliver] = []
        for output in outputs:
            if run and (type(output) is not Deliver or output.sessions is not run[0].sessions):
                self._deliver_each(run)
                run = []
            if type(output) is Deliver:
                run.append(output)
                continue
            try:
                carriers[type(output)](output)
            except Exception:
                if not isinstance(output, FOR_CLIENTS):
                    raise
                log.exception("output failed", output=type(output).__name__)
                if not isinstance(output, Log):
                    self._end(output.session)
        if run:
            self._deliver_each(run)

    def _deliver_each(self, run: Sequence[Deliver]) -> None:
        try:
            self._deliver(run)
        except Exception:
            log.exception("output failed", output="Deliver")
            for session in run[0].sessions:
                self._end(session)

    def _end(self, session: int) -> None:
        """End a session to which something could not be sent: it recovers when it comes back."""
        sink = self.sinks.get(session)
        if sink is not None:
            try:
                sink.end(CLOSE_INTERNAL_ERROR, INTERNAL_ERROR)
            except Exception:
                log.exception("session could not be closed", session=session)
        self.closed(session, INTERNAL_ERROR)

    def asking(self, session: int) -> bool:
        """Whether the node waits for a verdict about a session, and keeps what it sends."""
        return session in self._asking

    async def decided(self, session: int) -> None:
        """Wait until there is no such question."""
        while session in self._asking:
            await self._decided.setdefault(session, trio.Event()).wait()

    def _ask(self, output: Authorize, carrier: Callable[[Authorize], None]) -> None:
        if output.action != "disconnect":  # to which there is no answer
            self._asked[output.request] = output.session
            self._asking[output.session] = self._asking.get(output.session, 0) + 1
        carrier(output)

    def _note_verdict(self, decided: Authorized) -> None:
        session = self._asked.pop(decided.request, None)
        if session is None:
            return
        left = self._asking[session] - 1
        if left:
            self._asking[session] = left
            return
        del self._asking[session]
        waiting = self._decided.pop(session, None)
        if waiting is not None:
            waiting.set()

    def opened(self, session: int, sink: Sink, opened: Opened) -> None:
        """A session begins; its events go to `sink`."""
        self.sinks[session] = sink
        self.dispatch(opened)

    def closed(self, session: int, reason: str) -> None:
        """A session is over; nothing goes to its sink any more. May be told more than once."""
        self.outboxes.pop(session, None)
        if self.sinks.pop(session, None) is not None:
            self.dispatch(Closed(session, reason))

    def set_timer(self, key: Any, at: int) -> None:
        """Have `key` due at `at`: a tuple goes to the node, anything else has `timer_due(now)`."""
        if self.timers.set(key, at):
            self.earlier_timer()

    def timers_due(self) -> None:
        """Handle what is due by now."""
        now = self.clock()
        for key in self.timers.due(now):
            if isinstance(key, tuple):
                self.dispatch(TimerDue(key))
            else:
                self._due(key, now)

    def _due(self, key: Any, now: int) -> None:
        """Call a timer of the network side; a failure concerns its connection only."""
        try:
            key.timer_due(now)
        except Exception:
            log.exception("timer failed")

    def _deliver(self, run: Sequence[Deliver]) -> None:
        """Put messages for the same sessions into their outboxes."""
        outboxes = self.outboxes
        dirty = self.flusher.dirty
        sessions = run[0].sessions
        batches: dict[Form, Batch] = {}
        batch: Batch | None = None
        full: list[Outbox] = []
        slow: list[Outbox] = []
        self.deliveries += len(sessions) * len(run)
        for session in sessions:
            outbox = outboxes.get(session)
            if outbox is None:
                continue
            if outbox.unsent:
                if not outbox.hold(run):
                    slow.append(outbox)
                continue
            form = outbox.form
            if batch is None or batch.form is not form:
                batch = batches.get(form)
                if batch is None:
                    batch = batches[form] = Batch(form, run)
            frames = outbox.frames
            if not frames:
                dirty.append(outbox)
            frames += batch.frames_for(outbox)
            outbox.size += batch.size
            if outbox.size > outbox.limit:
                full.append(outbox)
        flush_all(full)  # they have had no chance yet: nobody is slow
        for outbox in slow:
            outbox.owner.overflowed()

    def _send_watched(self, watch: Callable[[Send], None], output: Send) -> None:
        watch(output)
        self._send(output)

    def _note_flushed(self, since: int) -> None:
        """Count how long messages waited that were put into outboxes from `since` (ns) on."""
        count = self.deliveries - self._flushed
        if count:
            # All count as late as the first of them: a look at each would cost as much as a send.
            self._flushed = self.deliveries
            self.measures.sends.add(self.clock() - since, count)

    def _send(self, output: Send) -> None:
        event = output.event
        if type(event) is Status:
            if event.reason is not None:
                self.measures.note_status(event.status)
        elif type(event) is Error:
            self.measures.refuse(event.code)
        sink = self.sinks.get(output.session)
        if sink is not None and sink.put(output.event):
            self.flusher.dirty.append(sink)  # type: ignore[arg-type]  # True only from outboxes

    def _disconnect(self, output: Disconnect) -> None:
        sink = self.sinks.get(output.session)
        if sink is not None:
            sink.end(output.code, output.reason)

    def _set_timer(self, output: SetTimer) -> None:
        self.set_timer(output.timer, output.at)

    def _cancel_timer(self, output: CancelTimer) -> None:
        self.timers.cancel(output.timer)


def _nothing() -> None:
    """Nobody wants to know."""


def _ignore(_: object) -> None:
    """An output that nobody asked for."""
