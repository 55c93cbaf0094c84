"""Mistakes of an application: each gets one sentence at once, and nothing waits for ever."""

import logging
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from mdserver.client import (
    ArgumentError,
    Client,
    ClientTimeoutError,
    ConnectError,
    NotOpenError,
    PublishError,
    ReconnectSettings,
)
from tests.live import live_server

NOWHERE = ["127.0.0.1:1"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"servers": "127.0.0.1:8800"}, "servers is a list such as"),
        ({"servers": 8800}, "servers is a list"),
        ({"servers": [8800]}, "each of servers is a str, not 8800 (int)"),
        ({"servers": []}, "at least one server"),
        ({"servers": ["ftp://a"]}, "the scheme is one of"),
        ({"encoding": "xml"}, "encoding is 'binary' or 'json', not 'xml' (str)"),
        ({"transport": "udp"}, "transport is 'websocket' or 'http'"),
        ({"token": 7}, "token is a str, not 7 (int)"),
        ({"publisher_key": "k"}, "publisher_key goes with the publisher"),
        ({"keepalive_ms": "5"}, "keepalive_ms is an integer"),
        ({"connect_timeout_s": 0}, "above 0"),
        ({"timeout_s": "5"}, "timeout_s is a number of seconds or None"),
        ({"reconnect": 5}, "reconnect is of the class ReconnectSettings"),
        ({"numbering": {}}, "numbering is of the class Numbering"),
        ({"buffer_messages": 0}, "buffer_messages is an integer, 1 or more"),
        ({"receipts": "yes"}, "receipts is True or False, not 'yes' (str)"),
        ({"encryption": "tls"}, "encryption is True or False"),
        ({"reconnect": ReconnectSettings(max_delay_s=-1)}, "max_delay_s is a number of seconds, 0"),
    ],
)
def test_arguments_of_the_client(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(sentence)) as caught:
        Client(**({"servers": NOWHERE} | arguments))
    assert isinstance(caught.value, ValueError)


def test_a_misspelt_option_is_refused() -> None:
    async def main() -> None:
        async with Client(NOWHERE) as client:
            for method in (client.publish, client.submit, client.request):
                with pytest.raises(TypeError, match="filds"):
                    await method("/a/b", "x", filds={"a": "b"})  # type: ignore[operator]

    trio.run(main)


@pytest.mark.parametrize(
    ("content", "options", "sentence"),
    [
        (193, {}, "content is a str or bytes, not 193 (int): write str(...)"),
        ({"price": 193}, {}, "write json.dumps(...)"),
        (None, {}, "content is a str or bytes"),
        ("x", {"fields": {"volume": 6.62}}, "fields['volume'] is a str, not 6.62 (float)"),
        ("x", {"fields": {1: "a"}}, "the names of fields are str"),
        ("x", {"fields": ["a"]}, "fields is a dict from names to texts"),
        ("x", {"qos": "standard"}, "qos is Qos.GUARANTEED or Qos.STANDARD"),
        ("x", {"retained": "no"}, "retained is True or False"),
        ("x", {"closure": 7}, "closure is a str, not 7 (int)"),
    ],
)
async def test_arguments_of_a_publication(
    content: Any, options: dict[str, Any], sentence: str
) -> None:
    async with Client(NOWHERE) as client:
        for publish in (client.publish, client.submit):
            with pytest.raises(ArgumentError, match=re.escape(sentence)):
                await publish("/a/b", content, **options)  # type: ignore[operator]
        with pytest.raises(ArgumentError, match="subject is a str"):
            await client.publish(None, "x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda client: client.subscribe(), "at least one subject"),
        (lambda client: client.subscribe(["/a/b"]), "subscribe(*subjects)"),
        (lambda client: client.subscribe("/a/b", history="1"), "history is an integer"),
        (lambda client: client.subscribe("/a/b", conflation_ms=-1), "0 or more, not -1"),
        (lambda client: client.subscribe_with_history("/a/b", 1), "subjects is a list such as"),
        (lambda client: client.subscribe_with_conflation("/a/b", 1), "subjects is a list such as"),
        (lambda client: client.unsubscribe("/a/b"), "subjects is a list such as"),
        (lambda client: client.set_servers("a:1"), "servers is a list"),
        (lambda client: client.set_transport("udp"), "transport is"),
        (lambda client: client.set_encryption("tls"), "encryption is True or False"),
        (lambda client: client.set_encryption(True, "ca.pem"), "tls is of the class SSLContext"),
        (lambda client: client.set_entitlement_token(7), "token is a str, not 7 (int)"),
        (lambda client: client.set_external_token(None), "token is a str, not None"),
        (lambda client: client.set_reconnect_policy("x"), "policy is a ReconnectPolicy, not 'x'"),
        (lambda client: client.set_reconnect_max_delay("5"), "max_delay_s is a number of seconds"),
        (lambda client: client.set_quick_reconnect_max_retries(-1), "0 or more, not -1"),
    ],
)
async def test_arguments_of_other_methods(call: Callable[[Client], Any], sentence: str) -> None:
    async with Client(NOWHERE) as client:
        with pytest.raises(ArgumentError, match=re.escape(sentence)):
            call(client)


async def test_before_and_after_the_block_everything_that_waits_raises(tmp_path: Path) -> None:
    with live_server(tmp_path) as server, trio.fail_after(20):
        client = Client([server.url])
        waits: list[Callable[[], Any]] = [
            lambda: client.publish("/a/b", "x"),
            lambda: client.submit("/a/b", "x"),
            lambda: client.request("/a/b", "x"),
            client.connected,
        ]
        for wait in waits:
            with pytest.raises(NotOpenError, match="enter the client first"):
                await wait()
        async with client:
            subscription = client.subscribe("/a/b")
            await client.publish("/a/b", "x")
        for wait in waits:
            with pytest.raises(NotOpenError, match="the client was left"):
                await wait()
        with pytest.raises(NotOpenError, match="the client was left"):
            client.subscribe("/a/c")
        assert [message.content async for message in subscription] in ([], ["x"])
        told = [notice.status.name async for notice in client.statuses]
        assert "SERVER_UP" in told
        with pytest.raises(NotOpenError, match="entered once"):
            await client.__aenter__()


async def test_a_wrong_port_is_told_to_everybody_who_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sentence = "no server was reached in 0.5 s: 127.0.0.1:1: "
    with trio.fail_after(20), caplog.at_level(logging.WARNING, "mdserver.client"):
        async with Client(NOWHERE, connect_timeout_s=0.5) as client:
            subscription = client.subscribe("/a/b")
            for wait in (client.connected, subscription.confirmed, subscription.__anext__):
                with pytest.raises(ConnectError, match=sentence):
                    await wait()
            for _ in range(2):
                with pytest.raises(PublishError, match=sentence) as caught:
                    await client.publish("/a/b", "x")
                assert caught.value.result.certain
    assert any("SERVER_DOWN" in record.message for record in caplog.records)


@pytest.mark.slow
async def test_what_was_unreachable_at_first_serves_later(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    with trio.fail_after(40):
        async with Client([f"127.0.0.1:{port}"], connect_timeout_s=0.2) as client:
            subscription = client.subscribe("/a/b")
            with pytest.raises(ConnectError):
                await anext(subscription)
            with live_server(
                tmp_path, "--set", f"Listen=127.0.0.1:{port}", "--set", "Entitlement=None"
            ):
                async for notice in client.statuses:
                    if notice.status.name == "SERVER_UP":
                        break
                await client.publish("/a/b", "x")
                assert (await anext(subscription)).content == "x"


async def test_a_result_that_does_not_come_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with live_server(tmp_path) as server, trio.fail_after(20):
        async with Client([server.url], timeout_s=0.3) as client:
            await client.connected()
            client.disconnect()
            with pytest.raises(ClientTimeoutError, match=r"no result in 0\.3 s"):
                await client.publish("/a/b", "x")
            with pytest.raises(ClientTimeoutError, match=r"no result in 0\.1 s"):
                await client.publish("/a/b", "x", timeout_s=0.1)
            with pytest.raises(TimeoutError, match="no reply"):
                await client.request("/a/b", "x", timeout_s=0.1)
            client.connect()
            await client.settled()


def test_presets() -> None:
    assert ReconnectSettings.browser() == ReconnectSettings()
    service = Client(NOWHERE)._core.settings.reconnect
    assert service == ReconnectSettings.service()
    assert (service.quick_initial_delay_s, service.max_delay_s) == (0.1, 5)


@pytest.mark.slow
async def test_other_servers_end_a_wait_for_unreachable_ones(tmp_path: Path) -> None:
    with live_server(tmp_path) as server, trio.fail_after(60):
        # The same time is enough to connect to the server that is there, on a busy machine too.
        async with Client(NOWHERE, connect_timeout_s=5) as client:
            with pytest.raises(ConnectError):
                await client.connected()
            client.set_servers([server.url])
            client.connect()
            await client.publish("/a/b", "x")
            await client.connected()


async def test_connecting_again_waits_again(tmp_path: Path) -> None:
    with trio.fail_after(40):
        async with Client(NOWHERE, connect_timeout_s=0.2) as client:
            for _ in range(2):
                with pytest.raises(ConnectError, match=r"no server was reached in 0\.2 s"):
                    await client.connected()
                with pytest.raises(PublishError, match="no server was reached"):
                    await client.publish("/a/b", "x")
                client.connect()
