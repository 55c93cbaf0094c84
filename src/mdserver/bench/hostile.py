"""The effect of attackers on a neighbour: its round trips, and the memory of the server.

The server has a core to itself. The neighbour sends a command, waits for the answer, and repeats
that; it shares another core with the attacker, which is a process of its own.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from attrs import frozen

from mdserver.bench import processes, wire
from mdserver.bench.attackers import (
    ATTACKS,
    HISTORY_CONTENT_BYTES,
    HISTORY_MESSAGES,
    HISTORY_SUBJECT,
    KEY,
    command,
    opened,
)
from mdserver.bench.encodings import Encoding
from mdserver.bench.results import Latencies, Row
from mdserver.limits import MB, SUBPROTOCOL_JSON

QUIET = "quiet"
PAUSE_S = 0.004
ADDED_MS_MAX = 20.0
WARM_UP_S = 0.3


@frozen
class HostileLoad:
    """The load: each attack for this many seconds, at this many megabytes a second."""

    encoding: Encoding
    attacks: Sequence[str] = ATTACKS
    seconds: float = 5.0
    rate_mb: float = 2.0
    settings: Sequence[str] = ()


def measure(load: HostileLoad, progress: Callable[[str], None]) -> list[Row]:
    """Return a row without an attack and one for each attack, each from a server of its own."""
    rows = []
    with processes.running_on(processes.cores()[1]):
        for attack in (None, *load.attacks):
            progress(attack or QUIET)
            rows.append(measured(load, attack))
    return rows


def over_the_line(rows: Sequence[Row]) -> str | None:
    """Return which attacks exceed the quiet 99th percentile by more than ADDED_MS_MAX, or None."""
    quiet = rows[0].p99_ms or 0.0
    over = [row.mode for row in rows[1:] if (row.p99_ms or 0.0) > quiet + ADDED_MS_MAX]
    return f"a neighbour waits too long under {'; '.join(over)}" if over else None


def measured(load: HostileLoad, attack: str | None) -> Row:
    """Return the row of one attack, or of none."""
    with processes.server(load.settings) as (process, port):
        if attack == "histories":
            fill_history(port)
        before_kib = processes.resident_kib(process.pid)
        latencies = Latencies()
        if attack is None:
            count, seconds = round_trips(port, load.seconds, latencies)
            mode = QUIET
        else:
            with attacked(attack, port, load.rate_mb * MB) as attacker:
                time.sleep(WARM_UP_S)
                count, seconds = round_trips(port, load.seconds, latencies)
                resident_kib = processes.resident_kib(process.pid)
                attacker.terminate()
                sent, took_s = processes.line(attacker).split()
            mode = f"{attack}, {float(sent) / float(took_s) / MB:.2f} MB/s"
        resident_kib = resident_kib if attack else processes.resident_kib(process.pid)
        if process.poll() is not None:
            raise processes.BenchError(f"the server ended under {mode}")
    row = Row(
        bench="hostile",
        mode=mode,
        encoding=load.encoding.name,
        connections=1,
        count=count,
        seconds=seconds,
        per_s=count / seconds,
        resident_kib=resident_kib,
        kib_each=float(resident_kib - before_kib),
    )
    latencies.fill(row)
    return row


@contextmanager
def attacked(attack: str, port: int, bytes_per_s: float) -> Iterator[subprocess.Popen[bytes]]:
    """Run an attacker until the end of the block."""
    arguments = [
        sys.executable,
        "-m",
        "mdserver.bench.attackers",
        attack,
        str(port),
        str(bytes_per_s),
    ]
    with processes.started(arguments, on=processes.cores()[1]) as process:
        processes.line(process)
        yield process


def round_trips(port: int, seconds: float, latencies: Latencies) -> tuple[int, float]:
    """Measure round trips for this long; return their number and the seconds that they took."""
    ping = command(op="ping")
    with opened(port, SUBPROTOCOL_JSON) as sock:
        answered(sock, ping)  # not measured: `connected` comes before its answer
        count = 0
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            started_ns = time.monotonic_ns()
            answered(sock, ping)
            latencies.add(time.monotonic_ns() - started_ns, 1)
            count += 1
            time.sleep(PAUSE_S)
        return count, time.monotonic() - begun


def answered(sock: socket.socket, message: bytes) -> None:
    """Send a ping command and wait for its pong."""
    sock.sendall(message)
    received = b""
    while b'"pong"' not in received:
        more = sock.recv(4096)
        if not more:
            raise processes.BenchError("the server ended the neighbour's connection")
        received += more


def fill_history(port: int) -> None:
    """Publish the history that the attack `histories` requests."""
    publication = command(
        op="publish", subject=HISTORY_SUBJECT, content="x" * HISTORY_CONTENT_BYTES
    )
    with opened(port, SUBPROTOCOL_JSON) as sock:
        for _ in range(HISTORY_MESSAGES):
            sock.sendall(publication)
        answered(sock, wire.masked(b'{"op":"ping"}', wire.OPCODE_TEXT, KEY))
