"""Receipts from the Python client through a real server into its journal."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import trio
from websockets.sync.client import connect

from mdserver.client import Client, NotOpenError, ReconnectSettings
from mdserver.core.message import checksum
from mdserver.journal import segments
from mdserver.journal.rows import ReceiptRow
from tests.live import LiveServer, live_server

PATIENCE_S = 30


def arguments(folder: Path, listen: str = "127.0.0.1:0", **settings: str) -> list[str]:
    given = {
        "Listen": listen,
        "Entitlement": "None",
        "Journal": "on",
        "JournalFolder": str(folder / "journal"),
        **settings,
    }
    return [part for name, value in given.items() for part in ("--set", f"{name}={value}")]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(tmp_path, *arguments(tmp_path)) as running:
        yield running


def receipts(folder: Path) -> list[ReceiptRow]:
    """All receipts of a journal that no server writes any more."""
    lines = segments.lines(folder / "journal" / "receipts")
    return [msgspec.json.decode(line, type=ReceiptRow) for line in lines]


async def received(subscription: Any, count: int) -> None:
    with trio.fail_after(PATIENCE_S):
        for _ in range(count):
            await anext(subscription)


@pytest.mark.parametrize("encoding", ["binary", "json"])
@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_what_was_received_stands_in_the_journal(
    server: LiveServer, tmp_path: Path, encoding: Any, transport: Any
) -> None:
    async with Client([server.url]) as publisher:
        client = Client([server.url], receipts=True, encoding=encoding, transport=transport)
        client.set_external_token("ann")
        async with client:
            subscription = client.subscribe("/a/*")
            await subscription.confirmed()
            for content in ["one", "two", b"\xff"]:
                await publisher.publish("/a/b", content)
            await publisher.publish("/a/c", "three")
            await received(subscription, 4)
            with trio.fail_after(PATIENCE_S):
                await client.reported()
            await publisher.publish("/a/c", "four")
            await received(subscription, 1)
    assert server.stop() == 0
    rows = receipts(tmp_path)
    assert [(row.subject, row.seq_lo, row.seq_hi, row.n) for row in rows] == [
        ("/a/b", 1, 3, 3),
        ("/a/c", 1, 1, 1),
        ("/a/c", 2, 2, 1),
    ]
    contents = [b"one", b"two", b"\xff"]
    epoch = rows[0].epoch
    assert rows[0].crc_sum == sum(
        checksum("/a/b", epoch, seq, content) for seq, content in enumerate(contents, 1)
    )
    assert rows[0].crc_at == sum(
        checksum("/a/b", epoch, seq, content) * (seq - 1) for seq, content in enumerate(contents, 1)
    )
    assert {(row.subscriber, row.via, row.session) for row in rows} == {
        ("ann", "mdserver", rows[0].session)
    }
    assert all(row.opened_ts <= row.closed_ts for row in rows)
    assert {(row.verified, row.owner) for row in rows} == {(True, rows[0].owner)}


def test_a_receipt_of_what_was_never_got_is_marked(server: LiveServer, tmp_path: Path) -> None:
    claimed = {
        "session": "victim.1",
        "history": "?",
        "subject": "/secret/plans",
        "epoch": 1,
        "seq_lo": 5,
        "seq_hi": 9,
        "n": 1,
        "crc_sum": 1,
        "crc_at": 1,
        "via": "m",
        "opened_ms": 0,
        "closed_ms": 0,
    }
    commands: list[dict[str, object]] = [
        {"op": "connect"},
        {"op": "receipts", "receipts": [claimed]},
        {"op": "ping"},
    ]
    with connect(f"ws://{urlsplit(server.url).netloc}/ws") as client:
        for command in commands:
            client.send(msgspec.json.encode(command).decode())
        while "pong" not in str(client.recv(PATIENCE_S)):
            pass
    assert server.stop() == 0
    (row,) = receipts(tmp_path)
    assert (row.session, row.verified) == ("victim.1", False)
    assert row.owner == "mdserver-1"


async def test_a_client_gives_no_receipts_unless_it_is_told_to(
    server: LiveServer, tmp_path: Path
) -> None:
    async with Client([server.url]) as client:
        subscription = client.subscribe("/a/b")
        await client.publish("/a/b", "one")
        await received(subscription, 1)
        await client.reported()
    assert server.stop() == 0
    assert receipts(tmp_path) == []


@pytest.mark.slow
async def test_receipts_wait_for_a_server_that_was_killed(tmp_path: Path) -> None:
    at_once = ReconnectSettings(quick_initial_delay_s=0.02, time_interval_s=0.02)
    with live_server(tmp_path, *arguments(tmp_path, JournalFsync="none")) as first:
        listen = f"127.0.0.1:{first.port}"
        async with Client([first.url], receipts=True, reconnect=at_once) as client:
            subscription = client.subscribe("/a/b")
            await client.publish("/a/b", "one")
            await received(subscription, 1)
            os.kill(first.process.pid, signal.SIGKILL)
            first.process.wait(PATIENCE_S)
            with live_server(tmp_path, *arguments(tmp_path, listen)) as second:
                with trio.fail_after(PATIENCE_S):
                    await client.publish("/a/b", "two")
                    await received(subscription, 1)
                    await client.reported()
                assert second.stop() == 0
    assert [(row.subject, row.n) for row in receipts(tmp_path)] == [("/a/b", 1), ("/a/b", 1)]


@pytest.mark.slow
async def test_a_wait_for_receipts_ends_with_its_client(tmp_path: Path) -> None:
    async def wait(client: Client) -> None:
        with pytest.raises(NotOpenError):
            await client.reported()

    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            with live_server(tmp_path, *arguments(tmp_path)) as server:
                async with Client([server.url], receipts=True) as client:
                    subscription = client.subscribe("/a/b")
                    await client.publish("/a/b", "one")
                    await received(subscription, 1)
                    server.process.kill()
                    server.process.wait(PATIENCE_S)
                    nursery.start_soon(wait, client)
