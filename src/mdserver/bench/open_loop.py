"""An open loop: publications by a timetable to subscribers in load processes of their own.

Unlike a fan-out, whose next message waits until all have the last, it does not slow down with the
server. Latencies count from the time at which a message was to be sent (`stamps`).
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from attrs import field, frozen

from mdserver.bench import processes
from mdserver.bench.clients import MOMENTS_MAX, Crowd, LoopPhase, Tally, course
from mdserver.bench.crowds import Crowds, crowds, shares
from mdserver.bench.encodings import Encoding
from mdserver.bench.pacer import Pacer, Timetable
from mdserver.bench.pipelining import publisher
from mdserver.bench.results import Latencies, Row
from mdserver.bench.stamps import now_ns
from mdserver.bench.target import Running, ServersUnderTest, opened, own_subject
from mdserver.core.commands import Connect, WireCommand
from mdserver.limits import NS_PER_S

BEGIN_AFTER_S = 0.1  # until then all load processes know of a phase
_HOLD_STEP_S = 0.1
_MOMENT_S_MIN = 0.1


class BenchProgress:
    """Shows how far a measurement is; this one shows nothing."""

    def __call__(self, text: str, part: float | None = None) -> None:
        """Show what goes on, and which part of it is done, from 0 to 1, if that is known."""


@frozen
class OpenLoad:
    """The load: how many clients on how many subjects, how often something is published to them.

    `rate` counts publications a second, `burst` of which are sent together. `running` are servers
    that run already; without them one is started with `settings`.
    """

    encoding: Encoding
    clients: int = 1000
    subjects: int = 1
    rate: float = 50.0
    burst: int = 1
    content_bytes: int = 128
    seconds: float = 10.0
    processes: int = 1
    sources: int = 1
    window: int = 64
    running: Running | None = None
    settings: Sequence[str] = ()


@frozen
class Played:
    """A phase that has been played."""

    name: str
    from_ns: int
    seconds: float
    cpu_s: float


@frozen
class Found:
    """What all load processes found, merged."""

    phases: dict[str, Latencies]
    moments: dict[int, Latencies]
    back: Latencies
    cuts: int
    reconnects: int
    lost: int
    repeated: int
    altered: int
    faults: list[str] = field(factory=list)


class Loop:
    """One open loop: `play` phases of it, then `rows`."""

    def __init__(
        self,
        load: OpenLoad,
        target: ServersUnderTest,
        pacer: Pacer,
        subscribers: Crowds,
        progress: BenchProgress,
        length_s: float,
    ) -> None:
        self.load = load
        self.target = target
        self.pacer = pacer
        self.progress = progress
        self._subscribers = subscribers
        self._moment_s = max(_MOMENT_S_MIN, length_s / MOMENTS_MAX)
        self._played: list[Played] = []

    @property
    def there(self) -> int:
        """How many clients are connected now."""
        return self._subscribers.report().there

    def hold(self, seconds: float) -> None:
        """Do nothing for this long but answer the server and look after the load processes.

        Raises BenchError or RemoteProtocolError if a load process fails or the publisher's
        connection ends.
        """
        end_ns = now_ns() + int(seconds * NS_PER_S)
        while (now := now_ns()) < end_ns:
            self._subscribers.look()
            self.progress(f"{self.there:,} clients are connected")
            self.pacer.listen(min(now + int(_HOLD_STEP_S * NS_PER_S), end_ns))

    def play(
        self, name: str, seconds: float, enough: Callable[[int], bool] = lambda _: False
    ) -> None:
        """Publish for this long, or until `enough` of the time says so.

        Raises BenchError if a load process fails or a publication is refused.
        """
        start_ns = now_ns() + int(BEGIN_AFTER_S * NS_PER_S)
        self._subscribers.begin(LoopPhase(name, start_ns), int(self._moment_s * NS_PER_S))
        cpu_s = self.target.cpu_s

        def tend(now: int) -> bool:
            self._subscribers.look()
            done = (now - start_ns) / NS_PER_S / seconds
            self.progress(f"{name}: {self.there:,} clients are connected", min(1.0, max(0.0, done)))
            return enough(now)

        self.pacer.run(Timetable(start_ns, self.load.rate, self.load.burst, seconds), tend)
        took_s = (now_ns() - start_ns) / NS_PER_S
        self._played.append(Played(name, start_ns, took_s, self.target.cpu_s - cpu_s))

    def rows(self, bench: str) -> tuple[list[Row], Found]:
        """Wait for what is under way; return a row for each phase and one for the results.

        What was lost, repeated or altered is that of the whole loop, in each row.
        """
        self.progress("waiting for what is under way")
        published = self.pacer.published
        found = merged(self._subscribers.finish(published))
        rows = []
        for played in self._played:
            latencies = found.phases.get(played.name, Latencies())
            row = self.row(bench, played.name, latencies.count, played.seconds, found)
            row.per_cpu_s = latencies.count / played.cpu_s if played.cpu_s else None
            latencies.fill(row)
            rows.append(row)
        rows[0].course = course(found.moments, self._moment_s)
        seconds = sum(played.seconds for played in self._played)
        results = self.row(bench, "results of publications", sum(published), seconds, found)
        self.pacer.results.fill(results)
        return [*rows, results], found

    def row(self, bench: str, mode: str, count: int, seconds: float, found: Found) -> Row:
        """Return a row of this loop without latencies."""
        return Row(
            bench=bench,
            mode=mode,
            encoding=self.load.encoding.name,
            connections=self.load.clients,
            content_bytes=self.load.content_bytes,
            count=count,
            seconds=seconds,
            per_s=count / seconds if seconds else 0.0,
            lost=found.lost,
            repeated=found.repeated,
            altered=found.altered,
            intended_per_s=self.load.rate,
            reconnects=found.reconnects,
        )


@contextmanager
def opened_loop(
    load: OpenLoad,
    progress: BenchProgress,
    length_s: float,
    cut_every_s: float | None = None,
    away_s: float = 0.0,
    target: ServersUnderTest | None = None,
    exact: bool = False,
) -> Iterator[Loop]:
    """Open a publisher and all subscribers; start a server if none runs and no target is given.

    `length_s` is how long the loop is expected to last. With `cut_every_s` clients are cut that
    often and stay away for `away_s`; with `exact` publications survive the end of a member.
    """
    with ExitStack() as stack:
        if target is None:
            if load.running is None:
                stack.enter_context(processes.running_on(load_cores()))
            target = stack.enter_context(opened(load.running, load.settings))
        # Under a user's token the numbers of a name go on from run to run, so each run has its own.
        name = f"bench-{secrets.token_hex(5)}"
        hello: list[WireCommand] = [Connect(publisher=name)] if exact else []
        if exact and target.running.token is not None:
            hello = [Connect(publisher=name, token=target.running.token)]
        own = own_subject()
        subjects = tuple(f"{own}/{at}" for at in range(load.subjects))
        crowd = Crowd(
            target.running,
            load.encoding.name,
            0,
            load.clients,
            subjects,
            load.content_bytes,
            load.window,
            load.sources,
            cut_every_s,
            away_s,
        )
        progress(f"{load.clients:,} clients connect")
        subscribers = stack.enter_context(crowds(shares(crowd, load.processes)))
        subscribers.wait_open()
        # Only now: nothing would answer the server's pings while very many clients connect.
        connection = publisher(stack, target, load.encoding, hello)
        pacer = Pacer(connection, subjects, load.content_bytes, exact)
        yield Loop(load, target, pacer, subscribers, progress, length_s)


def load_cores() -> set[int]:
    """Return the cores of the load beside a server that is started: all but the server's."""
    allowed = set(processes.ALLOWED)
    return (allowed - processes.cores()[0]) or allowed


def merged(tallies: Sequence[Tally]) -> Found:
    """Add up what the load processes found."""
    phases: dict[str, Latencies] = {}
    moments: dict[int, Latencies] = {}
    back = Latencies()
    for tally in tallies:
        for name, counts in tally.phases.items():
            phases.setdefault(name, Latencies()).merge(counts)
        for at, counts in tally.moments.items():
            moments.setdefault(at, Latencies(2)).merge(counts)
        back.merge(tally.back)
    return Found(
        phases,
        moments,
        back,
        sum(tally.cuts for tally in tallies),
        sum(tally.reconnects for tally in tallies),
        sum(tally.lost for tally in tallies),
        sum(tally.repeated for tally in tallies),
        sum(tally.altered for tally in tallies),
        [fault for tally in tallies for fault in tally.faults],
    )
