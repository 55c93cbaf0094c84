"""Statistics of a server process, as its operators see them."""

import http.client
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from mdserver.client import Client
from mdserver.core.windows import WINDOWS
from mdserver.server.monitor.statistics import INDICATORS
from tests.live import LiveServer, live_server, post, wait_for_line

PATIENCE_S = 30


def monitor(
    port: int, method: str, path: str, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """Status and body of an answer, decoded if it is JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers={"X-Mdserver": "1"} | (headers or {}))
        answer = connection.getresponse()
        body = answer.read()
        if answer.getheader("content-type") == "application/json":
            return answer.status, json.loads(body)
        return answer.status, body.decode()
    finally:
        connection.close()


def eventually(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


def monitor_port(server: LiveServer, starts_before: int = 0) -> int:
    """The port of the monitor of a server, which may have been started before."""
    urls = wait_for_line(server.log, '"ready"', starts_before)["monitor"]
    assert isinstance(urls, list)
    return int(str(urls[0]).rpartition(":")[2])


def arguments(*more: str) -> list[str]:
    settings = ["Listen=127.0.0.1:0", "MonitorHTTP.Listen=127.0.0.1:0"]
    if not any(setting.startswith("Entitlement=") for setting in more):
        settings.append("Entitlement=None")
    return [part for setting in (*settings, *more) for part in ("--set", setting)]


@pytest.mark.slow
def test_what_clients_do_is_counted_and_windowed(tmp_path: Path) -> None:
    with live_server(tmp_path, *arguments()) as server:
        port = monitor_port(server)
        trio.run(_subscribe_and_publish, server)
        document = monitor(port, "GET", "/statistics")[1]
        assert list(document["windows"]) == list(INDICATORS)
        assert all(list(found) == list(WINDOWS) for found in document["windows"].values())
        total = document["total"]
        assert (total["messages_in"], total["messages_out"]) == (20, 20)
        assert total["bytes_out"] > total["messages_out"]
        eventually(
            lambda: (
                monitor(port, "GET", "/statistics")[1]["windows"]["messages_in"]["15months"][
                    "maximum"
                ]
                > 0
            )
        )
        document = monitor(port, "GET", "/statistics")[1]
        window = document["windows"]["messages_in"]["1h"]
        # The average is that of the time that was sampled, so all messages are in it.
        assert window["average"] * window["seconds"] == pytest.approx(20, rel=0.05)
        latency = document["latency"]
        assert latency["publication_to_commit"]["count"] == 20
        assert latency["commit_to_socket"]["count"] == 20
        assert latency["loop_delay"]["count"] > 0
        assert document["now"]["subjects"] == 1
        assert document["elections_won"] == document["now"]["subject_groups"]
        shown = monitor(port, "GET", "/statistics?format=text")[1]
        assert "messages_in a second, over the last" in shown
        assert "publication_to_commit" in shown


async def _subscribe_and_publish(server: LiveServer) -> None:
    async with Client([server.url]) as client:
        subscription = client.subscribe("/prices/a")
        with trio.fail_after(PATIENCE_S):
            await subscription.caught_up()
        for number in range(20):
            await client.publish("/prices/a", str(number))
        with trio.fail_after(PATIENCE_S):
            for _ in range(20):
                await anext(subscription)


@pytest.mark.slow
def test_refusals_are_counted_by_reason(tmp_path: Path) -> None:
    options = ("Entitlement=Basic", "EntitlementAllowToken=right", "MaxConnectionsPerAddress=1")
    with live_server(tmp_path, *arguments(*options)) as server:
        port = monitor_port(server)
        post(server.url, "/a/b", token="wrong")
        first = None
        deadline = time.monotonic() + PATIENCE_S
        while first is None or first[1] != 404:  # the connection before counts until it is gone
            assert time.monotonic() < deadline
            first = kept_open(server, "/nothing")
        second = kept_open(server, "/nothing")
        assert second[1] == 503
        refused = monitor(port, "GET", "/statistics")[1]["refused"]
        assert refused["PUBLISH_DENIED"] == 1
        assert refused["HTTP 404"] == 1
        assert refused["too many connections"] >= 1
        first[0].close()
        second[0].close()


def kept_open(server: LiveServer, path: str) -> tuple[http.client.HTTPConnection, int]:
    """A connection that is still open, and the status of its first answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    return connection, answer.status


def seconds(port: int) -> float:
    found: float = monitor(port, "GET", "/statistics")[1]["windows"]["sessions"]["1h"]["seconds"]
    return found


@pytest.mark.slow
def test_windows_go_on_after_a_restart_with_a_journal(tmp_path: Path) -> None:
    options = arguments("Journal=on", f"JournalFolder={tmp_path / 'journal'}")
    with live_server(tmp_path, *options) as server:
        port = monitor_port(server)
        post(server.url, "/a/b")
        eventually(lambda: seconds(port) >= 2)
        before = seconds(port)
    with live_server(tmp_path, *options) as server:
        port = monitor_port(server, 1)
        document = monitor(port, "GET", "/statistics")[1]
        assert document["windows"]["messages_in"]["1h"]["maximum"] > 0
        assert seconds(port) >= before - 1.5
        assert document["total"]["messages_in"] == 0, "counters are those of this process"


@pytest.mark.slow
def test_a_damaged_file_is_put_aside(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    options = arguments("Journal=on", f"JournalFolder={folder}")
    with live_server(tmp_path, *options) as server:
        port = monitor_port(server)
        eventually(lambda: seconds(port) >= 1)
    content = (folder / "statistics.bin").read_bytes()
    (folder / "statistics.bin").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with live_server(tmp_path, *options) as server:
        assert "statistics begin anew" in server.log.read_text()
        assert (folder / "statistics.aside").exists()
