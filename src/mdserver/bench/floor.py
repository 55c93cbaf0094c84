"""The floor: a C program that sends each message to each subscriber with one `send`.

No server that sends one message at a time to each subscriber can be faster. So the ratio to the
floor says more than messages a second, which depend on the computer.
"""

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

from mdserver.bench.processes import BenchError, line, started

_NUMBER = struct.Struct("=I")
_COMPILE_TIMEOUT_S = 60.0


class Floor:
    """A running floor: every subscriber of `port` gets every message of `publish`."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.pid = process.pid
        self.port = port
        self._process = process

    def wait_for_subscribers(self) -> None:
        """Wait until the floor has accepted all its subscribers."""
        line(self._process)

    def publish(self, messages: Sequence[bytes]) -> None:
        """Send these messages to all subscribers; they reach the floor together."""
        assert self._process.stdin is not None
        parts = [_NUMBER.pack(len(messages))]
        for message in messages:
            parts += (_NUMBER.pack(len(message)), message)
        batch = memoryview(b"".join(parts))
        while batch:
            batch = batch[os.write(self._process.stdin.fileno(), batch) :]


def compiler() -> str | None:
    """Return the path of a C compiler, or None."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


@contextmanager
def floor(subscribers: int) -> Iterator[Floor]:
    """Build the floor and run it on the measured core.

    Raises BenchError if there is no compiler.
    """
    with TemporaryDirectory(prefix="mdserver-bench-") as folder:
        program = _built(Path(folder))
        with started([str(program), str(subscribers)], subprocess.PIPE) as process:
            yield Floor(process, int(line(process)))


def _built(folder: Path) -> Path:
    cc = compiler()
    if cc is None:
        raise BenchError("the floor needs a C compiler: install cc, or measure with --no-floor")
    program = folder / "floor"
    source = folder / "floor.c"
    source.write_bytes(resources.files("mdserver.bench").joinpath("floor.c").read_bytes())
    done = subprocess.run(
        [cc, "-O2", "-o", str(program), str(source)],
        capture_output=True,
        text=True,
        timeout=_COMPILE_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise BenchError(f"{cc} cannot build the floor: {done.stderr.strip()}")
    return program
