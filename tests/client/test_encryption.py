"""The client over TLS, by WebSocket and by HTTP."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from mdserver.client import Client, Notification
from mdserver.core.entitlement import Policy
from mdserver.core.settings import BrokerSettings
from mdserver.server.http.router import Router
from mdserver.server.settings import ServerSettings
from mdserver.server.tls import KeyStore
from tests.server.certificates import make_certificate
from tests.server.serving import LOOPBACK, serving


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    return make_certificate(tmp_path / "server.pem")


@pytest.fixture
async def server(pem: Path) -> AsyncIterator[Any]:
    settings = ServerSettings(listen_encrypted=LOOPBACK, key_store=KeyStore(pem))
    broker = BrokerSettings(policy=Policy.NONE)
    async with serving(settings, broker, handler=Router()) as running:
        yield running


def secure_url(server: Any) -> str:
    return next(str(url) for url in server.urls if url.startswith("https:"))


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_publish_and_subscribe(server: Any, pem: Path, transport: Any) -> None:
    tls = ssl.create_default_context(cafile=str(pem))
    async with (
        Client([secure_url(server)], tls=tls, transport=transport) as client,
        client.subscribe("/a/b") as subscription,
    ):
        with trio.fail_after(10):
            await client.publish("/a/b", "x" * 60_000)
            assert (await anext(subscription)).content == "x" * 60_000


async def test_encryption_is_a_setting_for_addresses_without_a_scheme(
    server: Any, pem: Path
) -> None:
    address = secure_url(server).removeprefix("https://")
    async with Client([address]) as client:
        client.disconnect()
        client.set_encryption(True, ssl.create_default_context(cafile=str(pem)))
        client.connect()
        with trio.fail_after(10):
            await client.connected()


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_a_certificate_that_nobody_vouches_for(server: Any, transport: Any) -> None:
    async with Client([secure_url(server)], transport=transport) as client:
        with trio.fail_after(10):
            notice = await anext(client.statuses)
    assert notice.status is Notification.SERVER_DOWN
    assert "no TLS connection: " in str(notice.info)
    assert "self-signed certificate" in str(notice.info)
