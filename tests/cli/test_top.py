"""`mdserver top`: once in a pipe, live on a terminal."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from websockets.sync.client import connect

from tests.cli.conftest import Monitored
from tests.cli.test_mistakes import mdserver, settings
from tests.live import live_server, wait_for_line

PATIENCE_S = 60
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def test_in_a_pipe_top_is_printed_once(monitored: Monitored) -> None:
    monitor = monitored.monitor
    shown = mdserver("top", "--monitor", monitor, **monitored.password)
    assert (shown.status, shown.told) == (0, [])
    assert "\x1b" not in shown.out
    for word in ("messages in", "publication to commit", "/stocks/IBM", "NORMAL", "subjects 1"):
        assert word in shown.out
    assert "…" not in shown.out, "nothing is cut off"
    assert "q ends" not in shown.out


class Screen:
    """A terminal in which a command runs."""

    def __init__(self, controller: int) -> None:
        self._controller = controller
        self.shown = ""

    def wait_for(self, text: str) -> None:
        """Wait until the command has printed a text since the last call."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} is not in {self.shown!r}"
            if select.select([self._controller], [], [], left)[0]:
                read = os.read(self._controller, 65536).decode(errors="replace")
                self.shown = ESCAPES.sub("", self.shown + read)
        self.shown = self.shown.partition(text)[2]

    def read_to_end(self) -> None:
        """Read until the command has closed its terminal: it could not write, if nobody read."""
        deadline = time.monotonic() + PATIENCE_S
        while (left := deadline - time.monotonic()) > 0:
            try:
                if select.select([self._controller], [], [], left)[0]:
                    os.read(self._controller, 65536)
            except OSError:  # EIO: the terminal is closed
                return
        raise AssertionError("the command does not end")

    def press(self, key: str) -> None:
        os.write(self._controller, key.encode())


@contextmanager
def top(*words: str, **variables: str) -> Iterator[tuple[Screen, subprocess.Popen[bytes]]]:
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 140, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "mdserver.cli.main", "top", *words],
        stdin=terminal,
        stdout=terminal,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **variables, "TERM": "xterm", "COLUMNS": "140", "LINES": "50"},
    )
    os.close(terminal)
    try:
        yield Screen(controller), process
    finally:
        process.kill()
        process.wait()
        os.close(controller)


@pytest.mark.slow
def test_on_a_terminal_top_is_live_until_q(monitored: Monitored) -> None:
    server, monitor = monitored.server, monitored.monitor
    with top("--monitor", monitor, "--interval", "0.1", **monitored.password) as (screen, process):
        screen.wait_for("/stocks/IBM")
        screen.wait_for("q ends")
        with connect(server.url.replace("http", "ws") + "/ws") as socket:
            socket.send(json.dumps({"op": "subscribe", "subjects": ["/a/b"]}))
            socket.recv()
            screen.wait_for("sessions 1,")
        screen.wait_for("sessions 0,")
        screen.press("x")
        screen.wait_for("q ends")
        screen.press("q")
        screen.read_to_end()
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.slow
def test_top_goes_on_when_its_member_is_away(tmp_path: Path) -> None:
    arguments = settings(Entitlement="None", Monitor="HTTP", MonitorHTTP_Listen="127.0.0.1:0")
    with live_server(tmp_path, *arguments, "--set", "LogFormat=json") as server:
        ready = wait_for_line(server.log, '"ready"')
        monitor = str(ready["monitor"][0])  # type: ignore[index]
        with top("--monitor", monitor, "--interval", "0.1") as (screen, process):
            screen.wait_for("q ends")
            server.stop()
            screen.wait_for("cannot ask")
            screen.press("q")
            screen.read_to_end()
            assert process.wait(PATIENCE_S) == 0
