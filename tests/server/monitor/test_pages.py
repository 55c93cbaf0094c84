"""The monitor's own listener over real sockets."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import structlog
import trio

from mdserver.core.settings import BrokerSettings
from mdserver.server.http.router import Router
from mdserver.server.monitor.pages import Monitor
from mdserver.server.monitor.sessions import SessionList, SessionsPage
from mdserver.server.server import Server
from mdserver.server.settings import ServerSettings
from tests.server.http.test_rest import Http
from tests.server.raw import TEXT, connected, frame, upgrade, upgraded
from tests.server.serving import LOOPBACK, new_node, port_of


@asynccontextmanager
async def monitored(user: str = "", password: str = "") -> AsyncIterator[Server]:
    settings = ServerSettings(listen=LOOPBACK, monitor_listen=LOOPBACK)
    node = new_node(BrokerSettings())
    server = Server(settings, node, Router(), structlog.get_logger())
    monitor = Monitor(lambda: server.unready, user, password)
    monitor.add("/sessions", {"GET": SessionsPage(SessionList(server, node))})
    server.add_monitor(monitor)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve)
        yield server
        nursery.cancel_scope.cancel()


def monitor_port(server: Server) -> int:
    return int(server.monitor_urls[0].rpartition(":")[2])


def basic(user: str, password: str) -> str:
    return "Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def test_each_session_with_what_waits_for_it() -> None:
    async with monitored() as server, upgraded(port_of(server)) as client:
        await client.send(frame(TEXT, b'{"op":"subscribe","subjects":["/a/b"]}'))
        _, payload = await client.frame()
        told = json.loads(payload)
        told = told[0] if isinstance(told, list) else told
        async with connected(monitor_port(server)) as raw:
            ask = Http(raw)
            status, _, body = await ask("GET", "/sessions")
            (session,) = json.loads(body)
            assert status == 200
            assert session["session"] == told["session"], "one name everywhere"
            assert session["address"] == "127.0.0.1"
            assert session["transport"] == "websocket json"
            assert (session["outbox_bytes"], session["waiting_ms"]) == (0, 0)
            _, headers, body = await ask("GET", "/sessions", format="text")
            assert headers["content-type"].startswith("text/plain")
            names, row = body.decode().splitlines()
            assert names.split()[:2] == ["session", "address"]
            assert row.split()[:2] == [str(session["session"]), "127.0.0.1"]
            assert json.loads((await ask("GET", "/sessions", limit=0))[2]) == []
            assert (await ask("GET", "/sessions", limit=10**9))[0] == 400


async def test_the_monitor_takes_no_sessions_and_no_publications() -> None:
    async with monitored() as server, connected(monitor_port(server)) as raw:
        order = "X-Mdserver: 1"
        assert (await Http(raw)("POST", "/rest/produce", b"x", order, subject="/a/b"))[0] == 404
        await raw.send(upgrade())
        assert (await raw.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 404 ")


async def test_orders_need_a_header_that_no_foreign_page_can_send() -> None:
    async with monitored() as server, connected(monitor_port(server)) as raw:
        status, _, body = await Http(raw)("POST", "/cluster/drain")
        assert status == 403
        assert b"X-Mdserver" in body
    preflight = (b"", "Origin: http://evil.example", "Access-Control-Request-Method: POST")
    for origin in ("http://evil.example", "null"):
        async with monitored() as server, connected(monitor_port(server)) as raw:
            status, headers, _ = await Http(raw)("GET", "/sessions", b"", f"Origin: {origin}")
            assert (status, "access-control-allow-origin" in headers) == (403, False)
    async with monitored() as server, connected(monitor_port(server)) as raw:
        assert (await Http(raw)("OPTIONS", "/cluster/drain", *preflight))[0] == 403


async def test_a_picture_in_a_foreign_page_gets_nothing() -> None:
    async with monitored() as server, connected(monitor_port(server)) as raw:
        picture = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image")
        status, _, body = await Http(raw)("GET", "/sessions", b"", *picture)
        assert (status, b"other sites" in body) == (403, True)
    async with monitored() as server, connected(monitor_port(server)) as raw:
        link = ("Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
        assert (await Http(raw)("GET", "/sessions", b"", *link))[0] == 200


async def test_clients_do_not_see_its_pages() -> None:
    async with monitored() as server, connected(port_of(server)) as raw:
        assert (await Http(raw)("GET", "/sessions"))[0] == 404


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (basic("operator", "s3cret"), 200),
        (basic("operator", "wrong"), 401),
        (basic("other", "s3cret"), 401),
        ("X-Nothing: x", 401),
        ("Authorization: Bearer s3cret", 401),
        ("Authorization: Basic !!!", 401),
        ("Authorization: Basic", 401),
    ],
)
async def test_user_and_password(line: str, status: int) -> None:
    async with monitored("operator", "s3cret") as server, connected(monitor_port(server)) as raw:
        ask = Http(raw)
        answered, headers, _ = await ask("GET", "/sessions", b"", line)
        assert answered == status
        assert ("www-authenticate" in headers) == (status == 401)
        assert (await ask("GET", "/health/ready", b""))[0] == 200


async def test_it_goes_on_while_the_server_drains() -> None:
    async with monitored() as server:
        with trio.fail_after(10):
            await server.drain()
        async with connected(monitor_port(server)) as raw:
            assert (await Http(raw)("GET", "/health/ready"))[0] == 503
