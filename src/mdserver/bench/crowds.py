"""Several load processes: each has its share of the clients, and all begin together."""

import itertools
import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Literal

from attrs import evolve, frozen

from mdserver.bench.clients import OPEN_TIMEOUT_S, Crowd, LoopPhase, SubscriberPool, Tally
from mdserver.bench.processes import STOP_TIMEOUT_S, BenchError
from mdserver.bench.stamps import now_ns, until
from mdserver.errors import MdserverError
from mdserver.limits import NS_PER_S

ARRIVAL_TIMEOUT_S = 10.0
_REPORT_EVERY_S = 0.25
_ANSWER_TIMEOUT_S = 60.0
_STEP_S = 0.02


@frozen
class LoadReport:
    """How a load process does: messages that arrived, clients that are connected now."""

    arrived: int = 0
    there: int = 0
    reconnects: int = 0


@frozen
class BeginPhase:
    """Told to a process: a phase begins; a course has intervals of `moment_ns`."""

    phase: LoopPhase
    moment_ns: int


@frozen
class FinishRun:
    """Told to a process: all is published; wait for what is missing, and tell what was found."""

    published: tuple[int, ...]


class Crowds:
    """The load processes of one measurement."""

    def __init__(self, ends: Sequence[Connection]) -> None:
        self._ends = ends
        self._reports = {end: LoadReport() for end in ends}
        self._opening = set(ends)

    @property
    def open(self) -> bool:
        """Whether all clients have been connected."""
        return not self._opening

    def wait_open(self) -> None:
        """Wait until all clients are connected; raise BenchError if a process fails."""
        while self._opening:
            for end in self._received(OPEN_TIMEOUT_S + STOP_TIMEOUT_S):
                self._take(end)

    def begin(self, phase: LoopPhase, moment_ns: int) -> None:
        """Tell all processes that a phase begins."""
        for end in self._ends:
            end.send(BeginPhase(phase, moment_ns))

    def report(self) -> LoadReport:
        """Return the newest reports of all processes, added up."""
        each = self._reports.values()
        return LoadReport(
            sum(one.arrived for one in each),
            sum(one.there for one in each),
            sum(one.reconnects for one in each),
        )

    def look(self) -> None:
        """Take reports that are there; raise BenchError if a process failed."""
        for end in wait(self._ends, 0):
            assert isinstance(end, Connection)
            self._take(end)

    def finish(self, published: tuple[int, ...]) -> list[Tally]:
        """Wait until everything arrived, or nothing does for 10 s; return what was found."""
        for end in self._ends:
            end.send(FinishRun(published))
        tallies: dict[Connection, Tally] = {}
        while len(tallies) < len(self._ends):
            for end in self._received(_ANSWER_TIMEOUT_S):
                message = self._take(end)
                if isinstance(message, Tally):
                    tallies[end] = message
        return [tallies[end] for end in self._ends]

    def _received(self, timeout_s: float) -> list[Connection]:
        ready = [end for end in wait(self._ends, timeout_s) if isinstance(end, Connection)]
        if not ready:
            raise BenchError(f"a load process said nothing for {timeout_s:g} s")
        return ready

    def _take(self, end: Connection) -> object:
        try:
            message = end.recv()
        except EOFError:
            raise BenchError("a load process ended") from None
        if isinstance(message, LoadReport):
            self._reports[end] = message
        elif isinstance(message, BenchError):
            raise message
        elif message == "open":
            self._opening.discard(end)
        return message


@contextmanager
def crowds(shares: Sequence[Crowd], cores: set[int] | None = None) -> Iterator[Crowds]:
    """Run a load process for each share until the end of the block, on these cores."""
    spawning = multiprocessing.get_context("spawn")
    ends = []
    running = []
    try:
        for share in shares:
            ours, theirs = spawning.Pipe()
            process = spawning.Process(target=_run, args=(share, theirs, cores), daemon=True)
            process.start()
            theirs.close()
            ends.append(ours)
            running.append(process)
        yield Crowds(ends)
    finally:
        for end in ends:
            end.close()
        for process in running:
            process.join(STOP_TIMEOUT_S)
            if process.is_alive():
                process.kill()
                process.join()


def shares(crowd: Crowd, processes: int) -> list[Crowd]:
    """Divide a crowd among processes as evenly as possible; each gets at least one client."""
    processes = min(processes, crowd.count)
    bounds = [crowd.count * at // processes for at in range(processes + 1)]
    return [
        evolve(crowd, first=crowd.first + first, count=until - first)
        for first, until in itertools.pairwise(bounds)
    ]


def _run(crowd: Crowd, end: Connection, cores: set[int] | None) -> None:
    """Be a load process: obey what comes through the pipe, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started us decides
    if cores is not None:
        os.sched_setaffinity(0, cores)
    clients = SubscriberPool(crowd)
    try:
        until(crowd.open_at_ns)
        reporter = _Reporter(clients, end)
        clients.open(reporter.report)
        end.send("open")
        _serve(clients, end, reporter)
    except MdserverError as error:
        _tell(end, BenchError(str(error)))
    except OSError as error:
        servers = ", ".join(map(str, crowd.running.addresses))
        _tell(end, BenchError(f"clients of {servers}: {error}"))
    except EOFError:
        pass  # nobody wants to know any more
    finally:
        clients.close()
        end.close()


class _Reporter:
    """Reports how the clients of a process do, four times a second at most."""

    def __init__(self, clients: SubscriberPool, end: Connection) -> None:
        self._clients = clients
        self._end = end
        self._next_ns = 0

    def report(self) -> None:
        """Report if it is time to."""
        now = now_ns()
        if now >= self._next_ns:
            self._next_ns = now + int(_REPORT_EVERY_S * NS_PER_S)
            clients = self._clients
            self._end.send(LoadReport(clients.arrived, clients.there, clients.reconnects))


def _serve(clients: SubscriberPool, end: Connection, reporter: _Reporter) -> None:
    look_at_ns = 0
    while True:
        clients.step(_STEP_S)
        now = now_ns()
        if now < look_at_ns:
            continue
        look_at_ns = now + int(_STEP_S * NS_PER_S)
        reporter.report()
        if not end.poll():
            continue
        order = end.recv()
        if isinstance(order, BeginPhase):
            clients.begin(order.phase, order.moment_ns)
        elif isinstance(order, FinishRun):
            _finish(clients, order.published, reporter)
            end.send(clients.tally(order.published))


def _finish(clients: SubscriberPool, published: tuple[int, ...], reporter: _Reporter) -> None:
    clients.end_cuts()
    missing = clients.missing(published)
    deadline_ns = now_ns() + int(ARRIVAL_TIMEOUT_S * NS_PER_S)
    while missing and now_ns() < deadline_ns:
        clients.step(_STEP_S)
        reporter.report()
        left = clients.missing(published)
        if left < missing:
            missing, deadline_ns = left, now_ns() + int(ARRIVAL_TIMEOUT_S * NS_PER_S)


def _tell(end: Connection, what: Literal["open"] | BenchError) -> None:
    with suppress(OSError):
        end.send(what)
