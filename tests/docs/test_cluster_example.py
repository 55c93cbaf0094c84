"""`make cluster`: says that members serve clients once they do, and why one of them does not."""

import fcntl
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

TOP = Path(__file__).parents[2]
MDSERVER = Path(sys.executable).with_name("mdserver")
TIMEOUT_S = 120
WHOLE_TIMEOUT_S = 400  # of the tutorial: several waits of up to a minute, one after the other
PATIENCE_S = 60
POLL_S = 0.5
PAGE = (TOP / "docs" / "tutorials" / "cluster.md").read_text(encoding="utf-8")
# To start it, to use it, after it was broken, and to upgrade it.
START, USE, BROKEN, UPGRADE = [
    block.splitlines()
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
]


@pytest.fixture(autouse=True)
def ports() -> Iterator[None]:
    """The ports of the example are always the same: only one of these tests has them at a time."""
    with (Path(tempfile.gettempdir()) / "mdserver-cluster-example.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def started(folder: Path) -> subprocess.Popen[str]:
    (folder / "conf").symlink_to(TOP / "conf")
    environment = {key: value for key, value in os.environ.items() if "MDSERVER" not in key}
    return subprocess.Popen(
        [sys.executable, "conf/cluster-3/start.py", str(MDSERVER)],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.slow
def test_clients_are_served_when_it_says_so_and_ctrl_c_ends_all(tmp_path: Path) -> None:
    with started(tmp_path) as cluster:
        assert cluster.stdout is not None
        expired = threading.Timer(TIMEOUT_S, cluster.terminate)
        expired.start()
        said = ""
        while "serve clients" not in said:
            line = cluster.stdout.readline()
            assert line, cluster.stderr.read() if cluster.stderr else ""
            said += line
        expired.cancel()
        assert len(said.strip().splitlines()) == 1, "one line, not the members' logs"
        for port in (8801, 8802, 8803):
            published = subprocess.run(
                [MDSERVER, "pub", "/demo/one", "hello", "--server", f"ws://127.0.0.1:{port}"],
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            assert published.returncode == 0, published.stderr
        cluster.send_signal(signal.SIGINT)
        _, errors = cluster.communicate(timeout=60)
    assert (cluster.returncode, errors) == (0, "")
    logs = sorted(path.name for path in (tmp_path / "build" / "cluster").glob("*.log"))
    assert logs == ["member-1.log", "member-2.log", "member-3.log"]


def told(command: str, *, or_else: bool = False) -> bool:
    """Run a command; return whether it was carried out, which it must be without `or_else`."""
    words = [str(MDSERVER), *shlex.split(command)[1:]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0 or or_else, done.stderr
    return done.returncode == 0


def line_of(stream: IO[str] | None, text: str) -> str:
    """Read until a line has a text; return that line."""
    assert stream is not None
    line = next((line for line in stream if text in line), None)
    assert line is not None, f"it ended without {text!r}"
    return line


@pytest.mark.slow
def test_what_the_tutorial_does_with_it(tmp_path: Path) -> None:
    assert START == ["make cluster"]
    subscribe, publish = USE
    again: list[subprocess.Popen[str]] = []
    with started(tmp_path) as cluster:

        def end_all() -> None:
            for process in (cluster, *again):
                process.terminate()

        expired = threading.Timer(WHOLE_TIMEOUT_S, end_all)
        expired.start()
        try:
            victim = line_of(cluster.stdout, "kill -9")
            start = line_of(cluster.stdout, "MDSERVER_CLUSTERPASSWORD=")
            subscriber = subprocess.Popen(
                [MDSERVER, *shlex.split(subscribe)[1:]],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            again.append(subscriber)
            line_of(subscriber.stderr, "subscribed")
            told(publish)
            assert line_of(subscriber.stdout, "/demo/one") == "/demo/one hello\n"
            os.kill(int(victim.split()[2]), signal.SIGKILL)
            for command in BROKEN:
                told(command)
            assert line_of(subscriber.stdout, "/demo/one") == "/demo/one again\n"
            assignment, *words = shlex.split(start)
            name, _, password = assignment.partition("=")
            member = subprocess.Popen(
                words,
                cwd=tmp_path,
                env={**os.environ, name: password},
                stdout=subprocess.PIPE,
                text=True,
            )
            again.append(member)
            line_of(member.stdout, "mdserver ready")
            (drain,) = UPGRADE
            deadline = time.monotonic() + PATIENCE_S
            # A member that has just come back may not have heard yet that the others vote.
            while not told(drain, or_else=time.monotonic() < deadline):
                time.sleep(POLL_S)
        finally:
            expired.cancel()
            for process in again:
                process.terminate()
            for process in again:
                process.communicate(timeout=TIMEOUT_S)
            cluster.send_signal(signal.SIGINT)
            cluster.communicate(timeout=TIMEOUT_S)


@pytest.mark.slow
def test_a_port_in_use_is_named_and_nothing_is_left_running(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 8802)), started(tmp_path) as cluster:
        said, errors = cluster.communicate(timeout=TIMEOUT_S)
    assert cluster.returncode == 1
    assert said == ""
    assert errors.count("\n") == 1
    assert "member 2 ended: " in errors
    assert "Cannot listen on 127.0.0.1:8802" in errors
