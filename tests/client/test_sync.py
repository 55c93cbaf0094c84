"""What the blocking client has of its own; what it shares is in test_ways.py."""

import inspect
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mdserver.client import Client as AsyncClient
from mdserver.client import sync
from mdserver.client.sync import Client, ClientTimeoutError
from tests.live import live_server

pytestmark = pytest.mark.slow

INTERRUPTED = """
import sys
from mdserver.client.sync import Client

with Client([sys.argv[1]]) as client:
    subscription = client.subscribe("/a/b")
    subscription.confirmed()
    try:
        print("waiting", flush=True)
        next(subscription)
    except KeyboardInterrupt:
        client.publish("/a/b", "after")
        print(next(subscription).content, flush=True)
"""


def test_it_has_all_methods_with_their_arguments() -> None:
    for name, method in inspect.getmembers(AsyncClient, inspect.isfunction):
        if name.startswith("_") or name == "take":
            continue
        own = getattr(Client, name)
        assert inspect.getdoc(own), name
        shared = set(inspect.signature(method).parameters)
        assert shared <= set(inspect.signature(own).parameters), name
    assert inspect.signature(Client.__init__) == inspect.signature(AsyncClient.__init__)


def test_ctrl_c_ends_a_wait(tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        program = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, server.url], stdout=subprocess.PIPE, text=True
        )
        with program:
            try:
                assert program.stdout is not None
                assert program.stdout.readline() == "waiting\n"
                program.send_signal(signal.SIGINT)
                assert program.stdout.readline() == "after\n"
                assert program.wait(60) == 0
            finally:
                program.kill()


def test_waits_have_timeouts_that_lose_nothing(tmp_path: Path) -> None:
    with live_server(tmp_path) as server, Client([server.url]) as client:
        client.connected(timeout_s=60)
        with client.subscribe("/a/b") as subscription:
            subscription.caught_up(timeout_s=60)
            for _ in range(20):
                with pytest.raises(ClientTimeoutError, match=r"nothing came in 0\.01 s"):
                    subscription.receive(timeout_s=0.01)
            publication = client.submit("/a/b", "1")
            assert publication.outcome(timeout_s=60).seq == 1
            assert publication.result == publication.outcome()
            message = subscription.receive(timeout_s=60)
            assert message is not None
            assert message.content == "1"
            with pytest.raises(ValueError, match="above 0"):
                subscription.batch(timeout_s=0)
        client.settled(timeout_s=60)
        assert subscription.batch() == []
        assert subscription.receive() is None


def test_threads_share_a_client_and_a_subscription(tmp_path: Path) -> None:
    got: list[str] = []
    with live_server(tmp_path) as server, Client([server.url]) as client:
        subscription = client.subscribe("/n/*")
        subscription.confirmed()

        def write(name: str) -> None:
            for number in range(50):
                client.publish(f"/n/{name}", f"{name}{number}")

        def read() -> None:
            for message in subscription:
                got.append(str(message.content))
                if len(got) == 200:
                    subscription.end()

        threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
        threads += [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sorted(got) == sorted(f"{name}{number}" for name in "abcd" for number in range(50))


def test_an_error_of_the_block_waits_for_nothing() -> None:
    def use() -> None:
        with Client(["127.0.0.1:1"]) as client:
            client.submit("/a/b", "x")
            raise KeyError

    with pytest.raises(KeyError):
        use()


def test_the_names_are_those_of_the_asynchronous_client() -> None:
    from mdserver.client import aio  # noqa: PLC0415

    assert sorted(sync.__all__) == sorted(aio.__all__)
