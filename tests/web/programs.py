"""Where the JavaScript client is, and programs in Node that talk with a test."""

import json
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CLIENT = HERE.parents[1] / "src" / "mdserver" / "web" / "client"
COMPILER = CLIENT / "node_modules" / "typescript" / "bin" / "tsc"
SOCKETS = "--experimental-websocket"
WAIT_S = 60


class Program:
    """A program in Node that prints a JSON value a line, and reads lines."""

    def __init__(self, name: str, *arguments: str) -> None:
        program = shutil.which("node")
        assert program is not None
        self.process = subprocess.Popen(
            [program, SOCKETS, name, *arguments],
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self.latest: dict[str, Any] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def told(self) -> Any:
        """Return the next value that it prints, which is then the latest of its kind."""
        told = json.loads(self._lines.get(timeout=WAIT_S))
        self.latest[told["kind"]] = told
        return told

    def until(self, kind: str) -> Any:
        """Return the next value of this kind."""
        while (told := self.told())["kind"] != kind:
            pass
        return told

    def tell(self, line: str) -> None:
        """Give it a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()


@contextmanager
def program(name: str, *arguments: str) -> Iterator[Program]:
    """Run a program of this folder until the end of the `with` block."""
    started = Program(name, *arguments)
    with started.process:
        try:
            yield started
        finally:
            started.process.kill()
