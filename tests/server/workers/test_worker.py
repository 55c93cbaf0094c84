"""A server with worker processes, as its clients and operators see it."""

import http.client
import os
import signal
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio

from mdserver.client import Client, Qos, ReconnectSettings
from tests.live import LiveServer, children, gone, lines_about, live_server, post, wait_for_line
from tests.server.certificates import make_certificate
from tests.server.monitor.test_statistics import arguments, eventually, monitor, monitor_port

PATIENCE_S = 60
QUICK = ReconnectSettings(quick_max_retries=1000, quick_initial_delay_s=0.05)
pytestmark = pytest.mark.slow


def worker_of(session: str) -> int:
    """Which start of a worker a session's name tells: 0 is the first."""
    return int(session.rpartition("-")[2]) // 1_000_000_000


@contextmanager
def with_workers(folder: Path, *more: str, count: int = 2) -> Iterator[LiveServer]:
    with live_server(folder, *arguments(f"Workers={count}", *more)) as server:
        yield server


def sessions(server: LiveServer) -> list[dict[str, Any]]:
    """What the monitor says of the sessions."""
    found: list[dict[str, Any]] = monitor(monitor_port(server), "GET", "/sessions?limit=1000")[1]
    return found


@asynccontextmanager
async def at_both(
    server: LiveServer, pattern: str = "/a/**"
) -> AsyncIterator[tuple[list[Client], list[Any]]]:
    """Clients that are subscribed, two or more at each of two workers; their subscriptions."""
    async with AsyncExitStack() as stack:
        clients, subscriptions = [], []
        while True:
            assert len(clients) < 100, "the kernel chooses between two workers"
            client = Client([server.url], reconnect=QUICK)
            clients.append(await stack.enter_async_context(client))
            subscriptions.append(client.subscribe(pattern))
            with trio.fail_after(PATIENCE_S):
                await subscriptions[-1].confirmed()
                rows = await trio.to_thread.run_sync(sessions, server)
            met = Counter(worker_of(row["session"]) for row in rows)
            if len(met) > 1 and min(met.values()) > 1:
                break
        yield clients, subscriptions


def seqs(messages: list[Any]) -> list[int]:
    """The sequence numbers of messages."""
    return [message.position.seq for message in messages]


async def take(subscription: Any, count: int) -> list[Any]:
    """The next messages of a subscription."""
    with trio.fail_after(PATIENCE_S):
        return [await anext(subscription) for _ in range(count)]


async def test_clients_of_all_workers_get_what_any_of_them_publishes(tmp_path: Path) -> None:
    with with_workers(tmp_path) as server:
        assert len(children(server.process.pid)) == 2
        async with at_both(server) as (clients, subscriptions):
            for number, client in enumerate(clients):
                result = await client.publish("/a/b", str(number))
                assert result.seq == number + 1, "one coordinator numbers for all"
            expected = [str(number) for number in range(len(clients))]
            for subscription in subscriptions:
                messages = await take(subscription, len(expected))
                assert [message.content for message in messages] == expected
                assert seqs(messages) == list(range(1, len(clients) + 1))
            # Over HTTP, whichever worker takes the request.
            answers = [post(server.url, "/a/b", content=f"over HTTP {n}") for n in range(8)]
            assert [answer["seq"] for answer in answers] == [len(clients) + 1 + n for n in range(8)]
            for subscription in subscriptions:
                assert len(await take(subscription, 8)) == 8


async def test_publications_at_most_once_reach_the_clients_of_all_workers(tmp_path: Path) -> None:
    with with_workers(tmp_path) as server:
        async with at_both(server) as (clients, subscriptions):
            for client in clients:
                await client.publish("/a/b", "standard", qos=Qos.STANDARD)
            for subscription in subscriptions:
                messages = await take(subscription, len(clients))
                assert {message.content for message in messages} == {"standard"}


async def test_a_killed_worker_is_replaced_and_its_clients_lose_nothing(tmp_path: Path) -> None:
    count = 400
    with with_workers(tmp_path) as server:
        async with at_both(server) as (clients, subscriptions), trio.open_nursery() as nursery:
            results: list[int] = []
            some = trio.Event()

            async def publish() -> None:
                for number in range(count):
                    with trio.fail_after(PATIENCE_S):
                        results.append((await clients[0].publish("/a/b", str(number))).seq)
                    if len(results) == 50:
                        some.set()

            nursery.start_soon(publish)
            await some.wait()
            victim = children(server.process.pid)[0]
            os.kill(victim, signal.SIGKILL)
            for subscription in subscriptions:
                messages = await take(subscription, count)
                assert [message.content for message in messages] == [
                    str(number) for number in range(count)
                ]
                assert seqs(messages) == list(range(1, count + 1))
        assert results == list(range(1, count + 1))
        line = await trio.to_thread.run_sync(wait_for_line, server.log, "worker ended")
        assert line["level"] == "error"
        assert "SIGKILL" in str(line["reason"])
        eventually(lambda: len(children(server.process.pid)) == 2)
        assert victim not in children(server.process.pid)
        eventually(lambda: len(lines_about(server.log, "worker ready")) == 3)
        port = monitor_port(server)
        eventually(lambda: monitor(port, "GET", "/health/ready") == (200, "ready\n"))


async def test_a_replaced_worker_has_the_cache(tmp_path: Path) -> None:
    with with_workers(tmp_path) as server:
        for number in range(5):
            post(server.url, "/a/b", content=str(number))
        for pid in children(server.process.pid):
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: len(lines_about(server.log, "worker ready")) == 4)
        async with at_both(server) as (_clients, subscriptions):
            for subscription in subscriptions:
                (message,) = await take(subscription, 1)
                assert (message.content, seqs([message])) == ("4", [5])


async def test_sigterm_drains_the_clients_of_all_workers(tmp_path: Path) -> None:
    with with_workers(tmp_path) as server:
        workers = children(server.process.pid)
        async with at_both(server) as (clients, _subscriptions):
            server.process.send_signal(signal.SIGTERM)
            for client in clients:
                client.disconnect()
            await trio.to_thread.run_sync(server.process.wait, PATIENCE_S)
        assert server.process.returncode == 0
        assert all(gone(pid) for pid in workers)
        assert not lines_about(server.log, "worker ended")
        assert not lines_about(server.log, "worker killed")


def test_workers_end_by_themselves_when_the_server_is_killed(tmp_path: Path) -> None:
    with with_workers(tmp_path) as server:
        workers = children(server.process.pid)
        server.process.kill()
        server.process.wait()
        deadline = time.monotonic() + PATIENCE_S
        while not all(gone(pid) for pid in workers):
            assert time.monotonic() < deadline, "workers are left over"
            time.sleep(0.02)


def test_workers_ignore_the_signals_that_a_supervisor_sends_to_all(tmp_path: Path) -> None:
    with with_workers(tmp_path) as server:
        for pid in children(server.process.pid):
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                os.kill(pid, number)
        assert post(server.url, "/a/b")["seq"] == 1
        eventually(lambda: len(lines_about(server.log, "worker ready")) == 2)


def test_the_limit_of_connections_holds_for_all_workers(tmp_path: Path) -> None:
    with with_workers(tmp_path, "MaxConnections=12", "MaxConnectionsPerAddress=9") as server:
        host = urlsplit(server.url).netloc
        open_ones: list[http.client.HTTPConnection] = []

        def status(source: str) -> int:
            address = (source, 0)
            connection = http.client.HTTPConnection(host, timeout=30, source_address=address)
            connection.request("GET", "/rest/consume?subject=/nothing/here")
            answer = connection.getresponse()
            answer.read()
            if answer.status == 503:
                connection.close()
            else:
                open_ones.append(connection)
            return answer.status

        try:
            found = [status("127.0.0.1") for _ in range(20)]
            assert Counter(code == 503 for code in found) == {False: 9, True: 11}
            found = [status("127.0.0.2") for _ in range(10)]
            assert Counter(code == 503 for code in found) == {False: 3, True: 7}
            open_ones.pop().close()
            eventually(lambda: status("127.0.0.3") != 503)
        finally:
            for connection in open_ones:
                connection.close()


def test_a_dead_worker_gives_its_connections_back(tmp_path: Path) -> None:
    with with_workers(tmp_path, "MaxConnections=2") as server:
        host = urlsplit(server.url).netloc
        held = [http.client.HTTPConnection(host, timeout=30) for _ in range(2)]
        try:
            for connection in held:
                connection.request("GET", "/rest/consume?subject=/nothing/here")
                connection.getresponse().read()
            for pid in children(server.process.pid):
                os.kill(pid, signal.SIGKILL)
            eventually(lambda: len(lines_about(server.log, "worker ready")) == 4)
        finally:
            for connection in held:
                connection.close()
        assert post(server.url, "/a/b")["seq"] == 1


async def test_the_monitor_sums_over_all_workers(tmp_path: Path) -> None:
    with with_workers(tmp_path) as server:
        port = monitor_port(server)
        async with at_both(server) as (clients, subscriptions):
            await clients[0].publish("/a/b", "hello")
            for subscription in subscriptions:
                await take(subscription, 1)

            def look() -> dict[str, Any]:
                found: dict[str, Any] = monitor(port, "GET", "/statistics")[1]
                return found

            def counted() -> bool:
                found = look()
                return bool(
                    found["now"]["sessions"] == len(clients)
                    and found["now"]["subscriptions"] == len(clients)
                    and found["total"]["messages_in"] == 1
                    and found["total"]["messages_out"] == len(clients)
                    and found["latency"]["publication_to_commit"]["count"] == 1
                )

            await trio.to_thread.run_sync(eventually, counted)
            assert look()["now"]["members_in_sight"] == 1
            status, text = monitor(port, "GET", "/metrics")
            assert status == 200
            assert f"mdserver_sessions {len(clients)}.0" in text
            (row,) = monitor(port, "GET", "/subjects?subject=/a/b")[1]
            assert row["subscribers"] == len(clients)
            rows = sessions(server)
            assert len({row["session"] for row in rows}) == len(clients)
            for row in rows:
                path = f"/sessions/disconnect?session={row['session']}"
                assert monitor(port, "POST", path) == (200, {"disconnected": row["session"]})
            assert monitor(port, "POST", "/sessions/disconnect?session=nobody-1")[0] == 404
            victim = children(server.process.pid)[0]
            os.kill(victim, signal.SIGKILL)
            line = '"worker ended"'
            await trio.to_thread.run_sync(wait_for_line, server.log, line)
            assert look()["total"]["messages_out"] >= len(clients), "counters never fall"


async def test_commands_for_http_streams_find_their_worker(tmp_path: Path) -> None:
    with with_workers(tmp_path) as server, trio.fail_after(PATIENCE_S):
        for number in range(6):
            async with Client([server.url], transport="http", reconnect=QUICK) as client:
                subject = f"/stream/{number}"
                subscription = client.subscribe(subject)
                await subscription.confirmed()
                assert (await client.publish(subject, "x")).seq == 1
                assert (await take(subscription, 1))[0].content == "x"


def test_a_worker_that_cannot_start_ends_the_start_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "broken_for_workers.py").write_text(
        "import sys\n"
        "if 'mdserver.server.worker' in ' '.join(sys.orig_argv):\n"
        "    raise RuntimeError('this class works in the server only')\n"
        "class Entitlement:\n"
        "    async def connect(self, *args): return True\n"
        "    update_token = subscribe = publish = disconnect = connect\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    more = ("Entitlement=Custom", "EntitlementCustom.Class=broken_for_workers:Entitlement")
    settings = arguments("Workers=2", *more)
    with (
        pytest.raises(AssertionError, match="this class works in the server only"),
        live_server(tmp_path, *settings, environment=environment),
    ):
        pass


def test_a_worker_that_keeps_ending_is_started_ever_more_rarely(tmp_path: Path) -> None:
    def first_workers(server: LiveServer) -> list[dict[str, object]]:
        lines = lines_about(server.log, '"worker ready"')
        return [line for line in lines if line["worker"] == 1]

    with with_workers(tmp_path) as server:
        for killed in range(3):
            eventually(partial(enough, partial(first_workers, server), killed + 1))
            os.kill(int(str(first_workers(server)[killed]["pid"])), signal.SIGKILL)
            wait_for_line(server.log, '"worker ended"', killed)
        pauses = [line["restart_in_s"] for line in lines_about(server.log, '"worker ended"')]
        assert pauses == [0.1, 0.2, 0.4]
        eventually(partial(enough, partial(first_workers, server), 4))


def enough(lines: Callable[[], list[dict[str, object]]], count: int) -> bool:
    """Whether there are so many lines."""
    return len(lines()) >= count


def test_sighup_reaches_all_workers(tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    lines = "Listen = 127.0.0.1:0\nWorkers = 2\nEntitlement = Basic\nEntitlementAllowToken = {}\n"
    file.write_text(lines.format("before"))
    with live_server(tmp_path, "--config", str(file)) as server:

        def statuses(token: str) -> set[str]:
            return {post(server.url, "/a/b", token=token).get("status", "") for _ in range(12)}

        before = statuses("before")
        file.write_text(lines.format("after"))
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: len(lines_about(server.log, '"reloaded"')) == 3)
        assert statuses("after") == before
        assert statuses("before").isdisjoint(before)


def test_a_changed_certificate_is_shown_by_all_workers(tmp_path: Path) -> None:
    file = make_certificate(tmp_path / "server.pem")
    more = ("ListenEncrypted=127.0.0.1:0", f"KeyStore={file}")
    with with_workers(tmp_path, *more) as server:
        port = int(server.urls[1].rpartition(":")[2])

        def shown() -> set[str]:
            return {ssl.get_server_certificate(("127.0.0.1", port)) for _ in range(12)}

        (before,) = shown()
        make_certificate(file)
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: len(lines_about(server.log, '"reloaded"')) == 3)
        (after,) = shown()
        assert after != before
        file.write_text("no certificate")
        server.process.send_signal(signal.SIGHUP)
        wait_for_line(server.log, '"reload refused"')
        assert shown() == {after}
        assert len(lines_about(server.log, '"reload refused"')) == 1, "no worker was told of it"


def test_audit_lines_of_all_workers_are_in_the_servers_files(tmp_path: Path) -> None:
    more = (f"LogFolder={tmp_path}", "Extension.Audit.Message=true")
    with live_server(tmp_path, *arguments("Workers=2", *more)) as server:
        for _ in range(10):
            post(server.url, "/a/b")
        file = tmp_path / "audit-message.log"
        eventually(lambda: len(lines_about(file, '"publish"')) == 10)
        assert {line["seq"] for line in lines_about(file, '"publish"')} == set(range(1, 11))
        log = tmp_path / "mdserver.log"
        eventually(lambda: {line["worker"] for line in lines_about(log, "worker ready")} == {1, 2})


async def test_audit_lines_of_the_end_are_in_the_servers_files(tmp_path: Path) -> None:
    count = 500
    more = (f"LogFolder={tmp_path}", "Extension.Audit.Message=true")
    with live_server(tmp_path, *arguments("Workers=2", *more)) as server:
        async with Client([server.url], reconnect=QUICK) as client:
            with trio.fail_after(PATIENCE_S):
                for number in range(count):
                    await client.publish("/a/b", str(number))
            server.process.send_signal(signal.SIGTERM)
        await trio.to_thread.run_sync(server.process.wait, PATIENCE_S)
        assert server.process.returncode == 0
        lines = lines_about(tmp_path / "audit-message.log", '"publish"')
        assert {line["seq"] for line in lines} == set(range(1, count + 1))


@pytest.mark.parametrize("setting", ["ClusterEngine=kafka", "MaxBytesRatePerAddress=1000"])
def test_what_workers_cannot_do_is_refused(tmp_path: Path, setting: str) -> None:
    with (
        pytest.raises(AssertionError, match="Workers = 2"),
        live_server(tmp_path, *arguments("Workers=2", setting)),
    ):
        pass


async def test_those_whose_worker_dies_leave_the_presence_log(tmp_path: Path) -> None:
    more = (f"LogFolder={tmp_path}", "Extension.Presence=true")
    file = tmp_path / "audit-presence.log"

    def present() -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for line in lines_about(file, '"subject"'):
            change = 1 if line["event"] == "join" else -1
            found[(str(line["session"]), str(line["subject"]))] += change
        return +found

    with with_workers(tmp_path, *more) as server:
        server.log = tmp_path / "mdserver.log"
        async with at_both(server) as (clients, _subscriptions):
            await trio.to_thread.run_sync(eventually, lambda: len(present()) == len(clients))
            before = set(present())
            port = monitor_port(server)
            victim = children(server.process.pid)[0]
            os.kill(victim, signal.SIGKILL)
            await trio.to_thread.run_sync(wait_for_line, server.log, '"worker ended"')

            def right() -> bool:
                rows = monitor(port, "GET", "/sessions?limit=1000")[1]
                here = {(row["session"], "/a/**") for row in rows}
                return len(here) == len(clients) and set(present()) == here

            await trio.to_thread.run_sync(eventually, right)
            assert set(present()) != before
        await trio.to_thread.run_sync(eventually, lambda: not present())
        left = Counter(str(line["session"]) for line in lines_about(file, '"leave"'))
        assert set(left.values()) == {1}


async def test_the_journal_of_a_server_with_workers_has_every_message_once(tmp_path: Path) -> None:
    count = 200
    more = ("Journal=on", f"JournalFolder={tmp_path / 'journal'}")
    with with_workers(tmp_path, *more) as server:
        async with at_both(server) as (clients, subscriptions), trio.open_nursery() as nursery:
            some = trio.Event()

            async def publish(client: Client, name: int) -> None:
                for number in range(count):
                    with trio.fail_after(PATIENCE_S):
                        result = await client.publish("/a/b", f"{name}-{number}")
                    if result.seq >= count // 2:
                        some.set()

            for name, client in enumerate(clients[:2]):
                nursery.start_soon(publish, client, name)
            await some.wait()
            os.kill(children(server.process.pid)[0], signal.SIGKILL)
            expected = {f"{name}-{number}" for name in range(2) for number in range(count)}
            for subscription in subscriptions:
                messages = await take(subscription, 2 * count)
                assert seqs(messages) == list(range(1, 2 * count + 1))
                assert {message.content for message in messages} == expected
    rows = [
        line
        for segment in sorted((tmp_path / "journal" / "messages").glob("*.jsonl"))
        for line in lines_about(segment, '"/a/b"')
    ]
    assert Counter(str(row["content"]) for row in rows) == Counter(expected)
    with with_workers(tmp_path, *more) as server:
        assert post(server.url, "/a/b")["seq"] == 2 * count + 1, "it goes on where it ended"
