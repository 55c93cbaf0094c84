"""Subscribers of an open loop: they note when messages arrive, and come back when they are cut.

Unlike `connections.Connections`, a connection that ends is no failure here: the client connects
again, to the next server, and recovers what it missed. One epoll serves all clients of a process.
"""

import errno
import heapq
import os
import select
import socket
import ssl
import struct
from collections import Counter, deque
from collections.abc import Callable

from attrs import field, frozen

from mdserver.bench.encodings import ENCODINGS
from mdserver.bench.opening import Talk, sent
from mdserver.bench.processes import BenchError
from mdserver.bench.results import Latencies, Moment
from mdserver.bench.stamps import Arrivals, now_ns
from mdserver.bench.target import Running
from mdserver.bench.verify import ReceivedStream
from mdserver.bench.wire import Upgrade
from mdserver.core.commands import Ping, PositionAfter, Subscribe, WireCommand
from mdserver.core.events import Connected, Error, Pong, Status, StatusName
from mdserver.errors import RemoteProtocolError
from mdserver.limits import KB, NS_PER_S

OPEN_TIMEOUT_S = 30.0
RETRY_AFTER_S = 0.1
MOMENTS_MAX = 240  # intervals of a course: as many as a plot can show
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset, as a network that is cut does
_EVENTS_PER_POLL = 64
_MOMENT_DIGITS = 2
_buffer = memoryview(bytearray(256 * KB))


@frozen
class Crowd:
    """The subscribers of one load process.

    Client i subscribes to subject `i % len(subjects)`, and connects from source address
    `127.0.0.(1 + i % sources)` if the server is on this computer. With `cut_every_s` each client is
    cut that often and stays away for `away_s`. They connect from `open_at_ns` on, by the clock of
    `stamps.now_ns`.
    """

    running: Running
    encoding: str
    first: int
    count: int
    subjects: tuple[str, ...]
    content_bytes: int
    window: int = 64
    sources: int = 1
    cut_every_s: float | None = None
    away_s: float = 0.0
    open_at_ns: int = 0


@frozen
class LoopPhase:
    """A part of a measurement: the messages to be sent from this time until the next phase."""

    name: str
    from_ns: int


@frozen
class Tally:
    """What the clients of one process found; histograms are counts, and so can be merged."""

    phases: dict[str, list[tuple[int, int]]]
    moments: dict[int, list[tuple[int, int]]]
    back: list[tuple[int, int]]
    arrived: int
    cuts: int
    reconnects: int
    lost: int
    repeated: int
    altered: int
    faults: list[str] = field(factory=list)


class LoopClient:
    """One client: its connection, if there is one, and what it has received over all of them.

    `away_since_ns` is when it lost its connection, None while it has everything.
    """

    __slots__ = (
        "away_since_ns",
        "connected",
        "epoch",
        "history",
        "number",
        "opened",
        "socket",
        "stream",
        "subject",
        "talk",
        "tries",
    )

    def __init__(self, number: int, subject: int, stream: ReceivedStream) -> None:
        self.number = number
        self.subject = subject
        self.stream = stream
        self.epoch = 0
        self.history = ""
        self.socket: socket.socket | None = None
        self.talk: Talk | None = None
        self.connected = False
        self.opened = False
        self.tries = 0
        self.away_since_ns: int | None = None


class SubscriberPool:
    """All subscribers of one process."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._encoding = ENCODINGS[crowd.encoding]
        self._tls = crowd.running.context()
        self._upgrades = [
            Upgrade(str(address), self._encoding.subprotocol) for address in crowd.running.addresses
        ]
        self._epoll = select.epoll()
        self._by_fd: dict[int, LoopClient] = {}
        self._arrivals = Arrivals(crowd.content_bytes, self._arrived)
        self._subscribers = [self._subscriber(crowd.first + at) for at in range(crowd.count)]
        self._queue = deque(self._subscribers)
        self._opening = 0
        self._timers: list[tuple[int, int, Callable[[LoopClient], None], LoopClient]] = []
        self._timer_number = 0
        self._now_ns = 0
        self._late: Counter[int] = Counter()  # intended times of the messages of this round
        self._phases: list[tuple[LoopPhase, Latencies]] = []
        self._moments: dict[int, Latencies] = {}
        self._start_ns = 0
        self._moment_ns = NS_PER_S
        self._back = Latencies()
        self._cutting = False
        self.arrived = 0
        self.there = 0
        self.cuts = 0
        self.reconnects = 0

    def open(self, told: Callable[[], None]) -> None:
        """Open all connections; `told` is called again and again meanwhile.

        Raises BenchError if one is refused, or if none makes progress for 30 s.
        """
        deadline_ns = now_ns() + int(OPEN_TIMEOUT_S * NS_PER_S)
        there = 0
        while self.there < len(self._subscribers):
            self.step(0.1)
            told()
            if self.there > there:
                there, deadline_ns = self.there, now_ns() + int(OPEN_TIMEOUT_S * NS_PER_S)
            if now_ns() > deadline_ns:
                waiting = len(self._subscribers) - self.there
                raise BenchError(f"{waiting} connections stand still in opening")

    def begin(self, phase: LoopPhase, moment_ns: int) -> None:
        """Begin a phase; the first one begins the measurement, and the cuts."""
        self._phases.append((phase, Latencies()))
        if len(self._phases) > 1:
            return
        self._start_ns = phase.from_ns
        self._moment_ns = moment_ns
        every_s = self._crowd.cut_every_s
        if every_s is not None:
            self._cutting = True
            every_ns = int(every_s * NS_PER_S)
            for at, subscriber in enumerate(self._subscribers):
                share_ns = every_ns * (at + 1) // len(self._subscribers)
                self._at(self._start_ns + share_ns, self._cut, subscriber)

    def end_cuts(self) -> None:
        """Cut no client any more, so that all come back."""
        self._cutting = False

    def step(self, timeout_s: float) -> None:
        """Wait for sockets and timers, at most this long, and carry out what is due."""
        self._open_next()
        now = now_ns()
        if self._timers:
            timeout_s = min(timeout_s, max(0.0, (self._timers[0][0] - now) / NS_PER_S))
        events = self._epoll.poll(timeout_s, _EVENTS_PER_POLL)
        self._now_ns = now_ns()
        for fd, _ in events:
            subscriber = self._by_fd.get(fd)
            if subscriber is not None:
                self._continue(subscriber)
        self._record()
        while self._timers and self._timers[0][0] <= self._now_ns:
            _, _, act, subscriber = heapq.heappop(self._timers)
            act(subscriber)

    def missing(self, published: tuple[int, ...]) -> int:
        """Return how many messages have not arrived; `published` counts those of each subject."""
        return sum(
            max(0, published[each.subject] - each.stream.position) for each in self._subscribers
        )

    def tally(self, published: tuple[int, ...]) -> Tally:
        """Count what never came as lost, and return everything that was found."""
        for each in self._subscribers:
            self._arrivals.missing([each.stream], published[each.subject])
        found = self._arrivals
        return Tally(
            {phase.name: latencies.counts() for phase, latencies in self._phases},
            {at: latencies.counts() for at, latencies in self._moments.items()},
            self._back.counts(),
            self.arrived,
            self.cuts,
            self.reconnects,
            found.lost,
            found.repeated,
            found.altered,
            [str(fault) for fault in found.faults],
        )

    def close(self) -> None:
        """Close all connections."""
        for subscriber in self._by_fd.values():
            if subscriber.socket is not None:
                subscriber.socket.close()
        self._epoll.close()

    def _subscriber(self, number: int) -> LoopClient:
        stream = ReceivedStream(number, self._encoding.client(), _no_answer)
        return LoopClient(number, number % len(self._crowd.subjects), stream)

    def _at(self, when_ns: int, act: Callable[[LoopClient], None], subscriber: LoopClient) -> None:
        self._timer_number += 1
        heapq.heappush(self._timers, (when_ns, self._timer_number, act, subscriber))

    # Connections.

    def _open_next(self) -> None:
        while self._queue and self._opening < self._crowd.window:
            self._opening += 1
            self._connect(self._queue.popleft())

    def _connect(self, subscriber: LoopClient) -> None:
        addresses = self._crowd.running.addresses
        at = (subscriber.number + subscriber.tries) % len(addresses)
        address = addresses[at]
        connecting = socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET)
        connecting.setblocking(False)
        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address.loopback and self._crowd.sources > 1:
            source = f"127.0.0.{1 + subscriber.number % self._crowd.sources}"
            connecting.bind((source, 0))
        before = subscriber.stream
        stream = ReceivedStream(subscriber.number, self._encoding.client(), connecting.send)
        stream.position = before.position
        subscriber.epoch = before.epoch or subscriber.epoch
        subscriber.stream = stream
        subscriber.socket = connecting
        subscriber.connected = False
        subscriber.talk = self._talk(subscriber, self._upgrades[at])
        self._by_fd[connecting.fileno()] = subscriber
        self._epoll.register(connecting, select.EPOLLOUT)
        status = connecting.connect_ex((address.host, address.port))
        if status not in (0, errno.EINPROGRESS):
            self._failed(subscriber, os.strerror(status))

    def _talk(self, subscriber: LoopClient, upgrade: Upgrade) -> Talk:
        """Upgrade, subscribe, and wait until everything that was missed is there."""
        stream = subscriber.stream
        received = yield upgrade.request
        while (rest := upgrade.rest(received)) is None:
            received += yield b""
        self._arrivals.received(stream, rest)
        subject = self._crowd.subjects[subscriber.subject]
        positions = None
        if subscriber.history and (subscriber.epoch or not stream.position):
            after = PositionAfter(subscriber.history, subscriber.epoch, stream.position)
            positions = {subject: after}
        commands: list[WireCommand] = [
            *self._crowd.running.hello(),
            Subscribe(subjects=[subject], positions=positions),
            Ping(caught_up=True),
        ]
        to_send = sent(stream.codec, commands)
        while True:
            for event in stream.others:
                if isinstance(event, Connected):
                    subscriber.history = event.history
                elif isinstance(event, Error):
                    raise BenchError(f"the server answered {event.code}: {event.reason}")
                elif isinstance(event, Status) and event.status in _REFUSED:
                    raise BenchError(f"the server answered {event.status.value}: {event.reason}")
                elif isinstance(event, Pong):
                    stream.others.clear()
                    return
            stream.others.clear()
            self._arrivals.received(stream, (yield to_send))
            to_send = b""

    def _continue(self, subscriber: LoopClient) -> None:
        """Take what a connection has for us; a connection that ended is opened again."""
        try:
            self._go_on(subscriber)
        except (ConnectionError, RemoteProtocolError) as error:
            self._failed(subscriber, str(error))

    def _go_on(self, subscriber: LoopClient) -> None:
        talk = subscriber.talk
        if not subscriber.connected:
            if not self._established(subscriber):
                return
            subscriber.connected = True
            assert talk is not None
            to_send = next(talk)
        elif talk is None:
            self._arrivals.received(subscriber.stream, _read(subscriber))
            subscriber.stream.others.clear()
            return
        else:
            try:
                to_send = talk.send(_read(subscriber))
            except StopIteration:
                self._is_there(subscriber)
                return
        if to_send:
            assert subscriber.socket is not None
            subscriber.socket.send(to_send)

    def _established(self, subscriber: LoopClient) -> bool:
        """Continue the TCP and TLS handshakes; return whether both are done."""
        assert subscriber.socket is not None
        connecting = subscriber.socket
        if not isinstance(connecting, ssl.SSLSocket):
            status = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if status:
                raise ConnectionError(os.strerror(status))
            self._epoll.modify(connecting, select.EPOLLIN)
            if self._tls is None:
                return True
            at = (subscriber.number + subscriber.tries) % len(self._upgrades)
            connecting = self._tls.wrap_socket(
                connecting,
                server_hostname=self._crowd.running.addresses[at].host,
                do_handshake_on_connect=False,
            )
            subscriber.socket, subscriber.stream.answer = connecting, connecting.send
        try:
            connecting.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise BenchError(f"no TLS: {error}") from error
        return True

    def _is_there(self, subscriber: LoopClient) -> None:
        subscriber.talk = None
        self._opening -= 1
        self.there += 1
        if subscriber.opened:
            self.reconnects += 1
        subscriber.opened = True
        if subscriber.away_since_ns is not None:
            self._back.add(self._now_ns - subscriber.away_since_ns, 1)
            subscriber.away_since_ns = None

    def _failed(self, subscriber: LoopClient, reason: str) -> None:
        """Let a client whose connection ended try the next server."""
        self._drop(subscriber)
        if not subscriber.opened and len(self._upgrades) == 1:
            address = self._crowd.running.addresses[0]
            raise BenchError(f"cannot connect to {address}: {reason}")
        subscriber.tries += 1
        if subscriber.away_since_ns is None:
            subscriber.away_since_ns = now_ns()
        self._at(now_ns() + int(RETRY_AFTER_S * NS_PER_S), self._queue.append, subscriber)

    def _drop(self, subscriber: LoopClient) -> None:
        gone = subscriber.socket
        if gone is None:
            return
        if subscriber.talk is not None:
            self._opening -= 1
        else:
            self.there -= 1
        subscriber.talk = None
        subscriber.stream.rest = b""
        self._by_fd.pop(gone.fileno(), None)
        gone.close()
        subscriber.socket = None

    def _cut(self, subscriber: LoopClient) -> None:
        """End a connection without a word; the client comes back after its time away."""
        if not self._cutting:
            return
        every_s = self._crowd.cut_every_s
        assert every_s is not None
        self._at(self._now_ns + int(every_s * NS_PER_S), self._cut, subscriber)
        if subscriber.socket is None or subscriber.talk is not None:
            return  # it is away, or just coming back
        subscriber.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._drop(subscriber)
        self.cuts += 1
        subscriber.away_since_ns = self._now_ns
        back_ns = self._now_ns + int(self._crowd.away_s * NS_PER_S)
        self._at(back_ns, self._queue.append, subscriber)

    # Latencies.

    def _arrived(self, intended: tuple[int, ...]) -> None:
        for intended_ns in intended:
            self._late[intended_ns] += 1

    def _record(self) -> None:
        """Add the messages of a round to their histograms, one time for all of one message."""
        for intended_ns, count in self._late.items():
            self.arrived += count
            late_ns = self._now_ns - intended_ns
            for phase, latencies in reversed(self._phases):
                if phase.from_ns <= intended_ns:
                    latencies.add(late_ns, count)
                    break
            at = (intended_ns - self._start_ns) // self._moment_ns
            moment = self._moments.get(at)
            if moment is None:
                moment = self._moments[at] = Latencies(_MOMENT_DIGITS)
            moment.add(late_ns, count)
        self._late.clear()


_REFUSED = (StatusName.SUBSCRIBE_DENY, StatusName.CONNECT_DENY)


def course(moments: dict[int, Latencies], moment_s: float) -> list[Moment]:
    """Return what happened in each interval, in order; one without a message has no latencies."""
    if not moments:
        return []
    return [
        Moment(at * moment_s, each.count / moment_s, each.ms_at(50), each.ms_at(99), each.max_ms)
        if (each := moments.get(at)) is not None
        else Moment(at * moment_s, 0.0, None, None, None)
        for at in range(max(moments) + 1)
    ]


def _read(subscriber: LoopClient) -> bytes:
    assert subscriber.socket is not None
    try:
        size = subscriber.socket.recv_into(_buffer)
    except (ssl.SSLWantReadError, BlockingIOError):
        return b""
    if not size:
        raise ConnectionError("the server closed the connection")
    return bytes(_buffer[:size])


def _no_answer(_: bytes) -> None:
    """Take the place of a socket until there is one."""
