"""The processes of a measurement: the server, the floor, and the cores they may use.

What is measured gets the first core, or as many as `--cores` says, and the load others if there are
any. A process does not outlive the block that started it.
"""

import os
import random
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

from mdserver.errors import MdserverError
from mdserver.limits import KB

_PORTS = range(20_000, 32_000)
STOP_TIMEOUT_S = 10.0
START_TIMEOUT_S = 30.0
_LINE_BYTES_MAX = 4 * KB
_STDERR_BYTES_SHOWN = 2 * KB
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Not asked again: a block of `running_on` has fewer, and the server that it starts has others.
ALLOWED = tuple(sorted(os.sched_getaffinity(0)))
_measured_cores: ContextVar[int] = ContextVar("measured_cores", default=1)


class BenchError(MdserverError):
    """A measurement cannot be made, or what was measured did not do its work."""


def cores() -> tuple[set[int], set[int]]:
    """Return the cores of what is measured and of the load; they overlap if there are too few."""
    return set(ALLOWED[: _measured_cores.get()]), {ALLOWED[-1]}


@contextmanager
def measured_on(count: int) -> Iterator[None]:
    """Give what is measured so many cores in the block. Raises BenchError if there are fewer."""
    if count > len(ALLOWED):
        raise BenchError(f"--cores {count}: this process may use {len(ALLOWED)}")
    token = _measured_cores.set(count)
    try:
        yield
    finally:
        _measured_cores.reset(token)


@contextmanager
def running_on(allowed: set[int]) -> Iterator[None]:
    """Keep this process, and what it starts in the block, to these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, allowed)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def started(
    arguments: Sequence[str],
    stdin: int = subprocess.DEVNULL,
    on: set[int] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process with a pipe as stdout until the end of the block.

    It runs on the cores of what is measured, or on the cores `on`; `environment` is added to ours.
    """
    with tempfile.TemporaryFile() as errors:
        with running_on(cores()[0] if on is None else on):
            process = subprocess.Popen(
                arguments,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                env={**os.environ, **(environment or {})},
            )
        try:
            yield process
        except BenchError as error:
            if process.poll() is not None:
                raise BenchError(f"{error}\n{_last_words(errors)}") from None
            raise
        finally:
            _stop(process)


def line(process: subprocess.Popen[bytes], timeout_s: float = START_TIMEOUT_S) -> str:
    """Return the next line that the process writes.

    Raises BenchError if it ends or takes too long instead.
    """
    assert process.stdout is not None
    deadline = time.monotonic() + timeout_s
    received = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not received.endswith(b"\n"):
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise BenchError(f"{process.args!r} wrote no line within {timeout_s:g} s")
            byte = os.read(process.stdout.fileno(), 1)
            if not byte or len(received) >= _LINE_BYTES_MAX:
                process.wait(STOP_TIMEOUT_S)
                raise BenchError(f"{process.args!r} ended with status {process.returncode}")
            received += byte
    return received.decode().strip()


@contextmanager
def server(
    settings: Sequence[str] = (), scheme: str = "http", python: str | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a server on a free port of 127.0.0.1; yield the process and the port.

    The port is that of its first listener for `scheme`, "http" or "https". `settings` are further
    `Name=value` parameters, of which a later one replaces an earlier one. `python` is the
    interpreter, if it is another one than ours.
    """
    with tempfile.TemporaryDirectory(prefix="mdserver-bench-") as folder:
        # A journal that is asked for is not found by the next measurement, nor left behind.
        command = server_command((f"JournalFolder={Path(folder) / 'journal'}", *settings))
        with started([python or sys.executable, *command[1:]]) as process:
            yield process, server_port(process, scheme)


def server_command(settings: Sequence[str]) -> list[str]:
    """Return the command that starts a server with these parameters; later ones win."""
    chosen = {}
    # All clients of a measurement come from one address.
    many = "MaxConnectionsPerAddress=1000000"
    for setting in ("Listen=127.0.0.1:0", "Entitlement=None", many, *settings):
        chosen[setting.partition("=")[0]] = setting
    arguments = [sys.executable, "-m", "mdserver.cli.main", "run"]
    for setting in chosen.values():
        arguments += ["--set", setting]
    return arguments


def server_port(process: subprocess.Popen[bytes], scheme: str = "http") -> int:
    """Wait until a server serves; return the port of its first listener for `scheme`.

    Raises BenchError if it ends instead, or takes more than 30 s.
    """
    ready = line(process)
    for url in ready.split():
        if url.startswith(f"{scheme}:"):
            return int(url.rpartition(":")[2])
    raise BenchError(f"the server said {ready!r} where its address was expected")


def free_ports(count: int) -> list[int]:
    """Return ports on 127.0.0.1 that were free a moment ago.

    Members must know each other's ports before they start. The ports are below those that a kernel
    gives to outgoing connections (Linux from 32768, RFC 6335 from 49152), so that none of these
    takes one meanwhile.
    """
    with ExitStack() as stack:
        ports: list[int] = []
        for port in random.sample(_PORTS, len(_PORTS)):
            try:
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    raise BenchError(f"there are no {count} free ports from {_PORTS.start} to {_PORTS.stop}")


def resident_kib(pid: int) -> int:
    """Return the resident memory of a process and its workers in KiB (proc(5), VmRSS)."""
    found = [
        int(row.split()[1])
        for each in with_children(pid)
        for row in Path(f"/proc/{each}/status").read_text().splitlines()
        if row.startswith("VmRSS:")
    ]
    if not found:
        raise BenchError(f"process {pid} has no resident memory: it ended")
    return sum(found)


def highest_resident_kib(pid: int) -> int:
    """Return the most resident memory that a process had in KiB (proc(5), VmHWM), 0 if it ended."""
    for row in Path(f"/proc/{pid}/status").read_text().splitlines():
        if row.startswith("VmHWM:"):
            return int(row.split()[1])
    return 0


def cpu_s(pid: int) -> float:
    """Return the processor time that a process and its workers have used so far, in seconds.

    It is that of user and system together.
    """
    ticks = 0
    for each in with_children(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_S


def descriptors(pid: int) -> int:
    """Return how many files and sockets a process and its workers have open."""
    found = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    for each in with_children(pid)[1:]:
        with suppress(OSError):  # one that ended meanwhile
            found += len(list(Path(f"/proc/{each}/fd").iterdir()))
    return found


def with_children(pid: int) -> list[int]:
    """Return a process and those that it started and that still run."""
    found = [pid]
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # a thread that ended meanwhile
            found += map(int, (thread / "children").read_text().split())
    return found


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _last_words(errors: BinaryIO) -> str:
    end = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, end - _STDERR_BYTES_SHOWN))
    return errors.read().decode(errors="replace").strip()
