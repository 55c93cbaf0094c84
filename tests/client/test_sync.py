"""What the blocking client has of its own; what it shares is in test_ways.py."""

import asyncio
import inspect
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from mdserver.client import Client as AsyncClient
from mdserver.client import sync
from mdserver.client.sync import (
    Client,
    ClientTimeoutError,
    ConnectError,
    Notification,
    NotOpenError,
)
from tests.live import live_server

pytestmark = pytest.mark.slow
PATIENCE_S = 60

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


def test_what_is_left_is_taken_where_an_event_loop_runs(tmp_path: Path) -> None:
    """As in a notebook, whose cells run in a task."""

    async def main(url: str) -> None:
        with Client([url]) as client, Client([url]) as publisher:
            subscription = client.subscribe("/a/b")
            subscription.confirmed(timeout_s=PATIENCE_S)
            for number in range(3):
                publisher.publish("/a/b", str(number))
            client.statuses.receive(timeout_s=PATIENCE_S)
            client.publish("/c/d", "x")  # its result comes after the messages
        assert [message.content for message in subscription] == ["0", "1", "2"]
        assert subscription.batch() == []
        assert list(client.statuses) == []

    with live_server(tmp_path) as server:
        asyncio.run(main(server.url))


def test_an_iteration_begun_while_another_thread_closes_gets_the_rest() -> None:
    """Closing takes seconds here, because a publication has no result."""
    client = Client(["127.0.0.1:1"]).open()
    subscription = client.subscribe("/a/b")
    client.submit("/a/b", "x")
    closing = threading.Thread(target=client.close)
    closing.start()
    while True:  # until calls are refused
        try:
            client.get_subjects()
        except NotOpenError:
            break
    with suppress(ClientTimeoutError):
        assert subscription.receive(timeout_s=0.01) is None
    numbering = client.numbering
    assert list(subscription) == []
    assert {notice.status for notice in client.statuses} <= {Notification.SERVER_DOWN}
    closing.join(PATIENCE_S)
    assert client.numbering == numbering
    assert (client.publisher, client.publisher_key) == (numbering.publisher, None)


def test_an_error_that_is_left_is_raised_after_the_end() -> None:
    with Client(["127.0.0.1:1"], connect_timeout_s=0.1) as client:
        subscription = client.subscribe("/a/b")
        with pytest.raises(ConnectError):
            client.connected()
    with pytest.raises(ConnectError):
        subscription.receive()
    assert subscription.receive() is None


def test_an_identity_is_read_in_the_thread_of_the_client() -> None:
    told: list[int] = []

    class Watched(AsyncClient):
        @property
        def numbering(self) -> sync.Numbering:
            told.append(threading.get_ident())
            return super().numbering

    client = Client(["127.0.0.1:1"])
    client.client = Watched(["127.0.0.1:1"])
    with client:
        identity = (client.numbering, client.publisher, client.publisher_key)
    assert len(told) == 3
    assert threading.get_ident() not in told
    assert (client.numbering, client.publisher, client.publisher_key) == identity


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
