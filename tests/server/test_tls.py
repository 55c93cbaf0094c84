"""Encrypted listeners over real sockets."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from mdserver.config.values import Address
from mdserver.core.settings import BrokerSettings
from mdserver.errors import StartError
from mdserver.limits import MB, NS_PER_MS
from mdserver.server import tls
from mdserver.server.http.router import Router
from mdserver.server.server import Server
from mdserver.server.settings import ServerSettings
from mdserver.server.tls import KeyStore, server_context
from tests.server.certificates import make_certificate
from tests.server.raw import TEXT, RawClient, connected, frame, upgrade
from tests.server.serving import LOOPBACK, serving


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    return make_certificate(tmp_path / "server.pem")


def encrypted(pem: Path) -> ServerSettings:
    return ServerSettings(
        listen_encrypted=LOOPBACK,
        key_store=KeyStore(pem),
        handshake_timeout=300 * NS_PER_MS,
        websocket_bytes_max=8 * MB,
    )


def secure_port(server: Server) -> int:
    (url,) = [url for url in server.urls if url.startswith("https://")]
    return int(url.rpartition(":")[2])


def trusting(pem: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(pem))


@asynccontextmanager
async def secured(
    server: Server, context: ssl.SSLContext
) -> AsyncIterator[tuple[RawClient, trio.SSLStream[trio.SocketStream]]]:
    with trio.fail_after(10):
        stream = await trio.open_ssl_over_tcp_stream(
            "127.0.0.1", secure_port(server), ssl_context=context, https_compatible=True
        )
        async with stream:
            await stream.do_handshake()
            yield RawClient(stream), stream


@asynccontextmanager
async def secure_websocket(server: Server, pem: Path) -> AsyncIterator[RawClient]:
    async with secured(server, trusting(pem)) as (client, _):
        await client.send(upgrade())
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        yield client


async def test_a_message_from_subscriber_to_publisher(pem: Path) -> None:
    async with serving(encrypted(pem)) as server, secure_websocket(server, pem) as client:
        await client.send(frame(TEXT, b'{"op":"subscribe","subjects":["/a/b"]}'))
        await client.frame()
        await client.send(frame(TEXT, b'{"op":"publish","subject":"/a/b","content":"x"}'))
        _, payload = await client.frame()
        assert json.loads(payload)["content"] == "x"


async def test_a_publication_with_a_wrong_record_right_after_it_is_delivered(pem: Path) -> None:
    publication = frame(TEXT, b'{"op":"publish","subject":"/a/b","content":"last"}')
    async with serving(encrypted(pem)) as server, secure_websocket(server, pem) as subscriber:
        await subscriber.send(frame(TEXT, b'{"op":"subscribe","subjects":["/a/b"]}'))
        await subscriber.frame()
        async with secured(server, trusting(pem)) as (client, stream):
            await client.send(upgrade())
            await client.until(b"\r\n\r\n")
            stream._ssl_object.write(publication)
            forged = b"\x17\x03\x03\x00\x20" + bytes(32)
            await stream.transport_stream.send_all(stream._outgoing.read() + forged)
            assert await client.rest() == b""
        _, payload = await subscriber.frame()
        assert json.loads(payload)["content"] == "last"


async def test_a_message_larger_than_every_buffer(pem: Path) -> None:
    """Writes are refused, parked and repeated, and the bytes come out right."""
    broker = BrokerSettings(message_bytes_max=8 * MB)
    content = "".join(f"{number:07d}" for number in range(600_000))
    command = json.dumps({"op": "publish", "subject": "/a/b", "content": content}).encode()
    async with serving(encrypted(pem), broker) as server, secure_websocket(server, pem) as client:
        await client.send(frame(TEXT, b'{"op":"subscribe","subjects":["/a/b"]}'))
        await client.frame()
        await client.send(frame(TEXT, command))
        _, payload = await client.frame()
        assert json.loads(payload)["content"] == content


async def test_http_over_tls_ends_with_close_notify(pem: Path) -> None:
    async with (
        serving(encrypted(pem), handler=Router()) as server,
        secured(server, trusting(pem)) as (client, _),
    ):
        await client.send(
            b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        assert (await client.rest()).endswith(b"live\n")


async def test_new_certificates_are_for_new_connections(pem: Path) -> None:
    async with serving(encrypted(pem)) as server:
        old = trusting(pem)
        async with secure_websocket(server, pem) as client:
            make_certificate(pem)
            tls.reload(server.identities)
            await client.send(frame(TEXT, b'{"op":"ping","t":1}'))
            assert b"pong" in (await client.frame())[1]
            async with secure_websocket(server, pem):
                pass
            with pytest.raises(trio.BrokenResourceError):
                async with secured(server, old):
                    pass


async def test_a_reload_that_fails_changes_nothing(pem: Path) -> None:
    file = trio.Path(pem)
    async with serving(encrypted(pem)) as server:
        good = await file.read_bytes()
        await file.write_bytes(b"no certificate")
        with pytest.raises(StartError, match="needs a certificate chain"):
            tls.reload(server.identities)
        await file.write_bytes(good)
        async with secure_websocket(server, pem):
            pass


async def test_a_reload_takes_all_certificates_or_none(tmp_path: Path) -> None:
    one, other = make_certificate(tmp_path / "1.pem"), make_certificate(tmp_path / "2.pem")
    first, second = Address("127.0.0.1", 0), Address("localhost", 0)
    stores = ((first, KeyStore(one)), (second, KeyStore(other)))
    settings = ServerSettings(listen_encrypted=(first, second), key_stores=stores)
    async with serving(settings) as server:
        before = [identity.context for identity in server.identities]
        make_certificate(one)
        await trio.Path(other).write_bytes(b"no certificate")
        with pytest.raises(StartError, match="needs a certificate chain"):
            tls.reload(server.identities)
        assert [identity.context for identity in server.identities] == before


async def test_a_certificate_for_each_address(tmp_path: Path) -> None:
    one, other = make_certificate(tmp_path / "1.pem"), make_certificate(tmp_path / "2.pem")
    first, second = Address("127.0.0.1", 0), Address("localhost", 0)
    settings = ServerSettings(
        listen_encrypted=(first, second),
        key_store=KeyStore(one),
        key_stores=((second, KeyStore(other)),),
    )
    async with serving(settings) as server:
        ports = [url.rpartition(":")[2] for url in server.urls if url.startswith("https")]
        for port, pem in zip(ports, (one, other), strict=True):
            stream = await trio.open_ssl_over_tcp_stream(
                "127.0.0.1", int(port), ssl_context=trusting(pem), https_compatible=True
            )
            async with stream:
                await stream.do_handshake()
                shown = stream.getpeercert(binary_form=True)
            assert ssl.DER_cert_to_PEM_cert(shown) in pem.read_text()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_old_protocols_are_refused(pem: Path, version: ssl.TLSVersion) -> None:
    context = trusting(pem)
    context.minimum_version = version
    context.maximum_version = version
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    async with serving(encrypted(pem)) as server:
        with pytest.raises(trio.BrokenResourceError):
            async with secured(server, context):
                pass


async def test_ciphers_without_forward_secrecy_are_refused(pem: Path) -> None:
    context = trusting(pem)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AES128-SHA:AES256-GCM-SHA384")
    async with serving(encrypted(pem)) as server:
        with pytest.raises(trio.BrokenResourceError):
            async with secured(server, context):
                pass


async def test_tls_1_2_with_a_good_cipher(pem: Path) -> None:
    context = trusting(pem)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with serving(encrypted(pem)) as server, secured(server, context) as (_, stream):
        assert "ECDHE" in stream.cipher()[0]


async def test_a_slow_or_senseless_hand_shake_is_cut_off(pem: Path) -> None:
    """Each is logged and counted, also one of which nothing more came."""
    async with serving(encrypted(pem)) as server:
        for start in (b"", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n\r\n", bytes(300)):
            async with connected(secure_port(server)) as client:
                await client.send(start)
                answer = await client.rest()
            # At most a TLS alert, and never an answer in the clear.
            assert answer[:1] in (b"", b"\x15")
        assert server.sessions.measures.refused["no TLS connection"] == 4
        async with secure_websocket(server, pem):
            pass


@pytest.mark.parametrize("content", [b"", b"nothing in here", b"-----BEGIN CERTIFICATE-----\n"])
def test_a_key_store_that_is_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bad.pem"
    file.write_bytes(content)
    with pytest.raises(StartError, match="needs a certificate chain"):
        server_context(KeyStore(file))


def test_a_key_store_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"Cannot read .*gone\.pem: No such file"):
        server_context(KeyStore(tmp_path / "gone.pem"))


def test_a_cipher_list_that_openssl_does_not_know(pem: Path) -> None:
    with pytest.raises(StartError, match="CipherList = FOO"):
        server_context(KeyStore(pem), "FOO")


def test_an_encrypted_address_needs_a_certificate() -> None:
    async def start() -> None:
        async with serving(ServerSettings(listen_encrypted=LOOPBACK)):
            pass

    with pytest.raises(BaseExceptionGroup) as caught:
        trio.run(start)
    assert caught.group_contains(StartError, match="set KeyStore", depth=None)
