"""Measure the way of one publication through a real server, socket to socket.

`mdserver run` runs in the main thread under `sys.setprofile`, as its users start it. A client in a
second thread publishes one message at a time to a subscriber, and what the main thread called
between the two sockets is the way. Timers add calls to some of the ways, so the commonest of many
is the figure.

Run as a program it prints the way as JSON: the server takes over signals and standard output, so
each measurement has a process of its own.
"""

import base64
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

from attrs import frozen

import mdserver
from mdserver.cli.main import exit_status

ROOT = f"{Path(mdserver.__file__).parent}{os.sep}"
FIRST = "server/clients/serve.py:serve_connection"
"""Resumed when the publisher's socket can be read."""
WARM_UP = 30
WAYS = 40
TIMEOUT_S = 30
SUBJECT = "/house/way"
# With native code it would depend on the machine what is a call, and which call writes to a socket.
SETTINGS = ("Listen=127.0.0.1:0", "Entitlement=None", "FanoutEngine=python")


@frozen
class Way:
    """The calls of one publication, each as `module:function`."""

    calls: tuple[str, ...]

    @property
    def modules(self) -> list[str]:
        """The modules in the order in which they are met first."""
        return list(dict.fromkeys(call.partition(":")[0] for call in self.calls))

    @property
    def moves(self) -> list[str]:
        """The calls that go to another module than the call before."""
        modules = [call.partition(":")[0] for call in self.calls]
        pairs = itertools.pairwise(modules)
        return [f"{one} -> {other}" for one, other in pairs if one != other]

    @property
    def changes(self) -> int:
        """Count those calls."""
        return len(self.moves)

    def within(self, package: str) -> "Way":
        """Return the calls of one package, with what it calls elsewhere left out."""
        return Way(tuple(call for call in self.calls if call.startswith(package + "/")))


def measured(*settings: str) -> Way:
    """Measure in a process of its own; `settings` are more of `--set`, such as `Journal=on`."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.house.way", *settings],
        capture_output=True,
        text=True,
        timeout=2 * TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"the measurement failed: {done.stderr}")
    return Way(tuple(json.loads(done.stdout.splitlines()[-1])))


class Recorder:
    """A profile function: while `on`, notes each call of a function of the server.

    `sent` is how many there were when something was last written to a socket.
    """

    def __init__(self) -> None:
        self.begin(on=False)

    def begin(self, *, on: bool = True) -> None:
        """Forget what was noted."""
        self.calls: list[str] = []
        self.sent = 0
        self.on = on

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self.on:
            return
        if event == "call" and frame.f_code.co_filename.startswith(ROOT):
            code = frame.f_code
            self.calls.append(f"{code.co_filename.removeprefix(ROOT)}:{code.co_qualname}")
        elif event == "c_call" and writes_to_a_socket(argument):
            self.sent = len(self.calls)

    def end(self) -> list[str]:
        """Return the calls from the first of a connection to the last that wrote to a socket."""
        self.on = False
        # Before it the server may still be counting what it sent for the message before.
        return self.calls[self.calls.index(FIRST) : self.sent]


def writes_to_a_socket(function: Any) -> bool:
    """Return whether a function in C does; a coroutine's `send`, which resumes it, does not."""
    on = getattr(function, "__self__", None)
    return isinstance(on, socket.socket) and function.__name__ in {"send", "sendmsg"}


class Client:
    """A blocking WebSocket connection: frames of fewer than 126 bytes, and one at a time."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        key = base64.b64encode(bytes(16)).decode()
        self.sock.sendall(
            b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key.encode() + b"\r\n\r\n"
        )
        self.received = b""
        self._until(b"\r\n\r\n")

    def send(self, **command: object) -> None:
        """Send a command."""
        payload = json.dumps(command).encode()
        # A mask of zeros leaves the payload as it is.
        self.sock.sendall(bytes((0x81, 0x80 | len(payload))) + bytes(4) + payload)

    def wait_for(self, event: bytes) -> None:
        """Receive until these bytes, and leave nothing of what came with them."""
        self._until(event)
        self.received = b""

    def close(self) -> None:
        """Close the connection without a close frame."""
        self.sock.close()

    def _until(self, mark: bytes) -> None:
        while mark not in self.received:
            data = self.sock.recv(65536)
            if not data:
                raise AssertionError(f"the server ended after {self.received!r}")
            self.received += data
        self.received = self.received.partition(mark)[2]


def play(
    port: int, subscribed_at: int, recorder: Recorder, subject: str = SUBJECT
) -> list[list[str]]:
    """Publish one message at a time; return the calls of each way after those that warm up.

    The publisher connects to `port`, the subscriber to `subscribed_at`.
    """
    ways = []
    with closing(Client(subscribed_at)) as subscriber, closing(Client(port)) as publisher:
        subscriber.send(op="subscribe", subjects=[subject])
        subscriber.send(op="publish", subject=subject, content="subscribed", id="first")
        subscriber.wait_for(b'"subscribed"')
        for number in range(WARM_UP + WAYS):
            recorder.begin()
            publisher.send(op="publish", subject=subject, content="hello", id=f"n{number}")
            subscriber.wait_for(b'"hello"')
            publisher.wait_for(b"PUBLISH_OK")
            calls = recorder.end()
            if number >= WARM_UP:
                ways.append(calls)
    return ways


class ReadyLine:
    """Takes the place of standard output: hands the port of the ready line to a callback."""

    def __init__(self, ready: Any) -> None:
        self._text = ""
        self._ready = ready

    def write(self, text: str) -> int:
        """Look for the ready line."""
        self._text += text
        found = re.search(r"mdserver ready: \S+:(\d+)\s", self._text)
        if found:
            self._text = ""
            self._ready(int(found[1]))
        return len(text)

    def flush(self) -> None:
        """Everything is written at once."""


def run(settings: Sequence[str]) -> int:
    """Run the server and the client; print the commonest way as JSON."""
    recorder = Recorder()
    ways: list[list[str]] = []

    def client(port: int) -> None:
        try:
            ways.extend(play(port, port, recorder))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def ready(port: int) -> None:
        threading.Thread(target=client, args=(port,), daemon=True).start()

    stdout, sys.stdout = sys.stdout, ReadyLine(ready)  # type: ignore[assignment]
    sys.setprofile(recorder)
    try:
        given = [word for one in (*SETTINGS, *settings) for word in ("--set", one)]
        status = exit_status(["run", *given])
    finally:
        sys.setprofile(None)
        sys.stdout = stdout
    if status == 0:
        # Now and then both clients are answered in one pass, and a timer may add a call.
        print(json.dumps(Counter(map(tuple, ways)).most_common(1)[0][0]))
    return status


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
