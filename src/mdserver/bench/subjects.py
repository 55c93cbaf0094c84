"""Many subjects with one subscriber each, as in applications that publish to single users.

One publisher writes a batch of publications at a time, each to the next subject in turn, with a
bounded number of publications under way. Every delivery is verified, as in a fan-out. Any server
needs one send for each publication here, so differences come mostly from the path of a publication
through the server.
"""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from attrs import define, frozen

from mdserver.bench import processes
from mdserver.bench.connections import Connections
from mdserver.bench.encodings import Encoding
from mdserver.bench.fanout import TurnResult, compare, per_cpu_s, per_s
from mdserver.bench.opening import Talk, sent
from mdserver.bench.processes import BenchError
from mdserver.bench.results import Row
from mdserver.bench.target import Running, ServersUnderTest, opened, own_subject
from mdserver.bench.verify import ReceivedStream, Verifier, content
from mdserver.core.commands import Publish, Subscribe
from mdserver.limits import NS_PER_S

TURNS = 6
ARRIVAL_TIMEOUT_S = 10.0


@frozen
class SubjectsLoad:
    """The load: `batch` publications a write, at most `window` of them under way.

    `against` is the Python interpreter of an environment with another version of the server, which
    takes turns with the measured one; None to measure one version alone.
    """

    encoding: Encoding
    subjects: int = 1000
    content_bytes: int = 128
    batch: int = 20
    window: int = 200
    seconds: float = 6.0
    against: str | None = None
    running: Running | None = None
    settings: Sequence[str] = ()


@define
class SubjectsSide:
    """A server with a subscriber for each subject `subject/<number>`; `published` is of all."""

    load: SubjectsLoad
    target: ServersUnderTest
    subject: str
    subscribers: Connections
    verifier: Verifier
    write: Callable[[bytes], int]
    drain: Callable[[], None]
    encoded: Callable[[Sequence[Publish]], bytes]
    published: int = 0

    def turn(self, seconds: float) -> TurnResult:
        """Publish for this long, then wait for what is under way."""
        load = self.load
        cpu_s = self.target.cpu_s
        begun = time.perf_counter_ns()
        until = begun + int(seconds * NS_PER_S)
        under_way = deliveries = missing = 0
        while not missing and time.perf_counter_ns() < until:
            while under_way + load.batch <= load.window:
                self.publish()
                under_way += load.batch
            left = self.subscribers.receive(load.batch, ARRIVAL_TIMEOUT_S)
            missing = max(0, left)
            under_way -= load.batch - left
            deliveries += load.batch - left
        deliveries += under_way - self.subscribers.receive(under_way, ARRIVAL_TIMEOUT_S)
        elapsed_s = (time.perf_counter_ns() - begun) / NS_PER_S
        return TurnResult(deliveries, elapsed_s, self.target.cpu_s - cpu_s)

    def publish(self) -> None:
        """Write the next batch; raise BenchError if the server does not take it."""
        load = self.load
        numbers = range(self.published, self.published + load.batch)
        wire = self.encoded(
            [
                Publish(
                    subject=f"{self.subject}/{number % load.subjects}",
                    content=content(1 + number // load.subjects, load.content_bytes),
                )
                for number in numbers
            ]
        )
        if self.write(wire) < len(wire):
            raise BenchError("the server reads too slowly: lower --window")
        if load.encoding.server is None:
            self.drain()
        self.published += load.batch

    def finish(self) -> None:
        """Wait for the deliveries under way, and count the missing ones."""
        self.subscribers.fence()
        whole, more = divmod(self.published, self.load.subjects)
        streams = self.subscribers.streams
        self.verifier.missing(streams[:more], whole + 1)
        self.verifier.missing(streams[more:], whole)


def measure(load: SubjectsLoad, progress: Callable[[str], None]) -> list[Row]:
    """Return one row; the rates of the other version, if any, are in the columns of the floor.

    Raises BenchError if a server cannot be started or disconnects a client.
    """
    with ExitStack() as stack:
        stack.enter_context(processes.running_on(processes.cores()[1]))
        progress(f"{load.subjects:,} subscribers connect")
        side = stack.enter_context(_side(load))
        other = stack.enter_context(_side(load, load.against)) if load.against else None
        gc.freeze()
        turns: list[TurnResult] = []
        other_turns: list[TurnResult] = []
        for number in range(1, TURNS + 1):
            progress(f"turn {number} of {TURNS}")
            if other is not None:
                other_turns.append(other.turn(load.seconds / TURNS))
            turns.append(side.turn(load.seconds / TURNS))
        row = Row(
            bench="subjects",
            mode=f"{load.batch} a write",
            encoding=load.encoding.name,
            connections=load.subjects,
            content_bytes=load.content_bytes,
            count=sum(turn.deliveries for turn in turns),
            seconds=sum(turn.seconds for turn in turns),
            per_s=per_s(turns),
            per_cpu_s=per_cpu_s(turns),
        )
        compare(row, other_turns)
        side.finish()
        side.verifier.fill(row)
    return [row]


@contextmanager
def _side(load: SubjectsLoad, python: str | None = None) -> Iterator[SubjectsSide]:
    encoding = load.encoding
    # Another version is one that is started, whatever runs already.
    running = None if python else load.running
    with opened(running, load.settings, python) as target, ExitStack() as stack:
        verifier = Verifier(load.content_bytes)
        context = target.running.context()
        subscribers = stack.enter_context(
            Connections(target.addresses, encoding.client, verifier, context)
        )
        publishers = stack.enter_context(
            Connections(target.addresses[:1], encoding.client, verifier, context)
        )
        user = own_subject()

        def subscribed(stream: ReceivedStream, verifier: Verifier) -> Talk:
            subject = f"{user}/{stream.subscriber}"
            return target.opening(encoding, [Subscribe(subjects=[subject])])(stream, verifier)

        subscribers.open(load.subjects, subscribed)
        publishers.open(1, target.opening(encoding))
        (publisher,) = publishers

        def encoded(commands: Sequence[Publish]) -> bytes:
            return sent(publisher.stream.codec, commands, join=False)

        yield SubjectsSide(
            load,
            target,
            user,
            subscribers,
            verifier,
            publisher.socket.send,
            publishers.drain,
            encoded,
        )
        publishers.fence()
