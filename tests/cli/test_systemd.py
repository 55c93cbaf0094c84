"""A supervised server: what it says to systemd, and the sockets that systemd holds for it."""

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from mdserver.server.systemd import systemd
from tests.live import live_server, post

PATIENCE_S = 60
# What systemd does before it starts a unit: the sockets are at descriptor 3, and LISTEN_PID says
# for whom they are.
ACTIVATION = """import os, sys
os.dup2(int(os.environ["HANDED_OVER"]), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[1], sys.argv[1:])
"""
ACTIVATED = (sys.executable, "-c", ACTIVATION)


@pytest.fixture
def notified() -> Iterator[socket.socket]:
    """The socket that systemd listens on, in the abstract namespace."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0mdserver-test-{os.getpid()}-{time.monotonic_ns()}")
        sock.settimeout(PATIENCE_S)
        yield sock


def supervised(sock: socket.socket, **more: str) -> dict[str, str]:
    name = sock.getsockname()
    return {**os.environ, "NOTIFY_SOCKET": "@" + name[1:].decode(), **more}


def said(sock: socket.socket, word: str) -> str:
    """Return the next of the server's datagrams that begins so; signs of life come in between."""
    while True:
        text = sock.recv(4096).decode()
        if text.startswith(word):
            return text
        assert text == "WATCHDOG=1", text


def test_a_server_says_when_it_is_ready_reads_its_configuration_and_ends(
    tmp_path: Path, notified: socket.socket
) -> None:
    environment = supervised(notified)
    with live_server(tmp_path, environment=environment) as server:
        assert said(notified, "READY=1")
        server.process.send_signal(signal.SIGHUP)
        reloading = said(notified, "RELOADING=1")
        assert int(reloading.partition("MONOTONIC_USEC=")[2]) <= time.monotonic_ns() // 1000
        assert said(notified, "READY=1")
        assert server.stop() == 0
        stopping = said(notified, "STOPPING=1")
        assert int(stopping.partition("EXTEND_TIMEOUT_USEC=")[2]) >= 1_000_000


def test_the_event_loop_gives_signs_of_life_while_it_turns(
    tmp_path: Path, notified: socket.socket
) -> None:
    environment = supervised(notified, WATCHDOG_USEC="100000")
    with live_server(tmp_path, environment=environment) as server:
        assert said(notified, "READY=1")
        for _ in range(3):
            assert said(notified, "WATCHDOG=1")
        server.process.send_signal(signal.SIGSTOP)
        try:
            notified.settimeout(1)
            with suppress(TimeoutError):
                for _ in range(100):  # no more than were on their way
                    notified.recv(4096)
                pytest.fail("a server that stands still says that it is alive")
        finally:
            server.process.send_signal(signal.SIGCONT)
        notified.settimeout(PATIENCE_S)
        assert said(notified, "WATCHDOG=1")


def test_a_client_that_comes_while_the_server_restarts_waits_for_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        arguments = ("--set", f"Listen=127.0.0.1:{port}", "--set", "Entitlement=None")
        descriptor = os.dup(held.fileno())
        os.set_inheritable(descriptor, True)
        environment = {**os.environ, "HANDED_OVER": str(descriptor)}
        options = {"environment": environment, "under": ACTIVATED, "inherited": (descriptor,)}
        try:
            with live_server(tmp_path, *arguments, **options) as server:
                assert server.url == f"http://127.0.0.1:{port}"
                assert post(server.url, "/a/b")["status"] == "OK"
            with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as early:
                early.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
                with live_server(tmp_path, *arguments, **options):
                    assert early.recv(4096).startswith(b"HTTP/1.1 200 ")
        finally:
            os.close(descriptor)


def test_a_socket_that_no_listener_wants_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        descriptor = os.dup(held.fileno())
        os.set_inheritable(descriptor, True)
        environment = {**os.environ, "HANDED_OVER": str(descriptor)}
        try:
            with live_server(
                tmp_path, environment=environment, under=ACTIVATED, inherited=(descriptor,)
            ) as server:
                assert urlsplit(server.url).port != held.getsockname()[1]
        finally:
            os.close(descriptor)
        log = (tmp_path / "server.stderr").read_text()
        assert "socket not used" in log
        assert str(held.getsockname()[1]) in log


def test_what_is_for_another_process_is_not_taken() -> None:
    """A program that systemd started, and that starts a server, keeps its variables from it."""
    other = str(os.getpid() + 1)
    environment = {
        "WATCHDOG_USEC": "1000000",
        "WATCHDOG_PID": other,
        "LISTEN_FDS": "1",
        "LISTEN_PID": other,
        "NOTIFY_SOCKET": "",
        "PATH": "kept",
    }
    found = systemd(environment)
    assert (found.notify, found.watchdog_s, found.sockets) == (None, None, ())
    assert environment == {"PATH": "kept"}
