"""A server with a journal: every committed message and what clients did are rows on the disk."""

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from mdserver.client import Client, PublishError
from mdserver.core.inputs import Trouble
from mdserver.core.message import checksum
from mdserver.core.outputs import Log
from mdserver.core.settings import BrokerSettings
from mdserver.journal import segments
from mdserver.journal.rows import MessageRow, ReceiptRow, StatRow
from mdserver.journal.writer import JournalWriter, WriterSettings
from mdserver.server.disk.journalling import STREAMS, Journal, JournalBrokenError
from mdserver.server.server import Server
from tests.receipts import receipt_row
from tests.server.serving import route, serving

BROKER = BrokerSettings(audit_access=True, audit_message=True, audit_cache=True)


@contextlib.asynccontextmanager
async def journalled(folder: Path, **settings: Any) -> AsyncIterator[tuple[Server, Journal]]:
    async with serving(broker=BROKER) as server:
        writer = JournalWriter(folder, STREAMS, WriterSettings(**settings))
        journal = Journal(writer, "n1", server.engine)
        route(server, log=journal.take, committed=journal.committed)
        async with journal.running():
            yield server, journal


def rows(folder: Path, stream: str) -> list[Any]:
    return [msgspec.json.decode(line) for line in segments.lines(folder / stream)]


async def test_committed_messages_are_rows_with_their_places(tmp_path: Path) -> None:
    async with journalled(tmp_path) as (server, _), Client(server.urls) as client:
        history = server.engine.node.history  # type: ignore[attr-defined]
        await client.publish("/a/b", "one", fields={"x": "1"}, closure="c")
        await client.publish("/a/b", b"\xff\x00")
        await client.publish("/a/c", "STANDARD ones have no place", qos="STANDARD")
    lines = list(segments.lines(tmp_path / "messages"))
    text, binary = (msgspec.json.decode(line, type=MessageRow) for line in lines)
    assert (text.subject, text.seq, text.content, text.fields) == ("/a/b", 1, "one", {"x": "1"})
    assert (text.history, text.node, text.closure) == (history, "n1", "c")
    assert text.crc == checksum("/a/b", text.epoch, 1, b"one")
    assert (binary.seq, binary.content, binary.content_base64) == (2, None, b"\xff\x00")
    assert text.ts_pub <= text.ts_server <= binary.ts_server


async def test_what_clients_do_is_in_streams_of_its_own(tmp_path: Path) -> None:
    async with journalled(tmp_path) as (server, _):
        async with Client(server.urls) as client:
            client.subscribe("/a/b")
            await client.publish("/a/b", "one")
        await server.drain()
    access = rows(tmp_path, "access")
    assert [row["event"] for row in access] == ["connect", "subscribe", "disconnect"]
    published = rows(tmp_path, "publish")
    assert [(row["event"], row["subject"], row["seq"]) for row in published] == [
        ("publish", "/a/b", 1)
    ]
    assert {row["node"] for row in access + published} == {"n1"}


async def test_a_sample_is_a_row_an_indicator(tmp_path: Path) -> None:
    async with journalled(tmp_path) as (_, journal):
        journal.take(Log("stats", "stats", {"time": 5_000, "sessions": 3, "subjects": 4}))
    lines = segments.lines(tmp_path / "stats")
    found = [msgspec.json.decode(line, type=StatRow) for line in lines]
    assert [(row.ts, row.indicator, row.value) for row in found] == [
        (5, "sessions", 3.0),
        (5, "subjects", 4.0),
    ]


async def test_other_rows_can_be_written_to_their_stream(tmp_path: Path) -> None:
    receipt = receipt_row(seqs=(1, 2))
    async with journalled(tmp_path) as (_, journal):
        journal.write("receipts", receipt)
    (line,) = segments.lines(tmp_path / "receipts")
    assert msgspec.json.decode(line, type=ReceiptRow) == receipt


async def test_refused_publications_get_the_reason_and_standard_ones_pass(tmp_path: Path) -> None:
    async with journalled(tmp_path) as (server, _), Client(server.urls) as client:
        server.engine.dispatch(Trouble("The journal cannot be written: no room.", refusing=True))
        with pytest.raises(PublishError, match="PUBLISH_FAILED: The journal cannot be written"):
            await client.publish("/a/b", "refused")
        await client.publish("/a/b", "passes", qos="STANDARD")
        server.engine.dispatch(Trouble(None, refusing=True))
        await client.publish("/a/b", "one")
    assert [row["content"] for row in rows(tmp_path, "messages")] == ["one"]
    refused = [row for row in rows(tmp_path, "publish") if row["event"] == "publish-denied"]
    assert {row["reason"] for row in refused} == {"The journal cannot be written: no room."}


async def test_a_journal_that_cannot_be_synced_ends_what_waits_for_it(tmp_path: Path) -> None:
    async with journalled(tmp_path) as (_, journal):
        stream = journal._writer._streams["messages"]
        journal._writer.write("messages", [b"x", lambda _: os.close(stream._file)])
        with trio.fail_after(20), pytest.raises(JournalBrokenError, match="syncing failed"):
            await journal.run()
