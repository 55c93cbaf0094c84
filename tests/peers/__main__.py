"""`python -m tests.peers`: the same load on mdserver and on other servers, in turns.

What is measured has one core, and the load another one. Deliveries are verified for all servers.
`make bench-peers` makes what is started here.
"""

import argparse
import gc
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import frozen
from rich.console import Console

from mdserver.bench import processes, results, subjects
from mdserver.bench.encodings import ADAPTERS, ENCODINGS, Encoding
from mdserver.bench.fanout import (
    FanoutLoad,
    FanoutSide,
    TurnResult,
    compare,
    floor_side,
    mode_of,
    row_of,
    server_side,
)
from mdserver.bench.processes import BenchError
from mdserver.bench.results import Latencies, Row
from mdserver.bench.target import Running, local

BUILD = Path(__file__).parents[2] / "build"
TURNS = 5
BURSTS = (1, 20)
START_TIMEOUT_S = 30.0


@frozen
class Measured:
    """A server, and how clients speak to it; `running` is None for one that each load starts."""

    encoding: Encoding
    running: Running | None = None


@contextmanager
def nats() -> Iterator[Running]:
    """Run NATS with its listener for WebSocket."""
    port, websocket = processes.free_ports(2)
    with TemporaryDirectory(prefix="mdserver-bench-") as folder:
        file = Path(folder) / "nats.conf"
        file.write_text(
            f"listen: 127.0.0.1:{port}\n"
            f'websocket {{ listen: "127.0.0.1:{websocket}", no_tls: true }}\n'
        )
        with processes.started([str(BUILD / "go" / "nats-server"), "-c", str(file)]) as process:
            _wait_for(websocket)
            yield Running(local(websocket), pid=process.pid)


@contextmanager
def announced(*arguments: str) -> Iterator[Running]:
    """Run a server whose first line is its port."""
    with processes.started(arguments) as process:
        yield Running(local(int(processes.line(process))), pid=process.pid)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if time.monotonic() > deadline:
                raise BenchError(f"nothing listens on port {port}") from None
            time.sleep(0.05)
        else:
            return


NODE = BUILD / "bench-peers"
STARTERS: dict[str, Callable[[], AbstractContextManager[Running]]] = {
    "centrifugo": partial(announced, str(BUILD / "go" / "centrifuge")),
    "mqtt": partial(announced, "node", str(NODE / "mqtt.mjs")),
    "nats": nats,
    "socketio": partial(announced, "node", str(NODE / "socketio.mjs")),
    "websocket": partial(announced, "node", str(NODE / "ws.mjs")),
}


def fanouts(
    servers: Sequence[Measured],
    subscribers: int,
    seconds: float,
    progress: Callable[[str], None],
    settings: Sequence[str] = (),
) -> list[Row]:
    """Measure fan-outs of all servers and of the floor in turns; each row has the same floor.

    `settings` are those of the servers that are started here.
    """
    rows = []
    with ExitStack() as stack:
        stack.enter_context(processes.running_on(processes.cores()[1]))
        loads = [
            FanoutLoad(each.encoding, subscribers, running=each.running, settings=settings)
            for each in servers
        ]
        progress(f"{subscribers:,} subscribers connect to each of {len(loads)} servers")
        ground = stack.enter_context(floor_side(FanoutLoad(ENCODINGS["json"], subscribers)))
        sides = [stack.enter_context(server_side(load)) for load in loads]
        gc.freeze()
        for burst in BURSTS:
            ground_turns: list[TurnResult] = []
            turns: list[list[TurnResult]] = [[] for _ in sides]
            latencies = [Latencies() for _ in sides]
            for turn in range(1, TURNS + 1):
                progress(f"burst of {burst}, turn {turn} of {TURNS}")
                ground_turns.append(ground.turn(burst, seconds / TURNS, Latencies()))
                for side, taken, late in zip(sides, turns, latencies, strict=True):
                    taken.append(side.turn(burst, seconds / TURNS, late))
            for load, taken, late in zip(loads, turns, latencies, strict=True):
                row = row_of(load, mode_of(burst), taken, late)
                compare(row, ground_turns)
                rows.append(row)
        for index, side in enumerate(sides):
            _finish(side, rows[index :: len(sides)])
    return rows


def _finish(side: FanoutSide, rows: Sequence[Row]) -> None:
    side.finish()
    for row in rows:
        side.verifier.fill(row)


def main() -> int:
    """Measure, and return the exit status: 1 if a message was lost, repeated or altered."""
    options = argparse.ArgumentParser(prog="python -m tests.peers", description=__doc__)
    options.add_argument("--subscribers", type=int, default=1000)
    options.add_argument("--seconds", type=float, default=5.0, help="for each row")
    options.add_argument("--json", type=Path, help="append a JSON line for each row to this file")
    options.add_argument("--adapter", choices=sorted(STARTERS), action="append")
    options.add_argument(
        "--set",
        dest="settings",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a parameter of mdserver, repeatable",
    )
    given = options.parse_args()
    names = given.adapter or sorted(STARTERS)
    console = Console(stderr=True)
    with ExitStack() as stack:
        running = {name: stack.enter_context(STARTERS[name]()) for name in names}
        others = [Measured(ADAPTERS[name], running[name]) for name in names]
        servers = [Measured(ENCODINGS["json"]), Measured(ENCODINGS["binary"]), *others]
        rows = fanouts(servers, given.subscribers, given.seconds, console.print, given.settings)
        for each in servers:
            if each.encoding.name == "websocket":
                continue  # it has no subjects
            console.print(f"many subjects, {each.encoding.name}")
            rows += subjects.measure(
                subjects.SubjectsLoad(
                    each.encoding,
                    given.subscribers,
                    seconds=given.seconds,
                    running=each.running,
                    settings=given.settings,
                ),
                console.print,
            )
    for bench in ("one at a time", "bursts of 20", "20 a write"):
        results.show([row for row in rows if row.mode == bench], Console(width=160))
    if given.json is not None:
        results.write(rows, given.json)
    return 1 if any(row.lost or row.repeated or row.altered for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
