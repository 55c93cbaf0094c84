"""The thread of a blocking client: forks, programs that end, and calls in other threads."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mdserver.client.sync import Client, NotOpenError
from tests.live import live_server

pytestmark = pytest.mark.slow

FORKED = """
import os, sys
from mdserver.client.sync import Client, NotOpenError

with Client([sys.argv[1]]) as client:
    client.publish("/a/b", "parent")
    child = os.fork()
    if not child:
        for call in (client.connected, client.close):
            try:
                call()
            except NotOpenError as error:
                print(error, flush=True)
        with Client([sys.argv[1]]) as own:
            print(own.publish("/a/b", "child").seq, flush=True)
        sys.exit()
    os.waitpid(child, 0)
    print(client.publish("/a/b", "parent").seq)
"""
UNCLOSED = """
import sys
from mdserver.client.sync import Client

client = Client([sys.argv[1]]).open()
for number in range(500):
    client.submit("/a/b", str(number))
"""


def printed(program: str, url: str) -> list[str]:
    """The lines that a program prints, which must end by itself."""
    command = [sys.executable, "-c", program, url]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True
    ).stdout.splitlines()


def test_a_forked_process_needs_a_client_of_its_own(tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        first, second, *results = printed(FORKED, server.url)
    assert "the process forked since the client was opened: make one in each" in first
    assert second == first
    assert results == ["2", "3"]


def test_a_program_that_ends_without_close_waits_for_results(tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        assert printed(UNCLOSED, server.url) == []
        with Client([server.url]) as client:
            assert client.publish("/a/b", "last").seq == 501


def test_closing_ends_what_other_threads_wait_for(tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        client = Client([server.url]).open()
        subscription = client.subscribe("/a/b")
        subscription.confirmed()
        got: list[object] = []
        reader = threading.Thread(target=lambda: got.extend(subscription), daemon=True)
        reader.start()
        client.publish("/a/b", "x")
        client.close()
        reader.join(60)
        assert not reader.is_alive()
        client.close()
        with pytest.raises(NotOpenError, match="was closed"):
            client.publish("/a/b", "y")
        with pytest.raises(NotOpenError, match="can be opened once"):
            client.open()
