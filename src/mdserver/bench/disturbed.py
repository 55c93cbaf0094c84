"""Open loops that something disturbs: connections, slow readers, cuts, the end of a member."""

import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from attrs import evolve, field, frozen

from mdserver.bench import processes
from mdserver.bench.clients import Crowd
from mdserver.bench.cluster import MemberProcess, cluster
from mdserver.bench.crowds import crowds, shares
from mdserver.bench.open_loop import (
    BEGIN_AFTER_S,
    BenchProgress,
    Found,
    Loop,
    OpenLoad,
    load_cores,
    opened_loop,
)
from mdserver.bench.processes import BenchError
from mdserver.bench.results import Row
from mdserver.bench.slow_clients import slow_clients
from mdserver.bench.stamps import now_ns, until
from mdserver.bench.target import Running, ServersUnderTest, local, opened, own_subject
from mdserver.limits import KB, NS_PER_S

STORM_SECONDS_MAX = 600.0
RESTART_TIMEOUT_S = 120.0
CLOSE_TIMEOUT_S = 10.0
SPAWN_S = 1.0  # until a load process can connect
SETTLE_SHARE = 1 / 6  # of a soak, before its memory is looked at


def latency(load: OpenLoad, progress: BenchProgress) -> list[Row]:
    """Measure latencies of deliveries and of results while nothing disturbs."""
    with opened_loop(load, progress, load.seconds) as loop:
        loop.play("deliveries", load.seconds)
        return loop.rows("latency")[0]


def held(load: OpenLoad, progress: BenchProgress) -> list[Row]:
    """Open very many connections, hold them for `load.seconds`, then send one message to all.

    The first row has the connections, the second one the message: its longest latency is the time
    until every client had it. Raises BenchError if a connection ends meanwhile.
    """
    with ExitStack() as stack:
        if load.running is None:
            stack.enter_context(processes.running_on(load_cores()))
        target = stack.enter_context(opened(load.running, load.settings))
        before_kib, cpu_s = target.resident_kib, target.cpu_s
        begun_ns = now_ns()
        loop = stack.enter_context(
            opened_loop(evolve(load, rate=1.0, burst=1), progress, 1.0, target=target)
        )
        opened_s, opened_cpu_s = (now_ns() - begun_ns) / NS_PER_S, target.cpu_s - cpu_s
        loop.hold(load.seconds)
        held_kib, cpu_s = target.resident_kib, target.cpu_s
        loop.play("one message to all", 1.0)
        rows, found = loop.rows("held")
        if found.reconnects:
            raise BenchError(f"{found.reconnects} connections ended while they were held")
        rows[0].per_cpu_s = _rate(rows[0].count, target.cpu_s - cpu_s)
        rows[0].seconds = (rows[0].max_ms or 0.0) / 1000
        rows[0].per_s = _rate(rows[0].count, rows[0].seconds) or 0.0
        row = loop.row("held", "connections", load.clients, opened_s, found)
        row.per_cpu_s = _rate(load.clients, opened_cpu_s)
        row.intended_per_s = None
        row.resident_kib = held_kib
        if held_kib is not None and before_kib is not None:
            row.kib_each = (held_kib - before_kib) / load.clients
        return [row, *rows]


def _rate(count: int, seconds: float) -> float | None:
    return count / seconds if seconds else None


def storm(load: OpenLoad, newcomers: int, progress: BenchProgress) -> list[Row]:
    """Measure latencies before and while `newcomers` connect as fast as the server takes them.

    The last row has their connections, and how many a second there were.
    """
    with opened_loop(load, progress, load.seconds * 2) as loop, ExitStack() as stack:
        loop.play("before", load.seconds)
        start_ns = now_ns() + int(SPAWN_S * NS_PER_S)
        crowd = Crowd(
            loop.target.running,
            load.encoding.name,
            0,
            newcomers,
            (own_subject(),),
            load.content_bytes,
            load.window,
            load.sources,
            open_at_ns=start_ns,
        )
        storming = stack.enter_context(crowds(shares(crowd, load.processes)))
        until(start_ns - int(BEGIN_AFTER_S * NS_PER_S))  # the phase begins with the storm
        ended_ns = 0

        def all_there(now: int) -> bool:
            nonlocal ended_ns
            storming.look()
            if storming.open and not ended_ns:
                ended_ns = now
            return bool(ended_ns)

        loop.play("storm", STORM_SECONDS_MAX, all_there)
        if not ended_ns:
            raise BenchError(f"the storm took more than {STORM_SECONDS_MAX:g} s")
        rows, found = loop.rows("storm")
        seconds = (ended_ns - start_ns) / NS_PER_S
        row = loop.row("storm", "connections", newcomers, seconds, found)
        row.connections = newcomers
        return [*rows, row]


def slow(load: OpenLoad, count: int, progress: BenchProgress) -> list[Row]:
    """Measure latencies before and while further subscribers never read what they are sent.

    The last row has for how many of them messages waited at the end, and how much for each. The
    server has disconnected the others, by its policy or because they were silent for twice
    `KeepAliveInterval`. Servers on other computers have no such row.
    """
    # They answer no ping either, and are to stay for as long as this takes.
    load = evolve(load, settings=("KeepAliveInterval=3600", *load.settings))
    with opened_loop(load, progress, load.seconds * 2) as loop, ExitStack() as stack:
        loop.play("before", load.seconds)
        progress(f"{count:,} slow clients connect")
        subjects = list(loop.pacer.subjects)
        never = stack.enter_context(slow_clients(loop.target, load.encoding, count, subjects))
        loop.play("beside slow clients", load.seconds)
        waiting = never.waiting()
        rows, found = loop.rows("slow")
        if waiting is None:
            return rows
        row = loop.row("slow", "slow clients", len(waiting), load.seconds, found)
        row.connections = count
        row.kib_each = sum(waiting) / KB / len(waiting) if waiting else None
        return [*rows, row]


def jitter(load: OpenLoad, cut_every_s: float, away_s: float, progress: BenchProgress) -> list[Row]:
    """Measure latencies while each client is cut again and again, and recovers what it missed.

    The row of clients has how long it took from a cut until one had everything again.
    """
    with opened_loop(load, progress, load.seconds, cut_every_s, away_s) as loop:
        loop.play("deliveries", load.seconds)
        rows, found = loop.rows("jitter")
        return [*rows, _back(loop, "jitter", "clients that came back", load.seconds, found)]


@frozen
class Restart:
    """What ends a member and starts it again; `finished` says whether it is back."""

    act: Callable[[], None]
    failed: list[str] = field(factory=list)

    def begin(self) -> threading.Thread:
        """Carry it out beside the load."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        try:
            self.act()
        except (BenchError, OSError, subprocess.SubprocessError) as error:
            self.failed.append(str(error))


def avalanche(load: OpenLoad, command: str | None, progress: BenchProgress) -> list[Row]:
    """Measure how long it takes until all clients of a member that ends are back and have all.

    Without servers that run already a cluster of three is started, and its last member is killed
    and started again; otherwise `command` does that to a member. The publisher is at the first one.
    """
    with ExitStack() as stack:
        if load.running is not None:
            if command is None:
                raise BenchError("--restart has to say which command restarts a member")
            try:
                words = shlex.split(command)
            except ValueError as error:
                raise BenchError(f"--restart {command}: {error}") from None
            target = ServersUnderTest(load.running)
            restart = Restart(lambda: _run_command(words))
        else:
            progress("a cluster of three starts")
            members = stack.enter_context(cluster(load.settings))
            target = ServersUnderTest(Running(local(*(member.port for member in members))))
            restart = Restart(lambda: _killed(members[-1]))
        loop = stack.enter_context(
            opened_loop(load, progress, load.seconds * 4, target=target, exact=True)
        )
        loop.play("before", load.seconds)
        acting = restart.begin()
        left_at: list[int] = []

        def over(now: int) -> bool:
            """Whether the member is back, and so are all clients for a while."""
            if acting.is_alive() or loop.there < load.clients:
                left_at.clear()
            elif not left_at:
                left_at.append(now)
            return bool(left_at) and now - left_at[0] > load.seconds * NS_PER_S

        loop.play("from the restart on", RESTART_TIMEOUT_S, over)
        if restart.failed:
            raise BenchError(f"the member was not restarted: {restart.failed[0]}")
        rows, found = loop.rows("avalanche")
        return [*rows, _back(loop, "avalanche", "clients that came back", rows[1].seconds, found)]


def soak(load: OpenLoad, cut_every_s: float, progress: BenchProgress) -> list[Row]:
    """Measure a long loop with churn: latencies, the growth of memory, descriptors that are left.

    Memory is compared with that after the first sixth. Of servers that run already only the process
    that `--pid` names is looked into.
    """
    samples: list[tuple[float, int]] = []
    with ExitStack() as stack:
        if load.running is None:
            stack.enter_context(processes.running_on(load_cores()))
        target = stack.enter_context(opened(load.running, load.settings))
        before = None if target.pid is None else processes.descriptors(target.pid)
        with opened_loop(
            load, progress, load.seconds, cut_every_s, away_s=1.0, target=target
        ) as loop:
            begun_ns = now_ns()

            def sample(now: int) -> bool:
                kib = target.resident_kib
                if kib is not None:
                    samples.append(((now - begun_ns) / NS_PER_S, kib))
                return False

            loop.play("deliveries", load.seconds, sample)
            rows, found = loop.rows("soak")
        settled = [kib for at, kib in samples if at >= load.seconds * SETTLE_SHARE]
        if settled:
            rows[0].resident_kib = settled[-1]
            rows[0].grown_percent = 100.0 * (settled[-1] - settled[0]) / settled[0]
        if target.pid is not None and before is not None:
            rows[0].descriptors_left = _left(target.pid, before)
        return [*rows, _back(loop, "soak", "clients that came back", load.seconds, found)]


def _left(pid: int, before: int) -> int:
    """Wait until the server has closed what clients left open; return how many more it has."""
    deadline = time.monotonic() + CLOSE_TIMEOUT_S
    while (now := processes.descriptors(pid)) > before and time.monotonic() < deadline:
        time.sleep(0.05)
    return now - before


def _back(loop: Loop, bench: str, mode: str, seconds: float, found: Found) -> Row:
    row = loop.row(bench, mode, found.back.count, seconds, found)
    found.back.fill(row)
    return row


def _killed(member: MemberProcess) -> None:
    member.kill()
    member.start()
    member.wait_ready()


def _run_command(words: Sequence[str]) -> None:
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=RESTART_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise BenchError(f"{words[0]} ended with {done.returncode}: {done.stderr.strip()}")
