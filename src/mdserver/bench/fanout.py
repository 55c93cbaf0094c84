"""Fan-out: one publisher, N subscribers of one subject, every delivery verified.

There are two modes: one message at a time (the next one is published when all subscribers have the
last), and bursts that arrive at the server together. The server and the floor take turns, so that
other load on the computer affects both alike; a rate is the median of the turns.
"""

import gc
import ssl
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import define, frozen

from mdserver.bench import processes
from mdserver.bench.connections import Connections
from mdserver.bench.encodings import Encoding
from mdserver.bench.floor import floor
from mdserver.bench.opening import plain, sent
from mdserver.bench.results import Latencies, Row
from mdserver.bench.target import (
    Running,
    local,
    opened,
    own_subject,
)
from mdserver.bench.verify import Verifier, content
from mdserver.core.commands import Publish, Subscribe
from mdserver.limits import NS_PER_S

FLOOR_SUBJECT = "/bench/0123456789"  # as long as one that `own_subject` makes
TURNS = 5
ARRIVAL_TIMEOUT_S = 10.0


@frozen
class FanoutLoad:
    """The load: how many subscribers, how large messages, how long a mode lasts.

    `rate` is how many bursts a second there are at most; None for as many as possible.
    """

    encoding: Encoding
    subscribers: int = 1000
    content_bytes: int = 128
    bursts: Sequence[int] = (1, 20)
    seconds: float = 5.0
    with_floor: bool = True
    rate: float | None = None
    running: Running | None = None
    settings: Sequence[str] = ()


@frozen
class TurnResult:
    """The result of one turn of a side."""

    deliveries: int
    seconds: float
    cpu_s: float


@define
class FanoutSide:
    """The server or the floor: how to publish to it, and its subscribers.

    `publish` takes the numbers of the messages of one burst; `published` is the newest of them.
    `pid` is None for a server that ran already.
    """

    pid: int | None
    subscribers: Connections
    verifier: Verifier
    publish: Callable[[Sequence[int]], None]
    published: int = 0

    def turn(
        self, burst: int, seconds: float, latencies: Latencies, rate: float | None = None
    ) -> TurnResult:
        """Publish bursts for this long, each when every subscriber has the one before.

        With `rate` there are at most as many a second; the first is published at once.
        """
        count = len(self.subscribers.streams)
        deliveries = 0
        start = 0

        def arrived(messages: int) -> None:
            if messages:
                latencies.add(time.perf_counter_ns() - start, messages)

        cpu_s = self._cpu_s()
        begun = time.perf_counter_ns()
        until = begun + int(seconds * NS_PER_S)
        missing = 0
        while not missing and (start := time.perf_counter_ns()) < until:
            self.publish(range(self.published + 1, self.published + burst + 1))
            self.published += burst
            missing = self.subscribers.receive(count * burst, ARRIVAL_TIMEOUT_S, arrived)
            deliveries += count * burst - missing
            if rate is not None:
                next_ns = min(start + int(NS_PER_S / rate), until)
                time.sleep(max(0.0, (next_ns - time.perf_counter_ns()) / NS_PER_S))
        elapsed_s = (time.perf_counter_ns() - begun) / NS_PER_S
        return TurnResult(deliveries, elapsed_s, self._cpu_s() - cpu_s)

    def _cpu_s(self) -> float:
        return 0.0 if self.pid is None else processes.cpu_s(self.pid)

    def finish(self) -> None:
        """Wait for what is under way; count what never came."""
        self.subscribers.fence()
        self.verifier.missing(self.subscribers.streams, self.published)


def measure(load: FanoutLoad, progress: Callable[[str], None]) -> list[Row]:
    """Return one row for each burst; `progress` is called with what begins.

    Raises BenchError if the server or the floor cannot be started or disconnects a subscriber.
    """
    rows = []
    with ExitStack() as stack:
        stack.enter_context(processes.running_on(processes.cores()[1]))
        progress(f"{load.subscribers:,} subscribers connect")
        server = stack.enter_context(server_side(load))
        ground = stack.enter_context(floor_side(load)) if load.with_floor else None
        gc.freeze()
        for burst in load.bursts:
            turns: list[TurnResult] = []
            ground_turns: list[TurnResult] = []
            latencies, ground_latencies = Latencies(), Latencies()
            for turn in range(1, TURNS + 1):
                progress(f"burst of {burst}, turn {turn} of {TURNS}")
                if ground is not None:
                    ground_turns.append(
                        ground.turn(burst, load.seconds / TURNS, ground_latencies, load.rate)
                    )
                turns.append(server.turn(burst, load.seconds / TURNS, latencies, load.rate))
            row = row_of(load, mode_of(burst), turns, latencies)
            compare(row, ground_turns)
            if ground_turns:
                row.floor_p99_ms = ground_latencies.ms_at(99)
            rows.append(row)
        server.finish()
    for row in rows:
        server.verifier.fill(row)
    return rows


@contextmanager
def server_side(
    load: FanoutLoad, stalled: int = 0, tls: tuple[Path, ssl.SSLContext] | None = None
) -> Iterator[FanoutSide]:
    """Run a server with a publisher and subscribers, and `stalled` more who never read.

    With `tls`, the key store of the server and the context of the clients, all connections are
    encrypted.
    """
    encoding = load.encoding
    with opened(load.running, load.settings, store=tls and tls[0]) as target, ExitStack() as stack:
        verifier = Verifier(load.content_bytes)
        context = tls[1] if tls is not None else target.running.context()
        subscribers, others = (
            stack.enter_context(Connections(target.addresses, encoding.client, verifier, context))
            for _ in range(2)
        )
        publishers = stack.enter_context(
            Connections(target.addresses[:1], encoding.client, verifier, context)
        )
        subject = own_subject()
        opening = target.opening(encoding, [Subscribe(subjects=[subject])])
        others.open(stalled, opening)
        subscribers.open(load.subscribers, opening)
        publishers.open(1, target.opening(encoding))
        (publisher,) = publishers

        def publish(numbers: Sequence[int]) -> None:
            commands = [
                Publish(subject=subject, content=content(number, load.content_bytes))
                for number in numbers
            ]
            publisher.socket.send(sent(publisher.stream.codec, commands, join=False))
            if encoding.server is None:
                publishers.drain()

        yield FanoutSide(target.pid, subscribers, verifier, publish)
        publishers.fence()


@contextmanager
def floor_side(load: FanoutLoad) -> Iterator[FanoutSide]:
    """Run a floor with as many subscribers, who receive the same bytes as those of the server."""
    with floor(load.subscribers) as ground, ExitStack() as stack:
        verifier = Verifier(load.content_bytes)
        subscribers = stack.enter_context(
            Connections(local(ground.port), load.encoding.client, verifier)
        )
        subscribers.open(load.subscribers, plain)
        ground.wait_for_subscribers()

        def publish(numbers: Sequence[int]) -> None:
            message = load.encoding.message
            ground.publish(
                [message(FLOOR_SUBJECT, n, content(n, load.content_bytes)) for n in numbers]
            )

        yield FanoutSide(ground.pid, subscribers, verifier, publish)


def mode_of(burst: int) -> str:
    """Return the name of the mode with bursts of this size."""
    return "one at a time" if burst == 1 else f"bursts of {burst}"


def row_of(load: FanoutLoad, mode: str, turns: Sequence[TurnResult], latencies: Latencies) -> Row:
    """Return the row for the turns of a server."""
    row = Row(
        bench="fanout",
        mode=mode,
        encoding=load.encoding.name,
        connections=load.subscribers,
        content_bytes=load.content_bytes,
        count=sum(turn.deliveries for turn in turns),
        seconds=sum(turn.seconds for turn in turns),
        per_s=per_s(turns),
        per_cpu_s=per_cpu_s(turns),
    )
    latencies.fill(row)
    return row


def compare(row: Row, ground_turns: Sequence[TurnResult]) -> None:
    """Write the results of the floor's turns into the row of the server."""
    if not ground_turns:
        return
    row.floor_per_s = per_s(ground_turns)
    row.ratio = row.per_s / row.floor_per_s
    row.floor_per_cpu_s = per_cpu_s(ground_turns)
    if row.per_cpu_s and row.floor_per_cpu_s:
        row.cpu_ratio = row.per_cpu_s / row.floor_per_cpu_s


def per_s(turns: Sequence[TurnResult]) -> float:
    """Return the median rate of the turns, by the clock."""
    return statistics.median(turn.deliveries / turn.seconds for turn in turns)


def per_cpu_s(turns: Sequence[TurnResult]) -> float | None:
    """Return the rate for a second of processor time; None if too little was used to tell."""
    cpu_s = sum(turn.cpu_s for turn in turns)
    return sum(turn.deliveries for turn in turns) / cpu_s if cpu_s else None
