"""The outbox of a session: the frames that its client still has to be sent (docs/design.md).

An outbox holds frames by reference, and is in one of four states:

    empty --put--> dirty --flush, all sent--> empty
                     |
                     '--flush, refused or sent in part--> parked --drain, all sent--> empty
    any --finish--> parked or empty, with the goodbye as the last thing to send

*dirty*: `frames` wait for the flusher, which sends them once in this scheduler pass.
*parked*: the socket takes no more. `unsent` has the bytes that it refused; what is put meanwhile
goes into the queue, and a task of the connection calls `drain` each time the socket is writable.
Control frames overtake the queue, but not `unsent`: a frame of which a part was sent has
to be completed first.

With TLS, what goes to the socket are the records that are made of the bytes when it is their turn
(`EncryptedSocket.seal`). `unsent` then has the records of one write, which must all be sent, in
order. `rest` has the bytes after those of one write, which were taken to be sent and have no
records yet.

An outbox is parked while `unsent` is not empty; without it there is no `rest`. From `Owner.parked`
until `drain` returns True a task drains it, unless the connection is ending.
"""

from collections.abc import Sequence
from typing import Protocol

from attrs import frozen

from mdserver.config import SlowConsumerPolicy
from mdserver.core.events import AnyEvent, Connected, Delivery, Fetched, Mark
from mdserver.core.outputs import Deliver
from mdserver.limits import CATCH_UP_BYTES_MAX, NS_PER_MS
from mdserver.server.clients.forms import Form
from mdserver.server.clients.slow_consumer_queue import SlowConsumerQueue
from mdserver.server.clients.traffic import Traffic
from mdserver.server.encrypted import EncryptedSocket
from mdserver.server.sockets import WRITE_BYTES, Socket

_NONE: frozenset[int] = frozenset()


@frozen(kw_only=True)
class SessionView:
    """The state of one session, for operators.

    `waiting_ms` is the age of the oldest thing that waits for the client, `silent_ms` how long
    nothing was heard from it.
    """

    session: str
    address: str
    transport: str
    secure: bool
    outbox_bytes: int
    waiting_ms: int
    silent_ms: int


class Owner(Protocol):
    """The connection of an outbox."""

    def view(self, now: int) -> SessionView:
        """Return the state of the session."""

    def keepalive_agreed(self, keepalive: int) -> None:
        """Take the keep-alive interval (ns) that the client is sent in `connected`."""

    def parked(self) -> None:
        """Call `drain` from now on, each time the socket is writable, until it returns True."""

    def lost(self, reason: str) -> None:
        """End the session: the socket is broken."""

    def outbox_overflow(self) -> None:
        """Apply the policy for slow consumers: more waits than the limit allows."""

    def catch_up_overflow(self) -> None:
        """End the session: the client requested more than may wait for it."""

    def failed(self) -> None:
        """End the session because of the exception that is being handled, a bug."""

    def close(self, code: int, reason: str) -> None:
        """Send what waits, then the code and the reason."""


class Outbox:
    """The outbox of one session. Only the flusher and the engine touch its attributes.

    `size` is the number of bytes of `frames`. `since` (ns) is when the outbox was parked, `limit`
    the size (bytes) up to which the queue may grow then, at least `limit_least`. What a client
    requested itself (answers, history, snapshots) raises the limit until the outbox is empty again:
    only live messages make a slow consumer. `control` is a control frame that waits, `last` the
    goodbye. `sock` is the socket below TLS, and `tls` makes the records for it, None without TLS.
    `known` has the aliases that were introduced to the client. `mistakes` counts commands that were
    not understood. `frames` is a tuple while other outboxes may share it (the usual case after a
    fan-out), and a list once this outbox owns it.
    """

    __slots__ = (
        "control",
        "form",
        "frames",
        "known",
        "last",
        "limit",
        "limit_least",
        "mistakes",
        "owner",
        "queue",
        "rest",
        "session",
        "since",
        "size",
        "sock",
        "tls",
        "traffic",
        "unsent",
    )

    def __init__(
        self,
        session: int,
        form: Form,
        sock: Socket | EncryptedSocket,
        owner: Owner,
        limit: int,
        traffic: Traffic,
    ) -> None:
        self.session = session
        self.form = form
        self.tls = sock if isinstance(sock, EncryptedSocket) else None
        self.sock: Socket = sock.plain if isinstance(sock, EncryptedSocket) else sock
        self.owner = owner
        self.traffic = traffic
        self.frames: list[bytes] | tuple[bytes, ...] = ()
        self.queue: SlowConsumerQueue | None = None
        self.since = 0
        self.size = 0
        self.mistakes = 0
        self.limit = self.limit_least = limit
        self.unsent: bytes | memoryview = b""
        self.rest: bytes | memoryview = b""
        self.control = b""
        self.last = b""
        self.known: set[int] | frozenset[int] = _NONE

    @property
    def address(self) -> str:
        """Return the IP address of the client."""
        return self.owner.view(0).address

    def put(self, event: AnyEvent) -> bool:
        """Append an event for this session alone; return whether the outbox became dirty."""
        assert not isinstance(event, Fetched), "only asked for by HTTP exchanges"
        if isinstance(event, Delivery):
            if self.limit > self.limit_least + CATCH_UP_BYTES_MAX:
                self.owner.catch_up_overflow()
                return False
            if self.unsent:
                self._wait(event)
                return False
            return self.append(self._encode(event))
        if isinstance(event, Connected):
            self.owner.keepalive_agreed(event.keepalive_ms * NS_PER_MS)
        elif isinstance(event, Mark):
            return self.append(self.form.mark(event))
        return self.append(self.form.event(event))

    def take(self, run: Sequence[Deliver]) -> None:
        """Append live messages for this session alone, while the outbox is not parked."""
        frames, form = self.frames, self.form
        if not frames:
            frames = self.frames = []
        elif isinstance(frames, tuple):
            frames = self.own_frames()
        encode = self._encode if form.aliased else form.delivery
        for output in run:
            frame = encode(output.delivery)
            frames.append(frame)
            self.size += len(frame)

    def append(self, frame: bytes) -> bool:
        """Append a frame that the client requested; return whether the outbox became dirty."""
        if self.unsent:
            self._wait(frame)
            return False
        frames = self.frames
        first = not frames
        if first:
            self.frames = [frame]
        elif isinstance(frames, tuple):
            self.frames = [*frames, frame]
        else:
            frames.append(frame)
        self.size += len(frame)
        self.limit += len(frame)
        return first

    def own_frames(self) -> list[bytes]:
        """Return the frames as a list that no other outbox shares, to append to."""
        if isinstance(self.frames, tuple):
            self.frames = list(self.frames)
        return self.frames

    def _wait(self, item: bytes | Delivery) -> None:
        """Queue something that the client requested, and raise the limit by its size."""
        self.limit += self.waiting().add(item)

    def waiting(self) -> SlowConsumerQueue:
        """Return the queue for the time in which the outbox is parked."""
        if self.queue is None:
            self.queue = SlowConsumerQueue(self.form)
        return self.queue

    def queue_while_parked(self, run: Sequence[Deliver]) -> bool:
        """Queue live messages of a parked outbox; return whether the queue is within the limit."""
        queue = self.waiting()
        for output in run:
            queue.add(output.delivery)
        return queue.size <= self.limit

    def apply_policy(self, policy: SlowConsumerPolicy) -> bool:
        """Shorten the queue; return whether it is then well within the limit.

        A quarter of the limit has to be free, so that the policy, which takes time in proportion to
        the queue, is not applied again for each message.
        """
        return self.waiting().apply_policy(policy, self.limit * 3 // 4)

    @property
    def bytes_waiting(self) -> int:
        """The number of bytes that the client still has to be sent."""
        queue = self.queue
        return len(self.unsent) + len(self.rest) + self.size + (0 if queue is None else queue.size)

    def _encode(self, delivery: Delivery) -> bytes:
        """Encode a message, with the introduction of its alias first if the client needs it."""
        form = self.form
        frame = form.delivery(delivery)
        if form.aliased and delivery.alias and delivery.alias not in self.known:
            self.remember_alias(delivery.alias)
            frame = form.alias_frame(delivery.alias) + frame
        return frame

    def end(self, code: int, reason: str) -> None:
        """Close the connection after what was put before."""
        self.owner.close(code, reason)

    def remember_alias(self, alias: int) -> None:
        """Remember that the client was sent the introduction of an alias."""
        if not self.known:
            self.known = set()
        self.known.add(alias)  # type: ignore[union-attr]  # the line above made it a set

    def flush(self, wire: bytes) -> bool:
        """Send `wire`, the joined `frames`; return False if the outbox is parked now."""
        self.frames = ()
        self.size = 0
        self.limit = self.limit_least
        if len(wire) > WRITE_BYTES:
            self.rest = wire
            return self._drain_or_park()
        try:
            if self.tls is not None:
                wire = self._sealed(wire)
            sent = self.sock.send(wire)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.owner.lost(str(error))
            return True
        if sent == len(wire):
            if self.tls is None:
                self.traffic.sent += sent
            return True
        self.keep_unsent(wire, sent)
        self.owner.parked()
        return False

    def _sealed(self, wire: bytes | memoryview) -> bytes:
        """Return the records for `wire`, which count as sent when they are made."""
        assert self.tls is not None
        self.traffic.sent += len(wire)
        return self.tls.seal(wire)

    def keep_unsent(self, wire: bytes | memoryview, sent: int) -> None:
        """Count `sent` bytes of `wire` as sent, and keep the others."""
        self.unsent = memoryview(wire)[sent:] if sent < len(wire) else b""
        if self.tls is None:
            self.traffic.sent += sent
        else:
            self.tls.halfway = bool(self.unsent)

    def drain(self) -> bool:
        """Send until the socket takes no more; return whether nothing is left.

        Raises OSError if the socket is broken.
        """
        send = self.sock.send
        while True:
            unsent = self.unsent or self._next_write()
            if not unsent:
                return True
            try:
                sent = send(unsent[:WRITE_BYTES])
            except BlockingIOError:
                self.keep_unsent(unsent, 0)
                return False
            self.keep_unsent(unsent, sent)

    def _next_write(self) -> bytes | memoryview:
        """Take what goes to the socket next: the bytes of one write, with TLS their records."""
        wire = self.rest or self._next()
        if len(wire) > WRITE_BYTES:
            wire = memoryview(wire)
            wire, self.rest = wire[:WRITE_BYTES], wire[WRITE_BYTES:]
        else:
            self.rest = b""
        return self._sealed(wire) if wire and self.tls is not None else wire

    def _next(self) -> bytes:
        """Take what is to be sent next: control frame, frames, queue, and the goodbye last."""
        if self.control:
            control, self.control = self.control, b""
            return control
        if self.frames:
            wire = self.form.wire(self.frames)
            self.frames = ()
            self.size = 0
            self.limit = self.limit_least
            return wire
        if self.queue:
            items = self.queue.take(WRITE_BYTES)
            return self.form.wire(
                [item if isinstance(item, bytes) else self._encode(item) for item in items]
            )
        self.queue = None
        self.limit = self.limit_least
        last, self.last = self.last, b""
        return last

    def send_control(self, control: bytes) -> None:
        """Send a control frame ahead of what waits; a newer one replaces one that waits."""
        if self.unsent:
            self.control = control
            return
        self.control = control
        self._drain_or_park()

    def finish(self, last: bytes, *, drop: bool = False) -> None:
        """Send what waits (with `drop` nothing of it), then `last`."""
        if drop:
            self.frames = ()
            self.size = 0
            self.queue = None
        self.last = last
        if not self.unsent:
            self._drain_or_park()

    def _drain_or_park(self) -> bool:
        """Send what the socket takes at once; return False if the outbox is parked now."""
        try:
            if self.drain():
                return True
        except OSError as error:
            self.owner.lost(str(error))
            return True
        self.owner.parked()
        return False
