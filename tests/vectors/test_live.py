"""The dialogues with a server process over WebSocket, and the command that plays them."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live import LiveServer, live_server
from tests.vectors.dialogue import cases
from tests.vectors.live import play_live

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.mark.parametrize(("name", "encoding"), cases())
async def test_a_dialogue(server: LiveServer, name: str, encoding: str) -> None:
    run = f"r{cases().index((name, encoding))}"
    assert await play_live(server.url, name, encoding, run) > 0


@pytest.mark.slow
def test_the_command_plays_all(server: LiveServer) -> None:
    command = [sys.executable, "-m", "tests.vectors", server.url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == len(cases())


def test_the_command_says_what_failed() -> None:
    command = [sys.executable, "-m", "tests.vectors", "ws://127.0.0.1:1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.count("FAILED ") == len(cases())
