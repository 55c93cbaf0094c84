"""All sessions of this server by their numbers: the destinations of outputs for clients.

A session is a number from `Sessions.numbers`, a *sink* that takes its events, and an outbox if the
client stays connected. The node knows only the number. Deliveries, the hot path, go straight into
outboxes, many at a time; other events go through the sink, one at a time.

`Sessions.deliver` appends a frame to each outbox, by reference, and puts outboxes that become dirty
into the flusher's list. It sends nothing itself, unless an outbox exceeds its limit.
"""

from collections.abc import Sequence
from itertools import count
from typing import Protocol

import structlog
import trio

from mdserver.core.events import AnyEvent, Error, Status
from mdserver.core.inputs import Closed, Opened
from mdserver.core.outputs import Deliver, Disconnect, Log, Send
from mdserver.limits import CLOSE_INTERNAL_ERROR
from mdserver.server.clients.authorizations import Authorizations
from mdserver.server.clients.batch import Batch
from mdserver.server.clients.flusher import Flusher
from mdserver.server.clients.forms import Form
from mdserver.server.clients.measures import Measures
from mdserver.server.clients.outbox import Outbox
from mdserver.server.clients.traffic import Traffic
from mdserver.server.clients.turn import Turn
from mdserver.server.engine import ClientOutput, Engine, OutputRoutes

INTERNAL_ERROR = "The server failed to do this: it is a bug. Reconnect and recover."
log = structlog.get_logger()


class Sink(Protocol):
    """The destination of the events of one session: an outbox, or an HTTP exchange."""

    @property
    def address(self) -> str:
        """Return the IP address of the client."""

    def put(self, event: AnyEvent) -> bool:
        """Take an event; return True if the sink is an outbox that became dirty."""

    def end(self, code: int, reason: str) -> None:
        """Close the connection after what was put before."""


class Sessions:
    """The sessions, and the objects that their readers and the flusher share.

    `tasks` is the nursery of the server while it runs. `streams` maps the secrets of HTTP streams
    to sessions. `deliveries` counts the messages that were put into outboxes since the start,
    `deliveries_at_turn` is its value when a reader last paused for delivering much.
    """

    def __init__(self, engine: Engine, flusher: Flusher) -> None:
        self.engine = engine
        self.dispatch = engine.dispatch
        self.flusher = flusher
        self.tasks: trio.Nursery | None = None
        flusher.flushed = self._note_flushed
        self.numbers = count(1)
        self.sinks: dict[int, Sink] = {}
        self.outboxes: dict[int, Outbox] = {}
        self.streams: dict[str, int] = {}
        self.authorizations = Authorizations(engine.dispatch)
        self.traffic = Traffic()
        self.turn = Turn()
        self.deliveries = 0
        self.deliveries_at_turn = 0
        self.measures = Measures()
        self._deliveries_flushed = 0

    def count_from(self, first: int) -> None:
        """Number the sessions from `first` on; call it before the first one."""
        self.numbers = count(first)

    def routes(self) -> OutputRoutes:
        """Return the routes of a server without a journal and without other members."""
        return OutputRoutes(
            deliver=self.deliver,
            send=self.send,
            disconnect=self.disconnect,
            failed=self.end_failed,
            after_dispatch=(self.flusher.wake,),
        )

    def open(self, session: int, sink: Sink, opened: Opened) -> None:
        """Begin a session, whose events go to `sink` from now on."""
        self.sinks[session] = sink
        self.dispatch(opened)

    def close(self, session: int, reason: str) -> None:
        """End a session: its sink gets no more events. Does nothing if it has ended already."""
        self.outboxes.pop(session, None)
        if self.sinks.pop(session, None) is not None:
            self.dispatch(Closed(session, reason))

    # Outputs of the node (`OutputRoutes`).

    def deliver(self, run: Sequence[Deliver]) -> None:
        """Put messages for the same sessions into the outboxes; a failure ends those sessions."""
        sessions = run[0].sessions
        self.deliveries += len(sessions) * len(run)
        try:
            if len(sessions) == 1:
                self._deliver_to_one(sessions[0], run)
            else:
                self._deliver_to_many(sessions, run)
        except Exception:
            log.exception("output failed", output="Deliver")
            for session in sessions:
                self._end(session)

    def _deliver_to_one(self, session: int, run: Sequence[Deliver]) -> None:
        """Put messages into one outbox, without a `Batch`: there is nothing to share."""
        outbox = self.outboxes.get(session)
        if outbox is None:
            return
        if outbox.unsent:
            if not outbox.queue_while_parked(run):
                outbox.owner.outbox_overflow()
            return
        if not outbox.frames:
            self.flusher.dirty.append(outbox)
        outbox.take(run)
        if outbox.size > outbox.limit:
            self.flusher.flush([outbox])

    def _deliver_to_many(self, sessions: Sequence[int], run: Sequence[Deliver]) -> None:
        """Put messages into many outboxes, encoded once for each form."""
        outboxes = self.outboxes
        dirty = self.flusher.dirty
        batches: dict[Form, Batch] = {}
        batch: Batch | None = None
        full: list[Outbox] = []
        slow: list[Outbox] = []
        for session in sessions:
            outbox = outboxes.get(session)
            if outbox is None:
                continue
            if outbox.unsent:
                if not outbox.queue_while_parked(run):
                    slow.append(outbox)
                continue
            form = outbox.form
            if batch is None or batch.form is not form:
                batch = batches.get(form)
                if batch is None:
                    batch = batches[form] = Batch(form, run)
            # The question that `frames_for` asks first: nearly all know the aliases already.
            known = batch.aliases <= outbox.known
            frames = batch.frames if known else batch.frames_for(outbox)
            if outbox.frames:
                outbox.own_frames().extend(frames)
            else:
                outbox.frames = frames
                dirty.append(outbox)
            outbox.size += batch.size
            if outbox.size > outbox.limit:
                full.append(outbox)
        # These outboxes exceed the limit before their sockets were tried: the frames came within
        # one pass, and the clients need not be slow. So they are sent, not ended.
        if full:
            self.flusher.flush(full)
        for outbox in slow:
            outbox.owner.outbox_overflow()

    def send(self, output: Send) -> None:
        """Give an event to the session's sink."""
        event = output.event
        if type(event) is Status:  # nearly all: the results of publications
            if event.reason is not None:
                self.measures.note_status(event.status)
            outbox = self.outboxes.get(output.session)
            if outbox is not None:
                if outbox.append(outbox.form.event(event)):
                    self.flusher.dirty.append(outbox)
                return
        elif type(event) is Error:
            self.measures.refuse(event.code)
        sink = self.sinks.get(output.session)
        if sink is not None and sink.put(event):
            self.flusher.dirty.append(sink)  # type: ignore[arg-type]  # True only from outboxes

    def disconnect(self, output: Disconnect) -> None:
        """Close the session's connection after what was put before."""
        sink = self.sinks.get(output.session)
        if sink is not None:
            sink.end(output.code, output.reason)

    def end_failed(self, output: ClientOutput) -> None:
        """End the session of an output that could not be carried out."""
        if not isinstance(output, Log):
            self._end(output.session)

    def _note_flushed(self, since: int) -> None:
        """Count how long the messages waited that the flusher sent, at most since `since` (ns)."""
        count = self.deliveries - self._deliveries_flushed
        if count:
            # Each counts with the wait of the first: to measure each would cost as much as a send.
            self._deliveries_flushed = self.deliveries
            self.measures.sends.add(self.engine.clock() - since, count)

    def _end(self, session: int) -> None:
        """End a session because of a bug; the client may reconnect and recover."""
        sink = self.sinks.get(session)
        if sink is not None:
            try:
                sink.end(CLOSE_INTERNAL_ERROR, INTERNAL_ERROR)
            except Exception:
                log.exception("session could not be closed", session=session)
        self.close(session, INTERNAL_ERROR)
