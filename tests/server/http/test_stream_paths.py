"""Server-sent events and HTTP streams over real sockets: as raw bytes, and by curl."""

import json
import random
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from mdserver.cluster.node import Node
from mdserver.codec.binary_form import BinaryClient
from mdserver.core.commands import Publish, Subscribe
from mdserver.core.entitlement import Policy
from mdserver.core.settings import BrokerSettings
from mdserver.limits import MB
from mdserver.server.http.router import Router
from mdserver.server.server import Server
from mdserver.server.settings import ServerSettings
from tests.server.raw import RawClient
from tests.server.serving import port_of, serving

OPEN = BrokerSettings(policy=Policy.NONE)
MS = 1_000_000


@asynccontextmanager
async def server(
    settings: ServerSettings | None = None, broker: BrokerSettings = OPEN
) -> AsyncIterator[Server]:
    node = Node(broker, random.Random(1))
    with trio.fail_after(10):
        async with serving(settings, handler=Router(), node=node) as running:
            yield running


@asynccontextmanager
async def request(running: Server, head: str, body: bytes = b"") -> AsyncIterator[RawClient]:
    """A connection that sent one request; what follows is what the test reads."""
    stream = await trio.open_tcp_stream("127.0.0.1", port_of(running))
    async with stream:
        client = RawClient(stream)
        lines = [*head.split("\n"), "Host: localhost"]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        await client.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        yield client


async def status(client: RawClient) -> tuple[int, dict[str, str]]:
    head = (await client.until(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), headers


async def answer(running: Server, head: str, body: bytes = b"") -> tuple[int, bytes]:
    async with request(running, head, body) as client:
        code, headers = await status(client)
        return code, await client.exactly(int(headers.get("content-length", "0")))


async def part(client: RawClient) -> bytes:
    """The content of the next chunk."""
    size = int(await client.until(b"\r\n"), 16)
    content = await client.exactly(size)
    assert await client.exactly(2) == b"\r\n"
    return content


class Events:
    """Events of a stream of lines or of server-sent events, one by one."""

    def __init__(self, client: RawClient, separator: bytes) -> None:
        self._client = client
        self._separator = separator
        self._rest = b""

    async def next(self) -> bytes:
        while True:
            while self._separator not in self._rest:
                self._rest += await part(self._client)
            event, _, self._rest = self._rest.partition(self._separator)
            if event:
                return event

    async def json(self) -> Any:
        return json.loads(await self.next())

    async def sse(self) -> dict[str, str]:
        lines = (await self.next()).decode().split("\n")
        return dict(line.split(": ", 1) for line in lines)


@asynccontextmanager
async def event_source(running: Server, query: str, *headers: str) -> AsyncIterator[Events]:
    async with request(running, "\n".join([f"GET /sse?{query} HTTP/1.1", *headers])) as client:
        code, found = await status(client)
        assert (code, found["content-type"]) == (200, "text/event-stream")
        events = Events(client, b"\n\n")
        assert (await events.sse())["event"] == "connected"
        yield events


async def produce(running: Server, subject: str, content: str, query: str = "") -> None:
    head = f"POST /rest/produce?subject={subject}{query} HTTP/1.1"
    code, body = await answer(running, head, content.encode())
    assert code == 200, body


async def messages(events: Events, count: int) -> list[tuple[str, str, str]]:
    """Subject, content and type of the next messages."""
    found = []
    while len(found) < count:
        event = await events.sse()
        if event.get("event") == "message":
            message = json.loads(event["data"])
            found.append((message["subject"], message["content"], message["type"]))
    return found


async def test_an_event_source_gets_the_snapshot_and_then_live_messages() -> None:
    async with server() as running:
        await produce(running, "/a/b", "1")
        async with event_source(running, "subject=/a/b") as events:
            assert await messages(events, 1) == [("/a/b", "1", "SNAPSHOT")]
            await produce(running, "/a/b", "2")
            assert await messages(events, 1) == [("/a/b", "2", "UPDATE")]


@pytest.mark.parametrize("query", ["subject=/a/*", "subject=/a/b&subject=/a/c"])
async def test_last_event_id_recovers_every_subject(query: str) -> None:
    async with server() as running:
        async with event_source(running, query) as events:
            for subject, content in (("/a/b", "1"), ("/a/c", "2"), ("/a/b", "3")):
                await produce(running, subject, content)
            last = ""
            for _ in range(3):
                while (event := await events.sse()).get("event") != "message":
                    pass
                last = event["id"]
        for subject, content in (("/a/c", "4"), ("/a/b", "5"), ("/a/c", "6")):
            await produce(running, subject, content)
        async with event_source(running, query, f"Last-Event-ID: {last}") as events:
            found = await messages(events, 3)
        assert sorted(found) == [
            ("/a/b", "5", "RECOVERED"),
            ("/a/c", "4", "RECOVERED"),
            ("/a/c", "6", "RECOVERED"),
        ]


async def test_history_and_conflation_of_an_event_source() -> None:
    async with server() as running:
        for content in "123":
            await produce(running, "/a/b", content)
        async with event_source(running, "subject=/a/b&history=2&conflation=100") as events:
            assert await messages(events, 2) == [
                ("/a/b", "2", "HISTORICAL"),
                ("/a/b", "3", "HISTORICAL"),
            ]
            await produce(running, "/a/b", "4")
            await produce(running, "/a/b", "5")
            assert (await messages(events, 1))[0][1] == "5"


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", "`subject` is needed once"),
        ("subject=nonsense", "does not start with '/'"),
        ("subject=/a/b&hist=3", "There is no parameter `hist`"),
        ("subject=/a/b&conflation=fast", "`conflation` must be a whole number"),
        ("subject=/a/b&token=a&token=b", "`token` is given twice"),
    ],
)
async def test_a_bad_event_source_is_one_clear_answer(query: str, reason: str) -> None:
    async with server() as running:
        code, body = await answer(running, f"GET /sse?{query} HTTP/1.1")
        assert code == 400
        assert reason in body.decode()
        code, body = await answer(running, "GET /sse?subject=/a/b HTTP/1.1\nLast-Event-ID: junk")
        assert (code, b"Last-Event-ID" in body) == (400, True)


async def test_a_stream_speaks_the_whole_protocol() -> None:
    body = b'{"op":"subscribe","subjects":["/a/*"]}\n{"op":"ping","t":7}\n'
    async with server() as running:
        async with request(running, "POST /stream HTTP/1.1", body) as client:
            code, headers = await status(client)
            assert (code, headers["content-type"]) == (200, "application/x-ndjson")
            events = Events(client, b"\n")
            path = (await events.json())["path"]
            assert await events.json() == {"op": "pong", "t": 7}
            publish = b'{"op":"publish","subject":"/a/b","content":"x","closure":"c"}'
            assert (await answer(running, f"POST {path} HTTP/1.1", publish))[0] == 202
            ops = {event["op"]: event for event in [await events.json(), await events.json()]}
            assert ops["message"]["content"] == "x"
            assert (ops["status"]["status"], ops["status"]["closure"]) == ("PUBLISH_OK", "c")
        while running.sessions.streams:
            await trio.lowlevel.checkpoint()
        code, text = await answer(running, f"POST {path} HTTP/1.1", publish)
        assert (code, b"There is no such stream" in text) == (404, True)


async def test_a_stream_of_frames() -> None:
    client_side = BinaryClient()
    accept = "Accept: application/vnd.mdserver.v1\nContent-Type: application/vnd.mdserver.v1"
    commands = client_side.join(
        [
            client_side.command(Subscribe(subjects=["/a/b"])),
            client_side.command(Publish(subject="/a/b", content="x", id=1)),
        ]
    )
    async with (
        server() as running,
        request(running, f"POST /stream HTTP/1.1\n{accept}", commands) as client,
    ):
        code, headers = await status(client)
        assert (code, headers["content-type"]) == (200, "application/vnd.mdserver.v1")
        events: list[Any] = []
        while not any(getattr(event, "content", None) == "x" for event in events):
            events += client_side.stream(await part(client))


@pytest.mark.parametrize(
    ("headers", "body", "code", "reason"),
    [
        ("", b"{nonsense", 400, "JSON"),
        ("Content-Type: text/xml", b"<a/>", 415, "not as text/xml"),
        ("Accept: text/html", b"", 406, "none of which is accepted"),
        ("Content-Type: application/vnd.mdserver.v1", b"\x7f\x00", 400, ""),
    ],
)
async def test_a_bad_stream_is_one_clear_answer(
    headers: str, body: bytes, code: int, reason: str
) -> None:
    async with server() as running:
        head = "\n".join(filter(None, ["POST /stream HTTP/1.1", headers]))
        found, text = await answer(running, head, body or b"\n")
        assert found == code
        assert reason in text.decode()


async def test_head_of_an_event_source_begins_no_session() -> None:
    async with (
        server() as running,
        request(running, "HEAD /sse?subject=/a/b HTTP/1.1") as client,
    ):
        code, headers = await status(client)
        assert (code, headers["content-type"]) == (200, "text/event-stream")
        assert not running.sessions.sinks
        assert not client.received


async def test_http_1_0_is_told_to_use_1_1() -> None:
    async with server() as running:
        for head in ("GET /sse?subject=/a/b HTTP/1.0", "POST /stream HTTP/1.0"):
            code, text = await answer(running, head)
            assert (code, b"HTTP/1.1" in text) == (400, True)


async def test_a_quiet_stream_is_kept_alive_and_lives() -> None:
    settings = ServerSettings(keepalive=50 * MS)
    async with (
        server(settings, BrokerSettings(policy=Policy.NONE, keepalive=50 * MS)) as running,
        request(running, "GET /sse?subject=/a/b HTTP/1.1") as client,
    ):
        await status(client)
        comments = 0
        while comments < 4:
            comments += (await part(client)).count(b":\n\n")
        await produce(running, "/a/b", "still here")
        while b"still here" not in await part(client):
            pass


async def test_pages_of_other_origins_are_refused() -> None:
    settings = ServerSettings(allowed_origins=frozenset(["https://good.example"]))
    async with server(settings) as running:
        head = "GET /sse?subject=/a/b HTTP/1.1\nOrigin: https://evil.example"
        assert (await answer(running, head))[0] == 403
        ask = "OPTIONS /stream HTTP/1.1\nAccess-Control-Request-Method: POST\nOrigin: https://"
        async with request(running, ask + "good.example") as client:
            code, headers = await status(client)
            assert (code, headers["access-control-allow-origin"]) == (204, "https://good.example")
        assert (await answer(running, ask + "evil.example"))[0] == 403


async def test_tokens_rule_event_sources_too() -> None:
    broker = BrokerSettings(policy=Policy.BASIC, allow_token="secret")
    async with (
        server(broker=broker) as running,
        event_source(running, "subject=/a/b") as events,
    ):
        code, _ = await answer(running, "POST /rest/produce?subject=/a/b HTTP/1.1", b"x")
        assert code == 403
        await produce(running, "/a/b", "allowed", "&token=secret")
        assert await messages(events, 1) == [("/a/b", "allowed", "UPDATE")]


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_curl_reads_a_stream() -> None:
    async with server() as running:
        await produce(running, "/a/b", "for curl")
        command = ["curl", "--silent", "--no-buffer", "--max-time", "8"]
        url = f"http://127.0.0.1:{port_of(running)}/sse?subject=/a/b"
        async with trio.open_nursery() as nursery:
            run = partial(trio.run_process, [*command, url], stdout=subprocess.PIPE, check=False)
            curl = await nursery.start(run)
            read = b""
            while b"for curl" not in read:
                read += await curl.stdout.receive_some()
            curl.terminate()
        assert b"event: message" in read


def contents(found: list[dict[str, str]]) -> list[str]:
    return [
        json.loads(event["data"])["content"] for event in found if event.get("event") == "message"
    ]


async def test_a_slow_reader_that_is_cut_off_comes_back_and_misses_nothing() -> None:
    published = [f"{number:04}" + "x" * 20_000 for number in range(60)]
    async with server(ServerSettings(outbox_bytes_max=64 * MB)) as running:
        seen: list[str] = []
        last = ""
        sock = trio.socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await sock.connect(("127.0.0.1", port_of(running)))
        async with trio.SocketStream(sock) as stream:
            client = RawClient(stream)
            await client.send(b"GET /sse?subject=/a/* HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await status(client))[0] == 200
            for content in published[:-20]:
                await produce(running, "/a/b", content)
            for content in published[-20:]:
                await produce(running, "/a/c", content)
            (outbox,) = running.sessions.outboxes.values()
            assert outbox.unsent, "the reader keeps up: nothing is tried"
            events = Events(client, b"\n\n")
            while len(seen) < 20:
                event = await events.sse()
                last = event.get("id", last)
                seen += contents([event])
        async with event_source(running, "subject=/a/*", f"Last-Event-ID: {last}") as events:
            found: list[dict[str, str]] = []
            while len(contents(found)) < len(published) - len(seen):
                found.append(await events.sse())
            seen += contents(found)
    assert sorted(content[:4] for content in seen) == [content[:4] for content in published]


async def test_who_comes_back_twice_misses_nothing_of_what_was_quiet_meanwhile() -> None:
    async with server() as running:
        last = ""
        async with event_source(running, "subject=/a/b&subject=/a/c") as events:
            for subject in ("/a/b", "/a/c"):
                await produce(running, subject, "1")
                last = (await next_message(events))["id"]
        async with event_source(
            running, "subject=/a/b&subject=/a/c", f"Last-Event-ID: {last}"
        ) as events:
            await produce(running, "/a/b", "2")
            last = (await next_message(events))["id"]
        for content in ("2", "3"):
            await produce(running, "/a/c", content)
        async with event_source(
            running, "subject=/a/b&subject=/a/c", f"Last-Event-ID: {last}"
        ) as events:
            assert await messages(events, 2) == [
                ("/a/c", "2", "RECOVERED"),
                ("/a/c", "3", "RECOVERED"),
            ]


async def next_message(events: Events) -> dict[str, str]:
    while (event := await events.sse()).get("event") != "message":
        pass
    return event


async def test_an_id_recovers_a_pattern_of_very_many_subjects() -> None:
    """Each message once, whatever subject it is of: as many as nobody would name in an id."""
    subjects = [f"/many/{number}" for number in range(300)]
    async with server() as running:
        for subject in subjects[:200]:
            await produce(running, subject, "before")
        async with event_source(running, "subject=/many/*") as events:
            assert len(await messages(events, 200)) == 200
            for subject in subjects[100:250]:
                await produce(running, subject, "live")
            await messages(events, 149)
            last = (await next_message(events))["id"]
        for subject in subjects[:2] + subjects[150:]:
            await produce(running, subject, "missed")
        async with event_source(running, "subject=/many/*", f"Last-Event-ID: {last}") as events:
            missed = await messages(events, 152)
            await produce(running, "/many/0", "last")
            assert await messages(events, 1) == [("/many/0", "last", "UPDATE")]
    expected = [(subject, "missed", "RECOVERED") for subject in subjects[:2] + subjects[150:]]
    assert sorted(missed) == sorted(expected)
