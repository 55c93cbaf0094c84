"""`Monitor = PUSH`: statistics as messages, who reads them, and what members know of each other."""

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jwt
import pytest
import trio

from mdserver.client import Client, PublishError, SubscribeError
from tests.cluster.live_cluster import LiveCluster
from tests.live import LiveServer, live_server, post
from tests.server.monitor.test_statistics import (
    PATIENCE_S,
    arguments,
    eventually,
    monitor,
    monitor_port,
)

SECRET = "0123456789abcdef0123456789abcdef"
OWN = "/__mdserver__/statistics/mdserver"
QUICK = "MonitorPush.Interval=1s"
WILD = ("/**", "/*/statistics/*", "/*/**")

pytestmark = pytest.mark.slow


def token(*rights: str) -> str:
    claims = {"permissions": {"all": rights}, "exp": int(time.time()) + 600}
    return jwt.encode(claims, SECRET, "HS256")


@contextmanager
def guarded(folder: Path) -> Iterator[LiveServer]:
    """A server with tokens, which publishes its statistics every second."""
    secret = folder / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    settings = ("Entitlement=JWT", f"EntitlementJWT.HmacSecretFile={secret}", QUICK)
    with live_server(folder, *arguments(*settings)) as server:
        yield server


def test_statistics_come_to_those_whose_rights_name_them(tmp_path: Path) -> None:
    with guarded(tmp_path) as server:
        post(server.url, "/a/b", token=token("/a/**"))
        named = token("/__mdserver__/statistics/*", "/a/**")
        found = trio.run(_messages, server.url, named, OWN, 2)
        port = monitor_port(server)
        assert found[0]["member"] == found[0]["node"] == "mdserver"
        assert found[0]["total"]["messages_in"] == 1
        assert found[0]["now"].keys() == monitor(port, "GET", "/statistics")[1]["now"].keys()
        assert found[1]["time"] > found[0]["time"]
        assert found[1]["unready"] is None
        assert set(found[1]["latency"]) == {
            "publication_to_commit",
            "commit_to_socket",
            "loop_delay",
        }
        # What wildcards cover is everything but this.
        trio.run(_hears_nothing, server.url, token(*WILD), named)


async def _messages(url: str, right: str, subject: str, count: int) -> list[dict[str, Any]]:
    async with Client([url], token=right) as client:
        subscription = client.subscribe(subject)
        with trio.fail_after(PATIENCE_S):
            messages = [await anext(subscription) for _ in range(count)]
    return [json.loads(message.content) for message in messages]


async def _hears_nothing(url: str, wild: str, named: str) -> None:
    """A client with all that wildcards give asks for what they leave out."""
    async with Client([url], token=wild) as client, Client([url], token=named) as other:
        for subject in (OWN, "/__mdserver__/**", "/__mdserver__/statistics/*"):
            with pytest.raises(SubscribeError), trio.fail_after(PATIENCE_S):
                await anext(client.subscribe(subject))
        everything = client.subscribe("/**")
        with trio.fail_after(PATIENCE_S):
            await everything.caught_up()
            statistics = other.subscribe(OWN)
            for _ in range(2):
                await anext(statistics)
            await client.publish("/a/end", "end")
            assert (await anext(everything)).subject == "/a/b"
            assert (await anext(everything)).content == "end"


def test_no_right_lets_a_client_publish_there(tmp_path: Path) -> None:
    with guarded(tmp_path) as server:
        everything = token("/**", "/__mdserver__/**", OWN)
        trio.run(_refused, server.url, everything)
        answer = post(server.url, OWN, token=everything)
        assert answer["status"] == "DENY"
        assert "Only the server itself publishes" in answer["reason"]


async def _refused(url: str, right: str) -> None:
    async with Client([url], token=right) as client:
        for subject in (OWN, "/__mdserver__/events/mdserver", "/__mdserver__/x"):
            with pytest.raises(PublishError) as refused:
                await client.publish(subject, "{}")
            assert refused.value.result.status.value == "PUBLISH_DENIED"


def test_http_and_server_sent_events_ask_for_the_same_right(tmp_path: Path) -> None:
    with guarded(tmp_path) as server:
        wild, named = token(*WILD), token("/__mdserver__/**")
        for right, status in ((wild, 403), (named, 200)):
            query = urlencode({"subject": OWN, "token": right})
            with asked(server, f"/rest/consume?{query}") as answer:
                assert answer.status == status
        assert "SUBSCRIBE_DENY" in event(server, wild)
        assert '\\"node\\":\\"mdserver\\"' in event(server, named)


@contextmanager
def asked(server: LiveServer, path: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        yield connection.getresponse()
    finally:
        connection.close()


def event(server: LiveServer, right: str) -> str:
    """The data of the first server-sent event about the statistics, or its refusal."""
    with asked(server, "/sse?" + urlencode({"subject": OWN, "token": right})) as events:
        for _ in range(20):
            line = events.readline().decode()
            if '"message"' in line or "SUBSCRIBE_DENY" in line:
                return line
    raise AssertionError("neither a message nor a refusal")


def test_without_push_there_are_no_such_messages(tmp_path: Path) -> None:
    settings = ("Monitor=HTTP", QUICK)
    with live_server(tmp_path, *arguments(*settings)) as server:
        trio.run(_silent, server.url, monitor_port(server))


async def _silent(url: str, port: int) -> None:
    async with Client([url]) as client:
        subscription = client.subscribe("/__mdserver__/**", "/a/b")
        with trio.fail_after(PATIENCE_S):
            await subscription.confirmed()

        def sampled() -> bool:
            windows = monitor(port, "GET", "/statistics")[1]["windows"]
            return bool(windows["sessions"]["1min"]["seconds"] >= 4)  # a sample a second

        await trio.to_thread.run_sync(eventually, sampled)
        await client.publish("/a/b", "end")
        with trio.fail_after(PATIENCE_S):
            assert (await anext(subscription)).content == "end"


def test_each_member_has_a_subject_of_its_own_and_any_member_brings_all(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3, settings={"MonitorPush.Interval": "1s"}) as cluster:
        url = f"http://{cluster.clients[0]}"
        found = trio.run(_one_of_each, url, 3)
        assert found == {
            f"/__mdserver__/statistics/{peer}": (peer, f"member-{index + 1}")
            for index, peer in enumerate(cluster.peers)
        }


async def _one_of_each(url: str, count: int) -> dict[str, tuple[str, str]]:
    found = {}
    async with Client([url]) as client:
        subscription = client.subscribe("/__mdserver__/statistics/*")
        with trio.fail_after(2 * PATIENCE_S):
            while len(found) < count:
                message = await anext(subscription)
                document = json.loads(message.content)
                found[message.subject] = document["member"], document["node"]
    return found


def test_a_change_of_coordinators_is_told_as_it_happens(tmp_path: Path) -> None:
    settings = {"MonitorPush.Interval": "1s"}
    with LiveCluster(tmp_path, 3, settings=settings) as cluster:
        trio.run(_elected, cluster)


async def _elected(cluster: LiveCluster) -> None:
    """Kill a member while a client listens: another one says that it is the coordinator now."""
    async with Client([f"http://{cluster.clients[0]}"]) as client:
        subscription = client.subscribe("/__mdserver__/events/*")
        with trio.fail_after(PATIENCE_S):
            await subscription.confirmed()
        cluster.kill(2)
        with trio.fail_after(2 * PATIENCE_S):
            while True:
                message = await anext(subscription)
                document = json.loads(message.content)
                assert message.subject == f"/__mdserver__/events/{document['member']}"
                if any(one["event"] == "active" for one in document["events"]):
                    return
