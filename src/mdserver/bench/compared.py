"""Two servers that take turns under the same fan-out: the cost of one addition.

Because they take turns, other load on the computer affects both alike. Each burst gives two rows.
"""

import gc
import http.client
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing

from attrs import evolve

from mdserver.bench import processes
from mdserver.bench.certificate import certificate
from mdserver.bench.fanout import (
    FanoutLoad,
    FanoutSide,
    TurnResult,
    compare,
    mode_of,
    row_of,
    server_side,
)
from mdserver.bench.results import Latencies, Row

TURNS = 20
MONITOR_PATHS = ("/metrics", "/statistics", "/jolokia/read/mdserver:*")
READ_EVERY_S = 1.0  # of the server's processor time, so that other load does not add to its part


def stalled(load: FanoutLoad, count: int, progress: Callable[[str], None]) -> list[Row]:
    """Compare a server whose subscribers all read with one that has `count` more who never do.

    `kib_each` is by how much the memory of the server grew for each of these, in the second row.
    Raises BenchError if a server cannot be started or disconnects a subscriber that reads.
    """
    with ExitStack() as stack:
        stack.enter_context(processes.running_on(processes.cores()[1]))
        progress(f"{load.subscribers:,} subscribers connect to each of two servers")
        sides = [stack.enter_context(server_side(load, others)) for others in (0, count)]
        before_kib = [_resident_kib(side) for side in sides]
        rows = _rows("stalled", load, sides, ("0 never read", f"{count} never read"), progress)
        for index, row in enumerate(rows):
            row.resident_kib = _resident_kib(sides[index % 2])
            row.kib_each = (row.resident_kib - before_kib[index % 2]) / count
        return rows


def encrypted(load: FanoutLoad, progress: Callable[[str], None]) -> list[Row]:
    """Compare a server without TLS, which stands for the floor, with one that has it.

    Raises BenchError if a server cannot be started or disconnects a subscriber.
    """
    with ExitStack() as stack:
        stack.enter_context(processes.running_on(processes.cores()[1]))
        progress(f"{load.subscribers:,} subscribers connect to each of two servers")
        sides = [
            stack.enter_context(server_side(load)),
            stack.enter_context(server_side(load, tls=stack.enter_context(certificate()))),
        ]
        return _rows("encrypted", load, sides, ("plain", "TLS"), progress)


def monitored(load: FanoutLoad, progress: Callable[[str], None]) -> list[Row]:
    """Compare a server without a monitor with one that has all of them, each of which is read.

    HTTP, Prometheus and JMX (Jolokia, all MBeans) are read once in each second of its processor
    time, PUSH publishes, and the bridge for RMI runs if there is Java. Raises BenchError if a
    server cannot be started or disconnects a subscriber.
    """
    with ExitStack() as stack:
        stack.enter_context(processes.running_on(processes.cores()[1]))
        progress(f"{load.subscribers:,} subscribers connect to each of two servers")
        (port,) = processes.free_ports(1)
        without = evolve(load, settings=[*load.settings, "Monitor="])
        added = ["Monitor=HTTP, PROMETHEUS, PUSH, JMX", f"MonitorHTTP.Listen=127.0.0.1:{port}"]
        if shutil.which("java") is not None:
            added.append("MonitorJMX.Listen=127.0.0.1:0")
        with_monitor = evolve(load, settings=[*load.settings, *added])
        sides = [stack.enter_context(server_side(one)) for one in (without, with_monitor)]
        publish, pid, read_at = sides[1].publish, sides[1].pid, 0.0
        assert pid is not None  # it is started here

        def publish_and_read(numbers: Sequence[int]) -> None:
            nonlocal read_at
            if processes.cpu_s(pid) >= read_at:
                read_at = processes.cpu_s(pid) + READ_EVERY_S
                # The reads are far apart on a busy machine: the server ends idle connections.
                with closing(http.client.HTTPConnection("127.0.0.1", port)) as monitor:
                    for path in MONITOR_PATHS:
                        monitor.request("GET", path)
                        monitor.getresponse().read()
            publish(numbers)

        sides[1].publish = publish_and_read
        return _rows("monitored", load, sides, ("no monitor", "monitored"), progress)


def _resident_kib(side: FanoutSide) -> int:
    assert side.pid is not None  # both servers are started here
    return processes.resident_kib(side.pid)


def _rows(
    bench: str,
    load: FanoutLoad,
    sides: Sequence[FanoutSide],
    names: Sequence[str],
    progress: Callable[[str], None],
) -> list[Row]:
    rows = []
    gc.freeze()
    for burst in load.bursts:
        turns: list[list[TurnResult]] = [[] for _ in sides]
        latencies = [Latencies() for _ in sides]
        for turn in range(1, TURNS + 1):
            progress(f"burst of {burst}, turn {turn} of {TURNS}")
            for side, taken, late in zip(sides, turns, latencies, strict=True):
                taken.append(side.turn(burst, load.seconds / TURNS, late))
        for name, taken, late in zip(names, turns, latencies, strict=True):
            row = row_of(load, f"{mode_of(burst)}, {name}", taken, late)
            row.bench = bench
            rows.append(row)
        compare(rows[-1], turns[0])
    for index, side in enumerate(sides):
        side.finish()
        for row in rows[index :: len(sides)]:
            side.verifier.fill(row)
    return rows
