"""Clients behind proxies, over real sockets: limits, allow list and audit see the client."""

import ipaddress
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import evolve

from mdserver.codec.proxy import SIGNATURE
from mdserver.core.settings import BrokerSettings
from mdserver.limits import NS_PER_MS, NS_PER_S
from mdserver.server.http.router import Router
from mdserver.server.server import Server
from mdserver.server.settings import ServerSettings
from mdserver.server.tls import KeyStore
from tests.live import live_server, wait_for_line
from tests.server.certificates import make_certificate
from tests.server.raw import TEXT, RawClient, connected, frame, upgrade
from tests.server.serving import LOOPBACK, port_of, serving

HERE = (ipaddress.ip_network("127.0.0.1"), ipaddress.ip_network("10.0.0.0/8"))
CLIENT, OTHER = "192.0.2.1", "198.51.100.1"
FORWARDED = ServerSettings(proxies=HERE, connections_per_address_max=1)
ANNOUNCED = evolve(FORWARDED, proxy_protocol=True)


def header(client: str, *, command: int = 0x21, more: bytes = b"") -> bytes:
    """A PROXY header for a TCP connection of this client."""
    ip = ipaddress.ip_address(client)
    kind = 0x11 if ip.version == 4 else 0x21
    rest = ip.packed + ip.packed + struct.pack("!HH", 50000, 443) + more
    return SIGNATURE + struct.pack("!BBH", command, kind, len(rest)) + rest


class Lines:
    """A log that can be looked at."""

    def __init__(self) -> None:
        self.warnings: list[tuple[str, dict[str, object]]] = []

    def warning(self, event: str, **values: object) -> None:
        self.warnings.append((event, values))

    def exception(self, event: str, **values: object) -> None:
        raise AssertionError(event, values)


def produce(*headers: str) -> bytes:
    lines = ["POST /rest/produce?subject=/a/b HTTP/1.1", "Host: localhost", "Content-Length: 1"]
    return "\r\n".join([*lines, *headers]).encode() + b"\r\n\r\nx"


async def answered(client: RawClient, request: bytes) -> str:
    """Status and body of the answer, which has a length."""
    await client.send(request)
    head = await client.until(b"\r\n\r\n")
    (length,) = [line[15:] for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
    return (head[9:13] + await client.exactly(int(length))).decode()


@asynccontextmanager
async def session(port: int, first: bytes, *lines: str) -> AsyncIterator[RawClient]:
    async with connected(port) as client:
        await client.send(first + upgrade("/ws", *lines))
        answer = await client.until(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 101 ")
        yield client


def addresses(server: Server) -> list[str]:
    return sorted(outbox.address for outbox in server.sessions.outboxes.values())


async def until_empty(server: Server) -> None:
    with trio.fail_after(10):
        await server._admission.emptied()


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ((f"X-Forwarded-For: {CLIENT}",), 200),
        ((f"X-Forwarded-For: {OTHER}, {CLIENT}, 10.0.0.7",), 200),
        ((f"X-Forwarded-For: {OTHER}", f"X-Forwarded-For: {CLIENT}"), 200),
        ((f"X-Forwarded-For: {CLIENT}, {OTHER}",), 403),
        ((), 403),
        (("X-Forwarded-For: unknown",), 400),
        (("X-Forwarded-For:",), 400),
    ],
)
async def test_the_allow_list_is_about_the_client(lines: tuple[str, ...], status: int) -> None:
    broker = BrokerSettings(publish_networks=(ipaddress.ip_network("192.0.2.0/24"),))
    async with (
        serving(FORWARDED, broker, Router()) as server,
        connected(port_of(server)) as client,
    ):
        assert (await answered(client, produce(*lines))).startswith(f"{status} ")


async def test_nobody_else_is_believed_who_the_client_is() -> None:
    broker = BrokerSettings(publish_networks=(ipaddress.ip_network("192.0.2.0/24"),))
    others = evolve(ANNOUNCED, proxies=(ipaddress.ip_network("10.0.0.0/8"),))
    for settings in (ServerSettings(), others):
        async with serving(settings, broker, Router()) as server:
            port = port_of(server)
            async with connected(port) as client:
                forwarded = produce(f"X-Forwarded-For: {CLIENT}")
                assert (await answered(client, forwarded)).startswith("403 ")
            async with connected(port) as client:
                answer = await answered(client, header(CLIENT) + produce())
                assert answer.startswith("400 A PROXY header is taken only with")


async def test_a_connection_counts_for_the_client_of_its_last_request() -> None:
    async with serving(FORWARDED, handler=Router()) as server:
        port = port_of(server)
        one, two = (f"X-Forwarded-For: {address}" for address in (CLIENT, OTHER))
        # Those of a proxy that have not asked yet count for nobody.
        async with connected(port), connected(port), connected(port) as kept:
            assert (await answered(kept, produce(one))).startswith("200 ")
            async with connected(port) as same:
                answer = await answered(same, upgrade("/ws", one))
                assert answer.startswith("503 There are 1 connections of your address")
            assert (await answered(kept, produce(two))).startswith("200 ")
            async with session(port, b"", one):
                assert addresses(server) == [CLIENT]
        await until_empty(server)
        async with session(port, b"", one), session(port, b"", two):
            assert addresses(server) == [CLIENT, OTHER]


async def test_a_session_is_that_of_the_client_that_a_header_names() -> None:
    async with serving(ANNOUNCED, handler=Router()) as server:
        port = port_of(server)
        async with session(port, header(CLIENT, more=b"\x04\x00\x01x")):
            async with session(port, header("2001:db8::1")):
                assert addresses(server) == [CLIENT, "2001:db8::1"]
            async with connected(port) as same:
                await same.send(header(CLIENT))
                assert b"of your address" in await same.rest()
            # The proxy itself: it looks whether the server is there.
            async with session(port, header(CLIENT, command=0x20)):
                assert addresses(server) == ["127.0.0.1", CLIENT]
        await until_empty(server)


async def test_what_a_client_forwards_itself_does_not_count() -> None:
    async with serving(ANNOUNCED, handler=Router()) as server:
        port = port_of(server)
        lines = (f"X-Forwarded-For: {OTHER}",)
        async with (
            session(port, header(CLIENT), *lines),
            session(port, header("10.1.1.1"), *lines),
        ):
            assert addresses(server) == [CLIENT, OTHER]


async def test_a_header_comes_before_tls(tmp_path: Path) -> None:
    pem = make_certificate(tmp_path / "server.pem")
    settings = evolve(ANNOUNCED, listen_encrypted=LOOPBACK, key_store=KeyStore(pem))
    async with serving(settings, handler=Router()) as server:
        (url,) = [url for url in server.urls if url.startswith("https://")]
        async with connected(int(url.rpartition(":")[2])) as client:
            first = header(CLIENT)
            await client.send(first[:20])
            await client.send(first[20:])
            context = ssl.create_default_context(cafile=str(pem))
            secured = RawClient(trio.SSLStream(client.stream, context, server_hostname="localhost"))
            await secured.send(upgrade())
            assert (await secured.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            assert addresses(server) == [CLIENT]


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (produce(), "does not begin with a PROXY header"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", "does not begin with a PROXY header"),
        (header(CLIENT)[:20], "did not come in time"),
        (header(CLIENT)[:8], "did not come in time"),
        (SIGNATURE + b"\x21\x11\xff\xff", "65535 bytes; 4096 are allowed"),
        (SIGNATURE + b"\x21\x11\x00\x04abcd", "cut short"),
        (SIGNATURE + b"\x21\x12\x00\x0c" + bytes(12), "not TCP"),
        (SIGNATURE + b"\x31\x11\x00\x0c" + bytes(12), "command 0x20 or 0x21, not 0x31"),
    ],
)
async def test_a_proxy_without_a_good_header_is_refused_and_the_log_says_so(
    first: bytes, reason: str
) -> None:
    log = Lines()
    settings = evolve(ANNOUNCED, handshake_timeout=100 * NS_PER_MS)
    async with serving(settings, handler=Router(), log=log) as server:
        async with connected(port_of(server)) as client:
            await client.send(first)
            assert await client.rest() == b""
        ((event, values),) = log.warnings
        assert event == "connection of a proxy refused"
        assert reason in str(values["reason"])
        assert values["address"] == "127.0.0.1"
        await until_empty(server)


async def test_a_proxy_that_only_looks_who_is_there_is_nothing_to_tell() -> None:
    log = Lines()
    settings = evolve(ANNOUNCED, handshake_timeout=10 * NS_PER_S)
    async with serving(settings, handler=Router(), log=log) as server:
        async with connected(port_of(server)) as client:
            client.stream.socket.shutdown(socket.SHUT_WR)  # type: ignore[attr-defined]
            assert await client.rest() == b""
        await until_empty(server)
    assert log.warnings == []


def test_the_audit_log_names_the_client(tmp_path: Path) -> None:
    settings = (
        "Listen=127.0.0.1:0",
        "Entitlement=None",
        "ProxyAddressList=127.0.0.1",
        "ProxyProtocol=v2",
        "Extension.Audit.Access=true",
        f"LogFolder={tmp_path}",
    )
    words = [word for each in settings for word in ("--set", each)]
    with (
        live_server(tmp_path, *words) as server,
        socket.create_connection(("127.0.0.1", server.port), 10) as sock,
    ):
        sock.sendall(header(CLIENT) + upgrade())
        assert sock.recv(4096).startswith(b"HTTP/1.1 101 ")
        sock.sendall(frame(TEXT, b'{"op": "connect"}'))
        line: dict[str, Any] = wait_for_line(tmp_path / "audit-access.log", CLIENT)
        assert CLIENT in json.dumps(line)
