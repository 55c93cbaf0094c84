"""What subscribers who never read do to the others.

Two servers take turns under the same load; one of them has some more subscribers whose connections
stay open and are never read. What is compared is the latency of those who do read, and memory.
"""

import gc
from collections.abc import Callable
from contextlib import ExitStack

from mdserver.bench import processes
from mdserver.bench.fanout import Load, Turn, mode_of, row_of, server_side
from mdserver.bench.results import Latencies, Row

TURNS = 20


def measure(load: Load, stalled: int, progress: Callable[[str], None]) -> list[Row]:
    """For each burst a row where all read, then one with the stalled ones.

    `kib_each` is what the memory of the server grew by, for each stalled one in the second row.
    BenchError if a server cannot be started or disconnects somebody who reads.
    """
    rows = []
    with ExitStack() as stack:
        stack.enter_context(processes.running_on(processes.cores()[1]))
        progress(f"{load.subscribers:,} subscribers connect to each of two servers")
        sides = [stack.enter_context(server_side(load, others)) for others in (0, stalled)]
        before_kib = [processes.resident_kib(side.pid) for side in sides]
        gc.freeze()
        for burst in load.bursts:
            turns: list[list[Turn]] = [[] for _ in sides]
            latencies = [Latencies() for _ in sides]
            for turn in range(1, TURNS + 1):
                progress(f"burst of {burst}, turn {turn} of {TURNS}")
                for side, taken, late in zip(sides, turns, latencies, strict=True):
                    taken.append(side.turn(burst, load.seconds / TURNS, late))
            for index, others in enumerate((0, stalled)):
                mode = f"{mode_of(burst)}, {others} never read"
                row = row_of(load, mode, turns[index], latencies[index])
                row.bench = "stalled"
                row.resident_kib = processes.resident_kib(sides[index].pid)
                row.kib_each = (row.resident_kib - before_kib[index]) / max(others, 1)
                rows.append(row)
        for index, side in enumerate(sides):
            side.finish()
            for row in rows[index::2]:
                side.verifier.fill(row)
    return rows
